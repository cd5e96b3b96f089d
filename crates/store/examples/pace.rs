//! How many jobs a store accepts, and claims and finishes, in a second: one caller after another, and many at
//! once, who share syncs.
//!
//! Prints one line of JSON. Beside it stands what the disk can do: a file that is appended to and synced as often
//! as it goes. The directory to measure in is the first argument; without one it is the current directory's disk.
//!
//! Invariant: everything that is counted was synced.

#![expect(clippy::print_stdout, reason = "it reports")]

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use firsttoken_store::jobs::{End, NewJob};
use firsttoken_store::{Limits, Store};
use tokio::time::Instant;

/// How long each figure is measured.
const SPAN: Duration = Duration::from_secs(3);
/// A request of a few pages of text, and an answer.
const REQUEST_BYTES: usize = 4096;
const RESULT_BYTES: usize = 2048;
/// Callers at once.
const CALLERS: [usize; 3] = [1, 16, 128];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let at = std::env::args().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let folder = tempfile::tempdir_in(at)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let syncs = syncs_a_second(folder.path())?;
    let mut figures = vec![format!("\"syncs_per_s\":{syncs:.0}")];
    for callers in CALLERS {
        let path = folder.path().join(format!("{callers}.db"));
        let limits = Limits { jobs_per_tenant_max: 1 << 20, jobs_max: 1 << 20, ..Limits::default() };
        let store = Arc::new(Store::open(&path, limits, 0)?);
        let submitted = runtime.block_on(per_second(&store, callers, Task::Submit))?;
        let finished = runtime.block_on(per_second(&store, callers, Task::Finish))?;
        figures.push(format!(
            "\"callers_{callers}\":{{\"submits_per_s\":{submitted:.0},\"claims_and_finishes_per_s\":{finished:.0}}}"
        ));
    }
    println!("{{{}}}", figures.join(","));
    Ok(())
}

/// What is measured.
#[derive(Clone, Copy)]
enum Task {
    Submit,
    Finish,
}

/// How often all callers together do a task in a second.
async fn per_second(store: &Arc<Store>, callers: usize, task: Task) -> Outcome<f64> {
    let began = Instant::now();
    let mut work = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let store = Arc::clone(store);
        work.spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < SPAN && once(&store, task).await? {
                done += 1;
            }
            Ok(done)
        });
    }
    let done: Vec<Outcome<u32>> = work.join_all().await;
    let done = done.into_iter().sum::<Outcome<u32>>()?;
    Ok(f64::from(done) / began.elapsed().as_secs_f64())
}

/// Whether there was something to do.
async fn once(store: &Store, task: Task) -> Outcome<bool> {
    match task {
        Task::Submit => {
            let job = NewJob {
                tenant: "measured".to_owned(),
                key: None,
                request: vec![b'r'; REQUEST_BYTES],
                retry: true,
                webhook: None,
                ttl_ms: 1000,
            };
            store.jobs().submit(job, 0).await?;
        }
        Task::Finish => {
            let Some(claimed) = store.jobs().claim(0).await? else { return Ok(false) };
            let result = Some(vec![b'o'; RESULT_BYTES]);
            store.jobs().finish(claimed.lease, End::Succeeded, result, 0).await?;
        }
    }
    Ok(true)
}

/// How often a page is appended to a file and synced in a second.
fn syncs_a_second(folder: &Path) -> Outcome<f64> {
    let mut file = std::fs::File::create(folder.join("log"))?;
    let (began, mut done) = (Instant::now(), 0_u32);
    while began.elapsed() < SPAN {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        done += 1;
    }
    Ok(f64::from(done) / began.elapsed().as_secs_f64())
}
