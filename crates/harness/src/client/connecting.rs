//! Leaves while the gateway is still dialling: an upstream whose backlog is full lets `connect`
//! hang, and drains it only after the clients have gone. Not one byte of their requests may arrive.
//!
//! One client stays. Its request has to arrive, or the trap has caught nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Target;
use super::http1::Conn;
use crate::clock::now_ns;
use crate::spec::request_id;

/// A byte that comes so soon after a FIN may have been under way.
const GRACE_NS: u64 = 5_000_000;
/// How long the drained upstream listens: past the kernel's second retry of a SYN, at 3 s.
const LISTEN: Duration = Duration::from_secs(4);
/// A dial to a full backlog that has not come through by then will not.
const FULL_AFTER: Duration = Duration::from_millis(100);
/// Most dials that fill a backlog.
const FILLERS_MAX: usize = 64;
/// Longest request kept to find its id, bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The gateway, whose upstream is the trap.
    pub target: Target,
    /// Where the trap shall listen.
    pub trap: SocketAddr,
    /// How many clients leave.
    pub count: u64,
    /// Seed of the random times.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Clients that left.
    pub left: u64,
    /// Connections that the gateway completed once the trap was open.
    pub connections: u64,
    /// Requests of clients that had been gone for more than 5 ms when a byte of theirs arrived.
    pub late_requests: u64,
    /// The request of the client that stayed arrived, so the trap works.
    pub control_arrived: bool,
}

/// When the first byte of each request came, by id.
type Arrivals = Rc<RefCell<BTreeMap<u64, u64>>>;

/// Runs a plan. Inside a [`tokio::task::LocalSet`].
///
/// # Errors
/// When the trap cannot be set or the gateway cannot be reached.
pub async fn run(plan: Plan) -> io::Result<Report> {
    let trap = Trap::set(plan.trap).await?;
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let control_rid = plan.count + 1;
    let mut control = Conn::open(plan.target.addr, None).await?;
    control.write(&plan.target.request(control_rid)).await?;
    let mut clients = JoinSet::new();
    for rid in 1..=plan.count {
        let request = plan.target.request(rid);
        let (addr, stay) = (plan.target.addr, Duration::from_millis(rng.u64(20..300)));
        clients.spawn_local(async move {
            let mut conn = Conn::open(addr, None).await?;
            conn.write(&request).await?;
            sleep(stay).await;
            let ns = now_ns();
            conn.half_close().await?;
            io::Result::Ok((rid, ns, conn))
        });
    }
    let (mut left, mut gone) = (BTreeMap::new(), Vec::new());
    while let Some(client) = clients.join_next().await {
        let (rid, ns, conn) = client.map_err(io::Error::other)??;
        left.insert(rid, ns);
        gone.push(conn);
    }
    sleep(Duration::from_nanos(2 * GRACE_NS)).await;
    let (connections, arrivals) = trap.open().await?;
    let arrivals = arrivals.borrow();
    let late: BTreeSet<u64> = left
        .iter()
        .filter(|(rid, ns)| arrivals.get(rid).is_some_and(|at| *at > **ns + GRACE_NS))
        .map(|(rid, _)| *rid)
        .collect();
    Ok(Report {
        left: plan.count,
        connections,
        late_requests: late.len() as u64,
        control_arrived: arrivals.contains_key(&control_rid),
    })
}

/// A listener with a full backlog.
struct Trap {
    listener: Socket,
    fillers: Vec<TcpStream>,
}

impl Trap {
    async fn set(addr: SocketAddr) -> io::Result<Self> {
        let listener = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        listener.set_reuse_address(true)?;
        listener.set_nonblocking(true)?;
        listener.bind(&addr.into())?;
        listener.listen(0)?;
        let mut fillers = Vec::new();
        while fillers.len() < FILLERS_MAX {
            match timeout(FULL_AFTER, TcpStream::connect(addr)).await {
                Ok(filler) => fillers.push(filler?),
                Err(_) => return Ok(Self { listener, fillers }),
            }
        }
        Err(io::Error::other(format!(
            "a backlog of 0 took {FILLERS_MAX} connections: no trap on this kernel"
        )))
    }

    /// Takes every connection from now on and notes whose request came on it.
    async fn open(self) -> io::Result<(u64, Arrivals)> {
        // Listening again with a longer backlog lets every waiting SYN in at its next retry.
        self.listener.listen(4096)?;
        let listener = TcpListener::from_std(self.listener.into())?;
        let arrivals = Arrivals::default();
        let deadline = Instant::now() + LISTEN;
        let mut readers = JoinSet::new();
        let mut accepted = 0_u64;
        while let Ok(socket) = timeout_at(deadline, listener.accept()).await {
            readers.spawn_local(note(socket?.0, Rc::clone(&arrivals)));
            accepted += 1;
        }
        readers.shutdown().await;
        Ok((accepted - self.fillers.len() as u64, arrivals))
    }
}

/// Reads one connection until it closes.
async fn note(mut socket: TcpStream, arrivals: Arrivals) {
    let (mut request, mut first_ns) = (Vec::new(), None);
    while request.len() < REQUEST_BYTES_MAX && socket.read_buf(&mut request).await.is_ok_and(|n| n > 0) {
        let ns = *first_ns.get_or_insert_with(now_ns);
        let rid = request_id(&request);
        if rid > 0 {
            arrivals.borrow_mut().entry(rid).or_insert(ns);
            return;
        }
    }
}
