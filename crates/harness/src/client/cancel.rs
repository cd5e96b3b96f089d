//! Leaves requests at random times and joins the moment of leaving with the moment at which the
//! mock saw its side end.
//!
//! On HTTP/1.1 leaving is a FIN: every other client half-closes and reads on, the rest empty their
//! receive buffer and close (with unread data the kernel would send RST instead). On HTTP/2 the
//! stream is reset while its connection and its other streams live on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::Target;
use super::http1::{Conn, Progress, Reader};
use super::mock_api::{self, End};
use crate::clock::now_ns;
use crate::mock::LocalExec;
use crate::record::{Samples, Summary};
use crate::stamp::{Scanner, Stamp};

/// How long the mock is given to notice the last ones.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a client that half-closed reads on.
const LINGER: Duration = Duration::from_secs(1);
/// Longest wait for the tokens that a state begins with.
const PATIENCE: Duration = Duration::from_secs(10);
/// Streams that share an HTTP/2 connection.
const STREAMS_PER_CONNECTION: usize = 10;

/// What the request is doing when its client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Tokens every 20 ms.
    MidStream,
    /// Three tokens, then nothing.
    Silent,
    /// No byte of the answer yet.
    BeforeFirstByte,
    /// No stream was asked for, and no answer yet.
    NonStream,
}

