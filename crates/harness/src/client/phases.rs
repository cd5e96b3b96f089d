//! Runs phases of requests at a model server and says, per phase, when tokens came.
//!
//! - TTFT = first content read − request written
//! - ITL = content to content as read; of requests *beside*, only the gaps that touch the later phases
//! - of those who leave or stall as they are told: only how many
//! - of requests *arriving*: how many were refused with 429, had no better luck when they came again after
//!   exactly `Retry-After`, or were good (their TTFT then counts from the first time they came)
//! - TPOT = (last content − first content) ÷ (tokens as the server counts them − 1), per request
//!
//! Invariant: a gap that is open when the last phase ends is waited for; the longest are never lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Target;
use super::http1::{Conn, Progress, Reader};
use super::phase::{How, Phase};
use super::said::Said;
use crate::clock::now_ns;
use crate::record::{Samples, Summary};

/// How long a phase may take.
const PHASE_MAX: Duration = Duration::from_mins(30);
/// Pieces of content after which a request beside the others is under way.
const UNDER_WAY: usize = 8;
/// The status of a refusal that asks to come again.
const REFUSED: u16 = 429;
/// Most different errors that a report spells out.
const ERROR_KINDS_MAX: usize = 16;

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where requests go, and by what name of a model.
    pub target: Target,
    /// What is asked, in this order.
    pub phases: Vec<Phase>,
    /// Of the prompts.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// By the name of the phase.
    pub phases: BTreeMap<String, PhaseReport>,
    /// Requests without a whole answer.
    pub failed: u64,
    /// Why.
    pub errors: BTreeMap<String, u64>,
}

/// What came of one phase.
#[derive(Debug, Default, Serialize)]
pub struct PhaseReport {
    /// Requests refused with 429 at first.
    pub refused: u64,
    /// Of these, refused again when they came back.
    pub refused_again: u64,
    /// Answers that began soon enough and kept their pace, by the phase's own words.
    pub good: u64,
    /// Requests whose client left, as it was told to.
    pub left: u64,
    /// Requests with an answer, or the beginning of one if they ran beside the others.
    pub requests: u64,
    /// Tokens of the longest prompt, as the server counts.
    pub prompt_tokens: u64,
    /// Tokens of all prompts that needed no computing, as the server says.
    pub cached_tokens: u64,
    /// Tokens of all answers, as the server counts.
    pub output_tokens: u64,
    /// From the first request written to the last content read, s.
    pub seconds: f64,
    /// Time to first token, µs.
    pub ttft_us: Option<Summary>,
    /// Token to token, µs.
    pub itl_us: Option<Summary>,
    /// Time per output token, µs.
    pub tpot_us: Option<Summary>,
}

/// A request under way, and whom it tells of what it hears.
#[derive(Debug, Default)]
struct Exchange {
    /// When it came first.
    sent_ns: Option<u64>,
    said: Said,
    /// Answers of 429, at most two.
    refused: u64,
    over: bool,
    left: bool,
    problem: Option<String>,
}

/// Requests of one phase.
struct Group {
    phase: Phase,
    exchanges: Vec<Rc<(RefCell<Exchange>, Notify)>>,
    tasks: JoinSet<()>,
    /// When the phase was over, ns.
    over_ns: u64,
}

/// Runs a plan. Inside a [`tokio::task::LocalSet`].
///
/// # Errors
/// When a phase does not end.
pub async fn run(plan: Plan) -> io::Result<Report> {
    let mut groups: Vec<Group> = Vec::new();
    let mut nth = 0;
    for phase in &plan.phases {
        let mut group =
            Group { phase: phase.clone(), exchanges: Vec::new(), tasks: JoinSet::new(), over_ns: 0 };
        let work = async {
            for (place, after) in phase.arrivals(plan.seed).into_iter().enumerate() {
                group.start(&plan, place, nth, after);
                nth += 1;
                if phase.how == How::InTurn {
                    group.ended().await;
                }
            }
            match phase.how {
                How::Beside => group.under_way(|exchange| exchange.said.at_ns.len() >= UNDER_WAY).await,
                How::Together | How::InTurn => group.ended().await,
                How::Arriving => {}
            }
        };
        within(work, &phase.name).await?;
        group.over_ns = now_ns();
        groups.push(group);
    }
    for group in groups.iter_mut().filter(|group| group.phase.how == How::Arriving) {
        within(join(&mut group.tasks), &group.phase.name).await?;
    }
    let end_ns = now_ns();
    for group in groups.iter_mut().filter(|group| group.phase.how == How::Beside) {
        let closed = |e: &Exchange| e.said.at_ns.last().is_some_and(|at| *at > end_ns);
        within(group.under_way(closed), &group.phase.name).await?;
        group.tasks.abort_all();
    }
    Ok(report(&groups, end_ns))
}

