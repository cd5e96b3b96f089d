//! The demo model, end to end: the questions of `samples/` through the real server, as a newcomer asks them.
//!
//! A page or a sentence is right if `questions.jsonl` has it among its answers; a quotation is broken if it is
//! no sentence of the page that it cites. `models/demo/train/evaluate.py` means the same by these words, and
//! measures more of the model.
//!
//! Invariant: what is judged is what a caller got, over HTTP, and nothing that the server knows of itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::judge::{Arm, Round};
use super::rig::{Launcher, Running, free_port, start};
use super::{Plan, measure};
use crate::process;
use crate::stopwatch::Stopwatch;

/// Folders of documents with questions.
const SETS: [&str; 2] = ["billing", "unseen"];
/// How its refusal begins, and what it says where it is not for a question.
const REFUSALS: [&str; 2] = ["I don't find that", "I am firsttoken's demo model"];
/// Prompts of which each is computed cold, and their length, in words that are a token each.
const COLD: usize = 9;
const COLD_TOKENS: usize = 1_000;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// All rounds. The first tells all about the answers; those of the others are the same.
///
/// # Errors
/// When the server cannot be built, does not come up, or answers with an error.
pub(super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    if launcher.gateway == process::firsttoken() {
        process::run(&mut process::cargo(&["build", "--quiet", "--release", "--package", "firsttoken"]))?;
    }
    measure::in_rotation(name, plan, &[Arm::Ours], |_, number| {
        let (addr, _server) = server(launcher)?;
        let mut tally = Tally::default();
        let mut report = json!({});
        for set in SETS {
            let mut own = Tally::default();
            for question in questions(set)? {
                own.hear(&question, &ask(addr, question["question"].as_str().unwrap_or_default())?)?;
            }
            report[set] = own.report();
            tally.add(&own);
        }
        report["all"] = tally.report();
        report["token_ms"] = json!(tally.spoken_ms / tally.tokens.max(1.0));
        report["ttft_ms"] = json!(cold(addr, number)?);
        Ok(report)
    })
}

/// The server as it starts without a word of configuration.
fn server(launcher: &Launcher) -> Result<(SocketAddr, Running)> {
    let addr = free_port()?;
    let mut command = launcher.everywhere(&launcher.gateway);
    command.args(["serve", "--listen", &addr.to_string()]).current_dir(&launcher.dir);
    command.env_remove("OPENAI_API_KEY").env_remove("ANTHROPIC_API_KEY").env("FIRSTTOKEN_LOG", "warn");
    let log = launcher.dir.join(format!("demo-{}.log", addr.port()));
    let running = start("firsttoken", &mut command, &log, addr)?;
    Ok((addr, running))
}

fn questions(set: &str) -> Result<Vec<Value>> {
    let path = process::root().join("samples").join(set).join("questions.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn ask(addr: SocketAddr, question: &str) -> Result<Value> {
    let messages = json!([{"role": "user", "content": question}]);
    post(addr, "/v1/chat/completions", &json!({"model": "firsttoken-demo", "messages": messages}))
}

/// Median time to the first token of prompts that nobody has computed before, ms, by the server's own clock
/// for what lies between the prompt and the token.
fn cold(addr: SocketAddr, round: usize) -> Result<f64> {
    let mut times = Vec::new();
    for at in 0..=COLD {
        // Token 300 and after are words; the first ones differ, so that no beginning is shared.
        let prompt: Vec<usize> =
            (0..COLD_TOKENS).map(|i| 300 + (i * 7 + at * 131 + round * 17) % 5_000).collect();
        let body = json!({"model": "firsttoken-demo", "prompt": prompt, "max_tokens": 1, "temperature": 0});
        let before = Stopwatch::start();
        post(addr, "/v1/completions", &body)?;
        times.push(before.seconds() * 1e3);
    }
    // The first touches the weights.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// A whole answer.
fn post(addr: SocketAddr, path: &str, body: &Value) -> Result<Value> {
    let mut socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let body = body.to_string();
    let length = body.len();
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the server sent no answer")?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{path}: {answer}");
    }
    Ok(serde_json::from_str(body)?)
}

