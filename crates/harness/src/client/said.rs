//! What a stream of Chat Completions says, as far as a load client needs it: when content came, what was
//! counted, and whether it ended as it should.
//!
//! Invariant: a stream that breaks off, or that says an error, is never taken for an answer.

use serde::Deserialize;
use serde_json::Value;

/// Longest line of a stream.
const LINE_BYTES_MAX: usize = 1 << 20;
/// How much is quoted of a body that is no stream.
const QUOTE_BYTES_MAX: usize = 300;

/// One answer so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// When each piece of content was read, ns.
    pub(crate) at_ns: Vec<u64>,
    /// What the server counted, at the end.
    pub(crate) usage: Option<Usage>,
    over: bool,
    problem: Option<String>,
    line: Vec<u8>,
    quote: Vec<u8>,
}

/// What the server counted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

impl Usage {
    /// Tokens of the prompt that needed no computing.
    pub(crate) fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

impl Said {
    /// Takes a piece of the body that was read at `ns`.
    pub(crate) fn feed(&mut self, ns: u64, piece: &[u8]) {
        let room = QUOTE_BYTES_MAX.saturating_sub(self.quote.len());
        self.quote.extend(piece.iter().take(room));
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(ns, line.trim_ascii());
            } else if self.line.len() > LINE_BYTES_MAX {
                self.problem = Some("a line without an end".to_owned());
                self.line.clear();
            }
        }
    }

    fn line(&mut self, ns: u64, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        if data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return;
        }
        match serde_json::from_slice::<Chunk>(data) {
            Ok(chunk) => {
                if let Some(error) = chunk.error {
                    self.problem = Some(error.to_string());
                }
                self.usage = chunk.usage.or(self.usage);
                let says =
                    |choice: &Choice| choice.delta.content.as_ref().is_some_and(|text| !text.is_empty());
                if chunk.choices.iter().any(says) {
                    self.at_ns.push(ns);
                }
            }
            Err(error) => self.problem = Some(format!("an event that is no chunk: {error}")),
        }
    }

    /// What kept it from being a whole answer.
    pub(crate) fn problem(&self, status: u16) -> Option<String> {
        if status != 200 {
            return Some(format!("status {status}: {}", String::from_utf8_lossy(&self.quote)));
        }
        let missing = match (self.over, self.at_ns.is_empty(), self.usage) {
            (false, ..) => Some("no [DONE]"),
            (_, true, _) => Some("no content"),
            (.., None) => Some("no usage"),
            _ => None,
        };
        self.problem.clone().or_else(|| missing.map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\r\n\r\n\
        : a comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\ndata: {\"choices\":[{\"delta\":{}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\
        \"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";

    #[test]
    fn every_split_says_the_same() {
        for split in 0..=STREAM.len() {
            let (mut said, (head, tail)) = (Said::default(), STREAM.as_bytes().split_at(split));
            said.feed(1, head);
            said.feed(2, tail);
            let usage = said.usage.unwrap();
            assert_eq!((said.at_ns.len(), said.problem(200)), (2, None), "split at {split}");
            assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (9, 3, 4));
        }
    }

    #[test]
    fn what_is_no_answer_is_a_problem() {
        let problem = |text: &str, status| {
            let mut said = Said::default();
            said.feed(1, text.as_bytes());
            said.problem(status).unwrap_or_default()
        };
        let (broken, _) = STREAM.split_once("data: [DONE]").unwrap();
        assert_eq!(problem(broken, 200), "no [DONE]");
        assert_eq!(problem("{\"error\":\"no\"}", 503), "status 503: {\"error\":\"no\"}");
        assert_eq!(problem("data: {\"error\":{\"code\":1}}\n\ndata: [DONE]\n\n", 200), "{\"code\":1}");
        assert_eq!(problem("data: [DONE]\n\n", 200), "no content");
        assert!(problem("data: oops\n\n", 200).contains("no chunk"));
    }
}