impl State {
    fn spec(self) -> &'static str {
        match self {
            Self::MidStream => "ttft5,itl20,n0",
            Self::Silent => "ttft5,itl5,n0,silent3",
            Self::BeforeFirstByte | Self::NonStream => "ttft30000",
        }
    }

    fn tokens_first(self) -> u64 {
        match self {
            Self::MidStream => 1,
            Self::Silent => 3,
            Self::BeforeFirstByte | Self::NonStream => 0,
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whom to ask; its spec and stream flag come from the state.
    pub target: Target,
    /// The mock behind it.
    pub mock: SocketAddr,
    /// When they leave.
    pub state: State,
    /// Speak HTTP/2 with prior knowledge.
    pub http2: bool,
    /// How many leave.
    pub count: u64,
    /// How many are there at a time.
    pub streams: usize,
    /// Seed of the random times.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// How many left.
    pub left: u64,
    /// Ended at the mock because its peer left.
    pub aborted: u64,
    /// Ran to their end all the same.
    pub ran_to_end: u64,
    /// Still ran two seconds after the last client had left.
    pub still_running: u64,
    /// Had not reached the mock when their client left.
    pub never_arrived: u64,
    /// `ran_to_end + still_running`.
    pub left_running: u64,
    /// Requests that failed before their client could leave.
    pub failed: u64,
    /// What failed.
    pub errors: BTreeMap<String, u64>,
    /// Client leaves to mock notices, µs.
    pub latency_us: Option<Summary>,
    /// The same of those that half-closed, µs (HTTP/1.1).
    pub half_close_us: Option<Summary>,
    /// Every one of them, µs.
    pub samples_us: Vec<f64>,
}

/// The shared state of the workers.
struct Run {
    plan: Plan,
    next: Cell<u64>,
    rng: RefCell<fastrand::Rng>,
    left: RefCell<Vec<(u64, u64)>>,
    errors: RefCell<BTreeMap<String, u64>>,
    lingering: RefCell<JoinSet<()>>,
    /// HTTP/2 connections, each shared by [`STREAMS_PER_CONNECTION`] workers.
    connections: RefCell<Vec<Option<Shared>>>,
}

/// Runs a plan. Inside a [`tokio::task::LocalSet`].
///
/// # Errors
/// When the mock does not answer.
pub async fn run(mut plan: Plan) -> io::Result<Report> {
    mock_api::reset(plan.mock).await?;
    plan.target.spec = plan.state.spec().into();
    plan.target.stream = plan.state != State::NonStream;
    let (streams, seed, mock) = (plan.streams, plan.seed, plan.mock);
    let run = Rc::new(Run {
        plan,
        next: Cell::new(0),
        rng: RefCell::new(fastrand::Rng::with_seed(seed)),
        left: RefCell::default(),
        errors: RefCell::default(),
        lingering: RefCell::default(),
        connections: RefCell::new(vec![None; streams.div_ceil(STREAMS_PER_CONNECTION)]),
    });
    let mut workers = JoinSet::new();
    for worker in 0..streams {
        workers.spawn_local(Rc::clone(&run).work(worker));
    }
    while workers.join_next().await.is_some() {}
    mock_api::wait_idle(mock, SETTLE).await?;
    let log = mock_api::log(mock).await?;
    run.lingering.borrow_mut().abort_all();
    Ok(run.report(&log))
}

/// The sending side of an HTTP/2 connection.
type Shared = http2::SendRequest<Full<Bytes>>;

impl Run {
    async fn work(self: Rc<Self>, worker: usize) {
        let group = worker / STREAMS_PER_CONNECTION;
        // Spread over one stream's life, so that they do not march in step.
        let stagger = Duration::from_millis(100).mul_f64(worker as f64 / self.plan.streams as f64);
        sleep_until(Instant::now() + stagger).await;
        loop {
            let rid = self.next.get() + 1;
            if rid > self.plan.count {
                return;
            }
            self.next.set(rid);
            let done = if self.plan.http2 {
                self.leave_http2(rid, group).await
            } else {
                self.leave_http1(rid).await
            };
            match done {
                Ok(ns) => self.left.borrow_mut().push((rid, ns)),
                Err(e) => {
                    self.connections.borrow_mut()[group] = None;
                    *self.errors.borrow_mut().entry(e.to_string()).or_default() += 1;
                }
            }
        }
    }

    /// When to leave a request whose state has been reached.
    fn leave_at(&self) -> Instant {
        let earliest_us = if self.plan.state.tokens_first() > 0 { 0 } else { 20_000 };
        Instant::now() + Duration::from_micros(earliest_us + self.rng.borrow_mut().u64(0..100_000))
    }

    async fn leave_http1(&self, rid: u64) -> io::Result<u64> {
        let mut conn = Conn::open(self.plan.target.addr, None).await?;
        conn.write(&self.plan.target.request(rid)).await?;
        let (mut reader, mut tokens) = (Reader::default(), Tokens::default());
        while tokens.count < self.plan.state.tokens_first() {
            let read = conn.read(&mut reader, |_, piece| tokens.feed(piece));
            if timeout(PATIENCE, read).await.map_err(io::Error::from)?? != Progress::Open {
                return Err(ended(reader.status()));
            }
        }
        let leave_at = self.leave_at();
        let read_on = async {
            while conn.read(&mut reader, |_, _| ()).await? == Progress::Open {}
            io::Result::Ok(())
        };
        match timeout_at(leave_at, read_on).await {
            Ok(Ok(())) => return Err(ended(reader.status())),
            Ok(Err(e)) => return Err(e),
            Err(_) => {}
        }
        let ns = now_ns();
        if half_closes(rid) {
            conn.half_close().await?;
            self.lingering.borrow_mut().spawn_local(async move {
                // Whichever comes first, this client has already left.
                let _ = timeout(LINGER, conn.discard()).await;
            });
        } else {
            conn.close();
        }
        Ok(ns)
    }

    async fn leave_http2(&self, rid: u64, group: usize) -> io::Result<u64> {
        let target = &self.plan.target;
        let known = self.connections.borrow()[group].clone();
        let mut sender = match known {
            Some(sender) => sender,
            None => connect_http2(target.addr).await?,
        };
        self.connections.borrow_mut()[group] = Some(sender.clone());
        let mut request = Request::post(format!("http://{}{}", target.addr, target.path))
            .header("content-type", "application/json");
        for line in &target.headers {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            request = request.header(name.trim(), value.trim());
        }
        let request = request.body(Full::from(target.body(rid))).map_err(io::Error::other)?;
        let response = sender.send_request(request);
        if self.plan.state.tokens_first() == 0 {
            let at = self.leave_at();
            return match timeout_at(at, response).await {
                Err(_) => Ok(now_ns()),
                Ok(Err(e)) => Err(io::Error::other(e)),
                Ok(Ok(response)) => Err(ended(response.status().as_u16())),
            };
        }
        let response =
            timeout(PATIENCE, response).await.map_err(io::Error::from)?.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut tokens = Tokens::default();
        let mut leave_at = None;
        loop {
            let deadline = leave_at.unwrap_or_else(|| Instant::now() + PATIENCE);
            match timeout_at(deadline, body.frame()).await {
                Err(_) if leave_at.is_some() => break,
                Err(e) => return Err(e.into()),
                Ok(None) => return Err(ended(status)),
                Ok(Some(Err(e))) => return Err(io::Error::other(e)),
                Ok(Some(Ok(frame))) => frame.data_ref().map_or((), |piece| tokens.feed(piece)),
            }
            if leave_at.is_none() && tokens.count >= self.plan.state.tokens_first() {
                leave_at = Some(self.leave_at());
            }
        }
        Ok(now_ns())
    }

    fn report(&self, log: &std::collections::HashMap<u64, Vec<End>>) -> Report {
        let mut report = Report { errors: self.errors.borrow().clone(), ..Report::default() };
        report.failed = report.errors.values().sum();
        let (mut all, mut half) = (Samples::default(), Samples::default());
        for (rid, left_ns) in self.left.borrow().iter() {
            report.left += 1;
            let Some(ends) = log.get(rid) else {
                report.never_arrived += 1;
                continue;
            };
            if ends.contains(&End::Running) {
                report.still_running += 1;
            } else if ends.contains(&End::Done) {
                report.ran_to_end += 1;
            }
            // A request that was tried twice has ended when its last try has.
            let aborts = ends.iter().filter_map(|e| if let End::Aborted(ns) = e { Some(*ns) } else { None });
            if let (Some(ns), true) = (aborts.max(), ends.iter().all(|e| matches!(e, End::Aborted(_)))) {
                report.aborted += 1;
                all.add(*left_ns, ns);
                if !self.plan.http2 && half_closes(*rid) {
                    half.add(*left_ns, ns);
                }
            }
        }
        report.left_running = report.ran_to_end + report.still_running;
        report.samples_us = all.micros();
        report.latency_us = all.summary();
        report.half_close_us = half.summary();
        report
    }
}

/// Counts tokens by their stamps.
#[derive(Default)]
struct Tokens {
    scanner: Scanner,
    count: u64,
}

impl Tokens {
    fn feed(&mut self, piece: &[u8]) {
        let count = &mut self.count;
        self.scanner.feed(piece, |stamp| *count += u64::from(matches!(stamp, Stamp::Token(_))));
    }
}

fn half_closes(rid: u64) -> bool {
    rid.is_multiple_of(2)
}

fn ended(status: u16) -> io::Error {
    io::Error::other(format!("the answer ended before its client left, status {status}"))
}

async fn connect_http2(addr: SocketAddr) -> io::Result<Shared> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    let (sender, connection) =
        http2::handshake(LocalExec, TokioIo::new(socket)).await.map_err(io::Error::other)?;
    tokio::task::spawn_local(async move {
        // Its end shows in the requests on it.
        let _ = connection.await;
    });
    Ok(sender)
}
