//! Runs phases of requests at a model server and says, per phase, when tokens came.
//!
//! - TTFT = first content read − request written
//! - ITL = content to content as read; of requests *beside*, only the gaps that touch the later phases
//! - TPOT = (last content − first content) ÷ (tokens as the server counts them − 1), per request
//!
//! Invariant: a gap that is open when the last phase ends is waited for; the longest are never lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

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
    sent_ns: u64,
    said: Said,
    over: bool,
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
            for place in 0..phase.count {
                group.start(&plan, place, nth);
                nth += 1;
                if phase.how == How::InTurn {
                    group.ended().await;
                }
            }
            match phase.how {
                How::Beside => group.under_way(|exchange| exchange.said.at_ns.len() >= UNDER_WAY).await,
                How::Together | How::InTurn => group.ended().await,
            }
        };
        within(work, &phase.name).await?;
        group.over_ns = now_ns();
        groups.push(group);
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
    fn start(&mut self, plan: &Plan, place: usize, nth: u64) {
        let body = body(&plan.target.model, &self.phase, &self.phase.prompt(plan.seed, place, nth), nth);
        let request = plan.target.post(&body);
        let exchange = Rc::new((RefCell::default(), Notify::new()));
        self.exchanges.push(Rc::clone(&exchange));
        let addr = plan.target.addr;
        self.tasks.spawn_local(async move {
            let (cell, notify) = &*exchange;
            let heard = hear(addr, &request, cell, notify).await;
            let mut exchange = cell.borrow_mut();
            exchange.over = true;
            exchange.problem = match heard {
                Ok(status) => exchange.said.problem(status),
                Err(error) => Some(error.to_string()),
            };
            drop(exchange);
            notify.notify_one();
        });
    }

    async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
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

/// Sends the request and listens to its end; the status of the answer.
async fn hear(
    addr: std::net::SocketAddr,
    request: &[u8],
    cell: &RefCell<Exchange>,
    notify: &Notify,
) -> io::Result<u16> {
    let mut conn = Conn::open(addr, None).await?;
    cell.borrow_mut().sent_ns = now_ns();
    conn.write(request).await?;
    let mut reader = Reader::default();
    loop {
        let progress = conn.read(&mut reader, |ns, piece| cell.borrow_mut().said.feed(ns, piece)).await?;
        if progress != Progress::Open {
            return Ok(reader.status());
        }
        notify.notify_one();
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
            match problem {
                Some(problem) => report.fail(problem),
                None => phase.add(&exchange, from_ns, end_ns),
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
    fn add(&mut self, exchange: &Exchange, from_ns: u64, to_ns: u64) {
        let usage = exchange.said.usage.unwrap_or_default();
        let report = &mut self.report;
        report.requests += 1;
        report.prompt_tokens = report.prompt_tokens.max(usage.prompt_tokens);
        report.cached_tokens += usage.cached_tokens();
        report.output_tokens += usage.completion_tokens;
        self.first_sent_ns = self.first_sent_ns.into_iter().chain([exchange.sent_ns]).min();
        let at = &exchange.said.at_ns;
        let (Some(&first), Some(&last)) = (at.first(), at.last()) else { return };
        self.last_read_ns = self.last_read_ns.max(last);
        self.ttft.add(exchange.sent_ns, first);
        for gap in at.windows(2).filter(|gap| gap[1] >= from_ns && gap[0] <= to_ns) {
            self.itl.add(gap[0], gap[1]);
        }
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
