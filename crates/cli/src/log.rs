//! Where log lines go: into memory at once, and to standard error in batches, from a thread of its own.
//!
//! The event loops write a line for every request. A line that wakes another thread, or that is written
//! at once, costs the tokens of other streams more than all else about it; a batch costs one of each.
//!
//! Invariant: whoever logs never waits for standard error. What would not fit is dropped and counted,
//! and the count is told as soon as there is room.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait for a slow terminal or disk.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// How long the first line of a batch waits for others.
const BATCH: Duration = Duration::from_millis(10);
/// As of `nice`: 19 would be the last of all.
const NICENESS: i32 = 10;
/// How long the last lines may take when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    dropped_lines: u64,
    is_closing: bool,
    /// The last line is written.
    has_ended: bool,
}

#[derive(Default)]
struct Desk {
    pending: Mutex<Pending>,
    ended: Condvar,
}

/// Takes lines; cheap to clone.
#[derive(Clone)]
pub(crate) struct Lines {
    desk: Arc<Desk>,
    thread: Thread,
}

/// Writes what is left when it is dropped.
pub(crate) struct Guard(Lines);

/// Starts the thread that writes to `out`.
///
/// # Errors
/// If the system has no thread to give.
pub(crate) fn start(out: impl Write + Send + 'static) -> io::Result<(Lines, Guard)> {
    let desk = Arc::<Desk>::default();
    let theirs = desk.clone();
    let writing = move || {
        write_batches(&theirs, out);
        theirs.lock().has_ended = true;
        theirs.ended.notify_all();
    };
    let thread = std::thread::Builder::new().name("log".to_owned()).spawn(writing)?.thread().clone();
    let lines = Lines { desk, thread };
    Ok((lines.clone(), Guard(lines)))
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_batches(desk: &Desk, mut out: impl Write) {
    // Where there are fewer cores than threads, tokens go first; where it is not allowed, nothing is lost.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut batch = Vec::new();
    loop {
        std::thread::park();
        if !desk.lock().is_closing {
            std::thread::sleep(BATCH);
        }
        let (dropped_lines, is_closing) = {
            let mut pending = desk.lock();
            std::mem::swap(&mut batch, &mut pending.bytes);
            (std::mem::take(&mut pending.dropped_lines), pending.is_closing)
        };
        if dropped_lines > 0 {
            batch.extend_from_slice(format!("{dropped_lines} log lines were dropped here\n").as_bytes());
        }
        // When standard error is gone, nobody is left to be told.
        let _ = out.write_all(&batch);
        batch.clear();
        if is_closing {
            return;
        }
    }
}

impl Lines {
    fn push(&self, line: &[u8]) {
        let mut pending = self.desk.lock();
        let is_first = pending.bytes.is_empty();
        if pending.bytes.len() + line.len() > PENDING_BYTES_MAX {
            pending.dropped_lines += 1;
        } else {
            pending.bytes.extend_from_slice(line);
        }
        drop(pending);
        if is_first {
            self.thread.unpark();
        }
    }

    /// Writes what is left, unless that takes too long. What is logged from then on is lost.
    pub(crate) fn end(&self) {
        self.desk.lock().is_closing = true;
        self.thread.unpark();
        let left = |pending: &mut Pending| !pending.has_ended;
        drop(self.desk.ended.wait_timeout_while(self.desk.lock(), LAST_WORDS, left));
    }
}

impl Guard {
    /// Where the lines go.
    pub(crate) fn lines(&self) -> Lines {
        self.0.clone()
    }
}

impl Write for Lines {
    /// The formatter writes a line at a time.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// What a slow terminal looks like: it takes nothing until it is let go.
    struct Gate(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_written_by_the_end() {
        let (open, gate) = mpsc::channel();
        let written = Arc::default();
        let (mut lines, guard) = start(Gate(gate, Arc::clone(&written))).unwrap();
        drop(open);
        for n in 0..1000 {
            lines.write_all(format!("line {n}\n").as_bytes()).unwrap();
        }
        drop(guard);
        let expected: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        assert_eq!(String::from_utf8(written.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn a_stuck_terminal_stops_nobody_and_is_told_what_it_missed() {
        let (open, gate) = mpsc::channel();
        let written = Arc::default();
        let (mut lines, guard) = start(Gate(gate, Arc::clone(&written))).unwrap();
        let line = [b'x'; 1 << 20];
        for _ in 0..12 {
            lines.write_all(&line).unwrap();
        }
        drop(open);
        drop(guard);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.ends_with(" log lines were dropped here\n"), "{} bytes", text.len());
        assert!(text.len() <= 2 * PENDING_BYTES_MAX + 100, "{} bytes", text.len());
    }
}
