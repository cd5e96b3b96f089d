//! Closed loop: keeps so many requests going through a window of time and times every token in it.
//!
//! - delay of a token = received − written by the mock (the first token counts for TTFT only)
//! - added TTFT = (arrived at the mock − sent) + (first token received − written)
//! - added by a whole answer: the same sum, over the answer
//!
//! What falls before or after the window is relayed all the same but not counted. CPU time is read
//! at both edges of the window.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::http1::{Conn, Progress, Reader};
use super::{Target, mock_api};
use crate::clock::now_ns;
use crate::proc::{Tree, machine_busy_ns, own_cpu_ns};
use crate::record::{Samples, Summary};
use crate::stamp::{Scanner, Stamp};

/// Most different errors that a report spells out.
const ERROR_KINDS_MAX: usize = 16;
/// How long the mock is given to notice that all have left.
const SETTLE: Duration = Duration::from_secs(3);
/// A worker whose connection failed waits so long before it dials again.
const REDIAL: Duration = Duration::from_millis(20);

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to ask of whom.
    pub target: Target,
    /// Requests in flight.
    pub streams: usize,
    /// Time over which the first requests are spread.
    pub ramp: Duration,
    /// From the start to the window; includes the ramp.
    pub warm_up: Duration,
    /// The window.
    pub window: Duration,
    /// Process trees whose CPU time over the window is reported, by any name.
    pub cpu_of: Vec<(String, i32)>,
    /// The mock behind the target: its ledger is emptied first, and at the end it is given time to
    /// notice that all have left.
    pub mock: Option<SocketAddr>,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Requests in flight.
    pub streams: usize,
    /// Length of the window, s.
    pub window_s: f64,
    /// Requests that ended in the window.
    pub requests: u64,
    /// Tokens received in the window.
    pub tokens: u64,
    /// Reads in the window that brought body bytes.
    pub reads: u64,
    /// Added time to first token, µs.
    pub added_ttft_us: Option<Summary>,
    /// Added delay of each later token, µs.
    pub token_delay_us: Option<Summary>,
    /// Token to token as received, µs.
    pub itl_us: Option<Summary>,
    /// Added by a whole answer, µs.
    pub added_answer_us: Option<Summary>,
    /// Answers per status, whole run.
    pub status: BTreeMap<u16, u64>,
    /// What failed, whole run.
    pub errors: BTreeMap<String, u64>,
    /// Failures, whole run.
    pub failed: u64,
    /// Requests that the mock still had after all clients had left and it had had time to notice.
    pub left_running: u64,
    /// CPU time over the window, s: of each process tree, of this client, and of the whole machine.
    pub cpu_s: BTreeMap<String, f64>,
    /// CPU time of the first process tree per token, µs.
    pub cpu_us_per_token: Option<f64>,
    /// CPU time of the first process tree per request, µs.
    pub cpu_us_per_request: Option<f64>,
}

#[derive(Debug, Default)]
struct Recorder {
    from_ns: u64,
    to_ns: u64,
    next_rid: u64,
    requests: u64,
    tokens: u64,
    reads: u64,
    added_ttft: Samples,
    token_delay: Samples,
    itl: Samples,
    added_answer: Samples,
    status: BTreeMap<u16, u64>,
    errors: BTreeMap<String, u64>,
    failed: u64,
}

impl Recorder {
    fn counts(&self, ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&ns)
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed += 1;
        let text = error.to_string();
        if self.errors.contains_key(&text) || self.errors.len() < ERROR_KINDS_MAX {
            *self.errors.entry(text).or_default() += 1;
        }
    }
}

/// Runs a plan. Inside a [`tokio::task::LocalSet`].
///
/// # Errors
/// When a process whose CPU time is wanted does not live through the window.
pub async fn run(plan: Plan) -> io::Result<Report> {
    if let Some(mock) = plan.mock {
        mock_api::reset(mock).await?;
    }
    let trees: Vec<(String, Tree)> = plan
        .cpu_of
        .iter()
        .map(|(name, pid)| Ok((name.clone(), Tree::of(*pid)?)))
        .collect::<io::Result<_>>()?;
    let start = Instant::now();
    let from_ns = now_ns() + nanos(plan.warm_up);
    let recorder = Rc::new(RefCell::new(Recorder {
        from_ns,
        to_ns: from_ns + nanos(plan.window),
        ..Recorder::default()
    }));
    let mut workers = spawn(&plan, &recorder);
    sleep_until(start + plan.warm_up).await;
    let before = Cpu::read(&trees)?;
    sleep_until(start + plan.warm_up + plan.window).await;
    let after = Cpu::read(&trees)?;
    workers.abort_all();
    while workers.join_next().await.is_some() {}
    let left_running = match plan.mock {
        Some(mock) => mock_api::wait_idle(mock, SETTLE).await?,
        None => 0,
    };
    let cpu_s = after.since(&before);
    let subject_s = plan.cpu_of.first().and_then(|(name, _)| cpu_s.get(name)).copied();
    let recorder = Rc::into_inner(recorder).ok_or_else(|| io::Error::other("a worker outlived the run"))?;
    let report = report(recorder.into_inner(), subject_s);
    Ok(Report { streams: plan.streams, window_s: plan.window.as_secs_f64(), left_running, cpu_s, ..report })
}

