//! CPU time and memory of a process and all its descendants, and how busy the machine is.

use std::collections::HashMap;
use std::fs;
use std::io;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// A process and its descendants, as they were when it was looked up.
#[derive(Clone, Debug)]
pub struct Tree {
    pids: Vec<i32>,
}

impl Tree {
    /// Looks the tree up now.
    ///
    /// # Errors
    /// When `/proc` cannot be read or `root` does not live.
    pub fn of(root: i32) -> io::Result<Self> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        let mut alive = false;
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            let Some(parent) = parent_of(pid) else { continue };
            alive |= pid == root;
            children.entry(parent).or_default().push(pid);
        }
        if !alive {
            return Err(io::Error::other(format!("process {root} does not live")));
        }
        let (mut pids, mut todo) = (Vec::new(), vec![root]);
        while let Some(pid) = todo.pop() {
            pids.push(pid);
            todo.extend(children.remove(&pid).unwrap_or_default());
        }
        Ok(Self { pids })
    }

    /// User and system time of all threads so far, ns, to the nanosecond and not to the tick.
    ///
    /// # Errors
    /// When one of the processes has ended, because its time would be lost.
    pub fn cpu_ns(&self) -> io::Result<u64> {
        self.pids.iter().map(|pid| cpu_ns_of(*pid)).sum()
    }

    /// Resident memory, kB, with shared pages counted once (PSS).
    ///
    /// # Errors
    /// When one of the processes has ended.
    pub fn pss_kb(&self) -> io::Result<u64> {
        self.pids.iter().map(|pid| pss_kb_of(*pid)).sum()
    }
}

/// CPU time that this process has used, ns.
pub fn own_cpu_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(0, crate::clock::ns)
}

/// CPU time that all CPUs of the machine have spent working, ns (to the tick).
///
/// # Errors
/// When `/proc/stat` cannot be read.
pub fn machine_busy_ns() -> io::Result<u64> {
    const TICK_NS: u64 = 10_000_000;
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy = ticks.iter().take(8).sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>();
    Ok(busy * TICK_NS)
}

/// Raises the limit on open files to what is allowed, and says what that is.
///
/// # Errors
/// When the limit cannot be read or raised.
pub fn raise_open_files() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

fn cpu_ns_of(pid: i32) -> io::Result<u64> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid))?;
    Ok(crate::clock::ns(clock_gettime(clock)?))
}

fn pss_kb_of(pid: i32) -> io::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path)?;
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_err(|e| io::Error::other(format!("{path}: Pss: {e}")))
}

/// The fourth field of `stat`; the second may hold spaces and brackets.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_in_its_parents_tree() -> io::Result<()> {
        let mut child = std::process::Command::new("sleep").arg("5").spawn()?;
        let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let tree = Tree::of(own)?;
        let child_pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        assert!(tree.pids.contains(&child_pid));
        assert!(tree.cpu_ns()? > 0 && tree.pss_kb()? > 0 && machine_busy_ns()? > 0);
        child.kill()?;
        child.wait()?;
        assert!(Tree::of(child_pid).is_err());
        Ok(())
    }
}