async fn within(work: impl Future<Output = ()>, name: &str) -> io::Result<()> {
    timeout(PHASE_MAX, work)
        .await
        .map_err(|_| io::Error::other(format!("{name} has not ended after {PHASE_MAX:?}")))
}

impl Group {
    fn start(&mut self, plan: &Plan, place: usize, nth: u64, after: Duration) {
        let body = body(&plan.target.model, &self.phase, &self.phase.prompt(plan.seed, place, nth), nth);
        let request = plan.target.post(&body);
        let exchange = Rc::new((RefCell::default(), Notify::new()));
        self.exchanges.push(Rc::clone(&exchange));
        let (addr, stall) = (plan.target.addr, self.phase.stall);
        let stays = Duration::from_millis(self.phase.leave_ms as u64);
        self.tasks.spawn_local(async move {
            let (cell, notify) = &*exchange;
            sleep(after).await;
            let heard = timeout(stays, ask(addr, &request, stall, cell, notify)).await;
            let mut exchange = cell.borrow_mut();
            exchange.over = true;
            exchange.left = heard.is_err();
            exchange.problem = match heard {
                Ok(Ok(status)) => exchange.said.problem(status),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => None,
            };
            drop(exchange);
            notify.notify_one();
        });
    }

    async fn ended(&mut self) {
        join(&mut self.tasks).await;
    }

    /// Waits until each has come so far, or is over.
    async fn under_way(&self, so_far: impl Fn(&Exchange) -> bool) {
        for exchange in &self.exchanges {
            let (cell, notify) = &**exchange;
            let there = || Some(cell.borrow()).is_some_and(|exchange| exchange.over || so_far(&exchange));
            while !there() {
                notify.notified().await;
            }
        }
    }
}