/// Starts the workers, spread over the ramp.
fn spawn(plan: &Plan, recorder: &Rc<RefCell<Recorder>>) -> JoinSet<()> {
    let target = Rc::new(plan.target.clone());
    let mut workers = JoinSet::new();
    for i in 0..plan.streams {
        let (target, recorder) = (Rc::clone(&target), Rc::clone(recorder));
        let after = plan.ramp.mul_f64(i as f64 / plan.streams as f64);
        workers.spawn_local(async move {
            sleep(after).await;
            work(&target, &recorder).await;
        });
    }
    workers
}

/// CPU time so far, ns, by name.
struct Cpu(Vec<(String, u64)>);

impl Cpu {
    fn read(trees: &[(String, Tree)]) -> io::Result<Self> {
        let one = |(name, tree): &(String, Tree)| {
            let ns = tree.cpu_ns().map_err(|e| io::Error::other(format!("CPU time of {name}: {e}")))?;
            Ok((name.clone(), ns))
        };
        let mut all = trees.iter().map(one).collect::<io::Result<Vec<_>>>()?;
        all.push(("client".into(), own_cpu_ns()));
        all.push(("machine".into(), machine_busy_ns()?));
        Ok(Self(all))
    }

    fn since(self, before: &Self) -> BTreeMap<String, f64> {
        self.0.into_iter().zip(&before.0).map(|((name, to), (_, from))| (name, seconds(to - from))).collect()
    }
}

/// What the recorder knows.
fn report(mut r: Recorder, subject_s: Option<f64>) -> Report {
    let per = |count: u64| subject_s.filter(|_| count > 0).map(|s| s * 1e6 / count as f64);
    Report {
        requests: r.requests,
        tokens: r.tokens,
        reads: r.reads,
        cpu_us_per_token: per(r.tokens),
        cpu_us_per_request: per(r.requests),
        added_ttft_us: r.added_ttft.summary(),
        token_delay_us: r.token_delay.summary(),
        itl_us: r.itl.summary(),
        added_answer_us: r.added_answer.summary(),
        status: r.status,
        errors: r.errors,
        failed: r.failed,
        ..Report::default()
    }
}

/// One request after the other on one connection, for ever.
async fn work(target: &Target, recorder: &RefCell<Recorder>) {
    let mut conn = None;
    loop {
        match request(target, recorder, conn.take()).await {
            Ok(kept) => conn = kept,
            Err(e) => {
                recorder.borrow_mut().fail(&e);
                sleep(REDIAL).await;
            }
        }
    }
}

async fn request(
    target: &Target,
    recorder: &RefCell<Recorder>,
    conn: Option<Conn>,
) -> io::Result<Option<Conn>> {
    let mut conn = match conn {
        Some(conn) => conn,
        None => Conn::open(target.addr, None).await?,
    };
    let rid = {
        let mut r = recorder.borrow_mut();
        r.next_rid += 1;
        r.next_rid
    };
    let request = target.request(rid);
    let mut timing = Timing { stream: target.stream, sent_ns: now_ns(), ..Timing::default() };
    conn.write(&request).await?;
    let mut reader = Reader::default();
    loop {
        let progress =
            conn.read(&mut reader, |ns, piece| timing.piece(ns, piece, &mut recorder.borrow_mut())).await?;
        if progress == Progress::Open {
            continue;
        }
        let mut r = recorder.borrow_mut();
        *r.status.entry(reader.status()).or_default() += 1;
        if r.counts(now_ns()) {
            r.requests += 1;
        }
        if reader.status() != 200 || timing.tokens == 0 {
            return Err(io::Error::other(format!(
                "status {} with {} tokens",
                reader.status(),
                timing.tokens
            )));
        }
        return Ok((progress == Progress::Complete).then_some(conn));
    }
}

/// The stamps of one answer so far.
#[derive(Debug, Default)]
struct Timing {
    stream: bool,
    sent_ns: u64,
    arrived_ns: u64,
    last_ns: u64,
    tokens: u64,
    scanner: Scanner,
}

impl Timing {
    fn piece(&mut self, ns: u64, piece: &[u8], r: &mut Recorder) {
        let counts = r.counts(ns);
        r.reads += u64::from(counts);
        let Self { stream, sent_ns, arrived_ns, last_ns, tokens, scanner } = self;
        scanner.feed(piece, |stamp| match stamp {
            Stamp::Arrived(at) => *arrived_ns = at,
            Stamp::Token(written) => {
                *tokens += 1;
                let before_ns = std::mem::replace(last_ns, ns);
                if !counts {
                    return;
                }
                r.tokens += 1;
                if *tokens > 1 {
                    r.token_delay.add(written, ns);
                    r.itl.add(before_ns, ns);
                    return;
                }
                // On one clock the two legs add up; what the mock itself took drops out.
                let added = leg(*sent_ns, *arrived_ns) + leg(written, ns);
                let samples = if *stream { &mut r.added_ttft } else { &mut r.added_answer };
                samples.add_ns(added);
            }
        });
    }
}

fn leg(from_ns: u64, to_ns: u64) -> i64 {
    to_ns.cast_signed() - from_ns.cast_signed()
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}
