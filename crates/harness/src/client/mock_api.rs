//! What the mock says about itself: its counts and its ledger.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::http1::{Conn, Progress, Reader};

/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(20);

/// Counts of the mock since its last reset.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Stats {
    /// Requests that have not ended.
    pub running: u64,
    /// Bytes written to those.
    pub bytes_running: u64,
    /// The most written to one of those.
    pub bytes_running_max: u64,
    /// Tokens written to all.
    pub tokens: u64,
    /// Ended requests that the ledger had no room for.
    pub log_lines_lost: u64,
}

/// How a request stands at the mock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Complete.
    Done,
    /// The peer left; noticed at this time, ns.
    Aborted(u64),
    /// Still going.
    Running,
}

/// Counts of the mock.
///
/// # Errors
/// When it does not answer.
pub async fn stats(mock: SocketAddr) -> io::Result<Stats> {
    let body = call(mock, "GET", "/stats").await?;
    serde_json::from_slice(&body).map_err(io::Error::other)
}

/// Forgets what has ended.
///
/// # Errors
/// When it does not answer.
pub async fn reset(mock: SocketAddr) -> io::Result<()> {
    call(mock, "POST", "/reset").await.map(|_| ())
}

/// Waits until nothing runs, at most so long; how many still do.
///
/// # Errors
/// When the mock does not answer.
pub async fn wait_idle(mock: SocketAddr, at_most: Duration) -> io::Result<u64> {
    let deadline = Instant::now() + at_most;
    loop {
        let running = stats(mock).await?.running;
        if running == 0 || Instant::now() >= deadline {
            return Ok(running);
        }
        sleep(POLL).await;
    }
}

/// What became of each request, by id; several of one id if it was retried.
///
/// # Errors
/// When the mock does not answer, or its ledger is not complete.
pub async fn log(mock: SocketAddr) -> io::Result<HashMap<u64, Vec<End>>> {
    let lost = stats(mock).await?.log_lines_lost;
    if lost > 0 {
        return Err(io::Error::other(format!("the mock's ledger lost {lost} lines: reset it more often")));
    }
    let body = call(mock, "GET", "/log").await?;
    let mut by_id: HashMap<u64, Vec<End>> = HashMap::new();
    for line in String::from_utf8_lossy(&body).lines() {
        let bad = || io::Error::other(format!("the mock's ledger: `{line}`"));
        let mut fields = line.split(' ');
        let rid = fields.next().and_then(|f| f.parse().ok()).ok_or_else(bad)?;
        let (end, ns) = (fields.next(), fields.next());
        let end = match end {
            Some("done") => End::Done,
            Some("running") => End::Running,
            Some("aborted") => End::Aborted(ns.and_then(|f| f.parse().ok()).ok_or_else(bad)?),
            _ => return Err(bad()),
        };
        by_id.entry(rid).or_default().push(end);
    }
    Ok(by_id)
}

async fn call(addr: SocketAddr, method: &str, path: &str) -> io::Result<Vec<u8>> {
    let mut conn = Conn::open(addr, None).await?;
    conn.write(format!("{method} {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-length: 0\r\n\r\n").as_bytes())
        .await?;
    let (mut reader, mut body) = (Reader::default(), Vec::new());
    while conn.read(&mut reader, |_, piece| body.extend_from_slice(piece)).await? == Progress::Open {}
    match reader.status() {
        200 => Ok(body),
        status => Err(io::Error::other(format!("mock {path}: status {status}"))),
    }
}