async fn join(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

/// Asks, and once more after exactly the time that a refusal names; the status of the last answer.
async fn ask(
    addr: std::net::SocketAddr,
    request: &[u8],
    stall: bool,
    cell: &RefCell<Exchange>,
    notify: &Notify,
) -> io::Result<u16> {
    let mut status = 0;
    for _ in 0..2 {
        let reader = hear(addr, request, stall, cell, notify).await?;
        status = reader.status();
        if status != REFUSED {
            break;
        }
        cell.borrow_mut().refused += 1;
        let Some(seconds) = reader.retry_after() else { break };
        if cell.borrow().refused == 1 {
            cell.borrow_mut().said = Said::default();
            sleep(Duration::from_secs(seconds)).await;
        }
    }
    Ok(status)
}

/// Sends the request and listens to the end of its answer, or to its first content only.
async fn hear(
    addr: std::net::SocketAddr,
    request: &[u8],
    stall: bool,
    cell: &RefCell<Exchange>,
    notify: &Notify,
) -> io::Result<Reader> {
    let mut conn = Conn::open(addr, None).await?;
    cell.borrow_mut().sent_ns.get_or_insert_with(now_ns);
    conn.write(request).await?;
    let mut reader = Reader::default();
    loop {
        let progress = conn.read(&mut reader, |ns, piece| cell.borrow_mut().said.feed(ns, piece)).await?;
        if progress != Progress::Open {
            return Ok(reader);
        }
        notify.notify_one();
        if stall && !cell.borrow().said.at_ns.is_empty() {
            std::future::pending::<()>().await;
        }
    }
}

/// Both sides draw in the same manner, and neither may end before its time.
fn body(model: &str, phase: &Phase, prompt: &str, seed: u64) -> String {
    let temperature = if phase.greedy { 0.0 } else { 1.0 };
    json!({
        "model": model,
        "stream": true,
        "stream_options": { "include_usage": true },
        "max_tokens": phase.out,
        "ignore_eos": true,
        "temperature": temperature,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "seed": seed,
        "messages": [{ "role": "user", "content": prompt }],
    })
    .to_string()
}

fn report(groups: &[Group], end_ns: u64) -> Report {
    let mut report = Report::default();
    for group in groups {
        let beside = group.phase.how == How::Beside;
        // What ran before the later phases began is nobody's figure.
        let from_ns = if beside { group.over_ns } else { 0 };
        let mut phase = Figures::default();
        for exchange in &group.exchanges {
            let exchange = exchange.0.borrow();
            let problem = match (&exchange.problem, beside && exchange.over) {
                (None, true) => Some("ended while it should have run beside the others".to_owned()),
                (problem, _) => problem.clone(),
            };
            phase.count_refusals(exchange.refused);
            if exchange.left {
                phase.report.left += 1;
                continue;
            }
            match problem {
                // To be sent away is no failure of a server that has too much to do, if it says so in time.
                Some(_) if group.phase.how == How::Arriving && exchange.refused > 1 => {}
                Some(problem) => report.fail(problem),
                None => phase.add(&exchange, &group.phase, from_ns..=end_ns),
            }
        }
        report.phases.insert(group.phase.name.clone(), phase.report());
    }
    report
}

impl Report {
    fn fail(&mut self, problem: String) {
        self.failed += 1;
        if self.errors.contains_key(&problem) || self.errors.len() < ERROR_KINDS_MAX {
            *self.errors.entry(problem).or_default() += 1;
        }
    }
}

/// The figures of a phase while they are gathered.
#[derive(Default)]
struct Figures {
    report: PhaseReport,
    ttft: Samples,
    itl: Samples,
    tpot: Samples,
    first_sent_ns: Option<u64>,
    last_read_ns: u64,
}

impl Figures {
    fn count_refusals(&mut self, refused: u64) {
        self.report.refused += u64::from(refused > 0);
        self.report.refused_again += u64::from(refused > 1);
    }

    fn add(&mut self, exchange: &Exchange, phase: &Phase, counts: RangeInclusive<u64>) {
        let usage = exchange.said.usage.unwrap_or_default();
        let report = &mut self.report;
        report.requests += 1;
        report.prompt_tokens = report.prompt_tokens.max(usage.prompt_tokens);
        report.cached_tokens += usage.cached_tokens();
        report.output_tokens += usage.completion_tokens;
        let sent = exchange.sent_ns.unwrap_or(0);
        self.first_sent_ns = self.first_sent_ns.into_iter().chain([sent]).min();
        let at = &exchange.said.at_ns;
        let (Some(&first), Some(&last)) = (at.first(), at.last()) else { return };
        self.last_read_ns = self.last_read_ns.max(last);
        self.ttft.add(sent, first);
        let mut gaps = Samples::default();
        for gap in at.windows(2).filter(|gap| gap[1] >= *counts.start() && gap[0] <= *counts.end()) {
            self.itl.add(gap[0], gap[1]);
            gaps.add(gap[0], gap[1]);
        }
        let p99_us = gaps.summary().map_or(0.0, |gaps| gaps.p99);
        let soon = (first - sent) / 1_000_000 <= phase.ttft_ms as u64;
        report.good += u64::from(soon && p99_us <= phase.itl_ms as f64 * 1000.0);
        if let Some(later @ 1..) = usage.completion_tokens.checked_sub(1) {
            self.tpot.add(0, (last - first) / later);
        }
    }

    fn report(mut self) -> PhaseReport {
        let first = self.first_sent_ns.unwrap_or(0);
        PhaseReport {
            seconds: Duration::from_nanos(self.last_read_ns.saturating_sub(first)).as_secs_f64(),
            ttft_us: self.ttft.summary(),
            itl_us: self.itl.summary(),
            tpot_us: self.tpot.summary(),
            ..self.report
        }
    }
}