/// How answers fared.
#[derive(Default)]
struct Tally {
    answerable: u32,
    page: u32,
    sentence: u32,
    refused_falsely: u32,
    unanswerable: u32,
    refused: u32,
    broken: u32,
    tokens: f64,
    spoken_ms: f64,
}

impl Tally {
    fn hear(&mut self, question: &Value, answer: &Value) -> Result<()> {
        let message = &answer["choices"][0]["message"];
        let said = message["content"].as_str().context("an answer has a text")?;
        let cited = &message["annotations"][0]["url_citation"];
        let is_refusal = REFUSALS.iter().any(|refusal| said.starts_with(refusal));
        let sentence = said.split_once("] ").map_or("", |(_, sentence)| sentence);
        self.broken += u32::from(!is_refusal && cited["content"] != sentence);
        self.tokens += (answer["usage"]["completion_tokens"].as_f64().unwrap_or(0.0) - 1.0).max(0.0);
        self.spoken_ms += answer["timings"]["predicted_ms"].as_f64().unwrap_or(0.0);
        let right = question["answers"].as_array().context("a question has answers, or none")?;
        if right.is_empty() {
            self.unanswerable += 1;
            self.refused += u32::from(is_refusal);
            return Ok(());
        }
        let url = cited["url"].as_str().unwrap_or_default();
        let page = |answer: &Value| {
            let name = answer["page"].as_str().and_then(|page| page.strip_suffix(".md")).unwrap_or("?");
            url.split('#').next().is_some_and(|url| url.ends_with(&format!("/{name}")))
        };
        self.answerable += 1;
        self.refused_falsely += u32::from(is_refusal);
        self.page += u32::from(right.iter().any(page));
        self.sentence += u32::from(right.iter().any(|answer| page(answer) && answer["sentence"] == sentence));
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.answerable += other.answerable;
        self.page += other.page;
        self.sentence += other.sentence;
        self.refused_falsely += other.refused_falsely;
        self.unanswerable += other.unanswerable;
        self.refused += other.refused;
        self.broken += other.broken;
        self.tokens += other.tokens;
        self.spoken_ms += other.spoken_ms;
    }

    /// Bars are bounds from above, so what went wrong is told, in per cent.
    fn report(&self) -> Value {
        let percent = |some: u32, of: u32| (1000.0 * f64::from(some) / f64::from(of.max(1))).round() / 10.0;
        json!({
            "page_wrong": percent(self.answerable - self.page, self.answerable),
            "sentence_wrong": percent(self.answerable - self.sentence, self.answerable),
            "refused_falsely": percent(self.refused_falsely, self.answerable),
            "answered_falsely": percent(self.unanswerable - self.refused, self.unanswerable),
            "broken": self.broken,
            "answerable": self.answerable, "unanswerable": self.unanswerable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, url: &str) -> Value {
        let passage = text.split_once("] ").map_or("", |(_, sentence)| sentence);
        let cited = json!([{"url_citation": {"url": url, "content": passage}}]);
        json!({"choices": [{"message": {"content": text, "annotations": cited}}]})
    }

    #[test]
    fn answers_are_judged_by_page_and_sentence() {
        let question = json!({"answers": [{"page": "a.md", "sentence": "One."}]});
        let mut tally = Tally::default();
        for (text, url) in [
            ("[1] One.", "/samples/x/a#s1"),
            ("[2] Two.", "/samples/x/a#s2"),
            ("[1] One.", "/samples/x/ba#s1"),
            ("I don't find that in the documents.", ""),
        ] {
            tally.hear(&question, &answer(text, url)).unwrap();
        }
        tally.hear(&json!({"answers": []}), &answer("I don't find that in the documents.", "")).unwrap();
        tally.hear(&json!({"answers": []}), &answer("[1] One.", "/samples/x/a#s1")).unwrap();
        let mut broken = answer("[1] One.", "/samples/x/a#s1");
        broken["choices"][0]["message"]["content"] = json!("[1] One One One");
        tally.hear(&json!({"answers": []}), &broken).unwrap();
        let expected = json!({
            "page_wrong": 50.0, "sentence_wrong": 75.0, "refused_falsely": 25.0, "answered_falsely": 66.7,
            "broken": 1, "answerable": 4, "unanswerable": 3,
        });
        assert_eq!(tally.report(), expected);
    }
}
