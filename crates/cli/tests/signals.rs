//! Signals to the real binary.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A gateway that answers signals.
#[cfg(test)]
fn serve() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firsttoken"));
    command.args(["serve", "--sim", "--listen", "127.0.0.1:0"]).env_remove("FIRSTTOKEN_LOG");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // By the end of the greeting it listens to signals.
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("base_url")));
    child
}

/// The next line of the log that says this.
fn wait_for(log: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) {
    assert!(log.map_while(Result::ok).any(|line| line.contains(what)), "never said: {what}");
}

#[test]
fn a_second_signal_ends_at_once_and_loses_no_line_of_the_log() {
    let mut child = serve();
    let pid = Pid::from_child(&child);
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    kill_process(pid, Signal::HUP).unwrap();
    wait_for(&mut log, "no configuration to read again");
    kill_process(pid, Signal::TERM).unwrap();
    wait_for(&mut log, "a second signal ends at once");
    kill_process(pid, Signal::TERM).unwrap();
    wait_for(&mut log, "ending at once");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
