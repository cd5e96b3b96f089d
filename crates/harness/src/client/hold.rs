//! Opens streams and keeps them: read as they tick (memory of a quiet gateway), or never read at
//! all behind a small receive buffer (memory of one whose readers stall).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Target;
use super::http1::{Conn, Progress, Reader};
use super::mock_api::{self, Stats};
use crate::proc::Tree;

/// What to open.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to ask of whom.
    pub target: Target,
    /// How many.
    pub streams: usize,
    /// Time over which they are opened.
    pub ramp: Duration,
    /// `Some`: never read, with a receive buffer of so many bytes. `None`: read on.
    pub stalled_receive_buffer_bytes: Option<usize>,
}

/// How it stands with them, and with those who serve them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Count {
    /// Have their first byte (or, if never read, have sent their request).
    pub open: usize,
    /// Could not be opened, or have ended since.
    pub lost: usize,
    /// Memory (PSS) of each process tree that was asked for, kB.
    pub pss_kb: BTreeMap<String, u64>,
    /// What the mock says, if it was asked.
    pub mock: Option<Stats>,
}

/// Whom to ask about memory and progress.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Process trees, by any name.
    pub memory_of: Vec<(String, i32)>,
    /// The mock behind the target.
    pub mock: Option<SocketAddr>,
}

/// Streams that stay open until this is dropped.
#[derive(Debug)]
pub struct Held {
    tasks: JoinSet<()>,
    counts: Rc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: Cell<usize>,
    lost: Cell<usize>,
}

/// Opens them all and returns when each is open or lost, at most `patience` after the ramp.
pub async fn open(plan: Plan, patience: Duration) -> Held {
    let deadline = Instant::now() + plan.ramp + patience;
    let counts = Rc::new(Counts::default());
    let plan = Rc::new(plan);
    let mut tasks = JoinSet::new();
    for i in 0..plan.streams {
        let (plan, counts) = (Rc::clone(&plan), Rc::clone(&counts));
        tasks.spawn_local(async move {
            sleep(plan.ramp.mul_f64(i as f64 / plan.streams as f64)).await;
            let opened = Cell::new(false);
            let kept = keep(&plan, i as u64, || {
                opened.set(true);
                counts.open.set(counts.open.get() + 1);
            })
            .await;
            // It came back: whatever the reason, that stream is no longer held.
            drop(kept);
            counts.lost.set(counts.lost.get() + 1);
            if opened.get() {
                counts.open.set(counts.open.get() - 1);
            }
        });
    }
    while counts.open.get() + counts.lost.get() < plan.streams && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
    }
    Held { tasks, counts }
}

impl Held {
    /// How it stands now.
    ///
    /// # Errors
    /// When a process does not live or the mock does not answer.
    pub async fn count(&self, watch: &Watch) -> io::Result<Count> {
        let pss = |(name, pid): &(String, i32)| Ok((name.clone(), Tree::of(*pid)?.pss_kb()?));
        let mock = match watch.mock {
            Some(mock) => Some(mock_api::stats(mock).await?),
            None => None,
        };
        Ok(Count {
            open: self.counts.open.get(),
            lost: self.counts.lost.get(),
            pss_kb: watch.memory_of.iter().map(pss).collect::<io::Result<_>>()?,
            mock,
        })
    }

    /// Closes them all.
    pub async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn keep(plan: &Plan, rid: u64, opened: impl FnOnce()) -> io::Result<()> {
    let mut conn = Conn::open(plan.target.addr, plan.stalled_receive_buffer_bytes).await?;
    conn.write(&plan.target.request(rid)).await?;
    if plan.stalled_receive_buffer_bytes.is_some() {
        opened();
        // The mock's count says whether the gateway has kept it.
        return std::future::pending().await;
    }
    let (mut reader, mut opened) = (Reader::default(), Some(opened));
    loop {
        let mut got = false;
        if conn.read(&mut reader, |_, _| got = true).await? != Progress::Open {
            return Err(io::Error::other("the stream ended"));
        }
        if got && let Some(opened) = opened.take() {
            opened();
        }
    }
}
