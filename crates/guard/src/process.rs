//! Processes as the kernel shows them: who they are, whose children they are, and ending them with all their descendants.
//!
//! A pid alone names nobody: it is used again. A pid with its start time and the boot it belongs to does.

use std::fs;

use rustix::process::{Pid, Signal, WaitIdOptions};
use serde::{Deserialize, Serialize};

/// Descendants looked at, at most.
const DESCENDANTS_MAX: usize = 10_000;
/// How often killing is tried before descendants that multiply or do not die are left alone.
const KILL_ROUNDS_MAX: usize = 400;
/// Between two of them.
const KILL_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// One process, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    /// Clock ticks after boot: field 22 of `/proc/PID/stat`.
    pub start: u64,
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub state: u8,
    pub parent: i32,
    pub session: i32,
    pub start: u64,
}

pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name is in parentheses and may hold anything, parentheses and blanks too.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

impl Identity {
    pub fn of(pid: i32) -> Option<Self> {
        Some(Identity { pid, start: stat(pid)?.start })
    }

    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether this very process still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        stat(self.pid)
            .is_some_and(|stat| stat.start == self.start && stat.state != b'Z' && stat.state != b'X')
    }
}

/// Names the boot: pids and start times of another one mean nothing.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// Seconds since boot, time asleep included: the same for every process.
pub fn uptime_seconds() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0)
}

pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) {
        // It may be gone already, which is what was wanted.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// To every process of a group.
pub fn signal_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// The children of a process.
fn children(pid: i32) -> Vec<i32> {
    let listed = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for thread in listed {
        let Ok(text) = fs::read_to_string(thread.path().join("children")) else {
            return children_by_walk(pid);
        };
        found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// Kernels may be built without lists of children.
fn children_by_walk(pid: i32) -> Vec<i32> {
    all_pids().filter(|other| stat(*other).is_some_and(|stat| stat.parent == pid)).collect()
}

fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

/// Every descendant. Whoever leaves its parent is inherited by the nearest subreaper, which a guardian is, so that none
/// escapes.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut at = 0;
    while let Some(next) = found.get(at).copied().filter(|_| found.len() < DESCENDANTS_MAX) {
        found.extend(children(next));
        at += 1;
    }
    found
}

/// Ends every descendant of this process by force, and takes their remains away. False: some are still there.
pub fn kill_descendants() -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    for round in 0..KILL_ROUNDS_MAX {
        let found = descendants(own);
        if found.is_empty() {
            return true;
        }
        for pid in &found {
            signal(*pid, Signal::KILL);
        }
        reap(&found);
        if round > 0 {
            std::thread::sleep(KILL_PAUSE);
        }
    }
    false
}

/// Takes the remains of children away that a task has left to us; not the task's own: its status is still wanted.
pub fn reap_strays(own: i32, task: i32) {
    let strays: Vec<i32> = children(own).into_iter().filter(|pid| *pid != task).collect();
    reap(&strays);
}

/// Takes the remains of ended children away.
pub fn reap(pids: &[i32]) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let wanted = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = rustix::process::waitid(rustix::process::WaitId::Pid(pid), wanted);
    }
}

/// Ends what a dead guardian's task left: the processes of its session, and those that carry its mark in their environment.
pub fn kill_marked(session: Option<Identity>, mark: &str) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mark = format!("{}={mark}", crate::stage::MARK);
    let mut ended = Vec::new();
    for pid in all_pids().filter(|pid| *pid != own && *pid > 1) {
        let in_session = session.is_some_and(|leader| {
            // The session's number cannot be used again while anybody is left in it.
            stat(pid).is_some_and(|stat| stat.session == leader.pid && stat.start >= leader.start)
        });
        if in_session || is_marked(pid, mark.as_bytes()) {
            signal(pid, Signal::KILL);
            ended.push(pid);
        }
    }
    // Gone before the job is given back, or as good as.
    for _ in 0..KILL_ROUNDS_MAX {
        if ended.iter().all(|pid| stat(*pid).is_none_or(|stat| stat.state == b'Z')) {
            return;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

fn is_marked(pid: i32, mark: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == mark)
}

/// Memory that processes hold together, in bytes.
pub fn memory_bytes(pids: &[i32]) -> u64 {
    let page = rustix::param::page_size() as u64;
    let pages = |pid: &i32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    pids.iter().filter_map(pages).sum::<u64>() * page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let fields = "7 (a b) c) S 3 4 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 999 1 1";
        assert_eq!(parse_stat(fields), Some(Stat { state: b'S', parent: 3, session: 5, start: 999 }));
        assert_eq!(parse_stat("7 (x"), None);
    }

    #[test]
    fn a_process_is_known_by_its_start_time() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        assert!(!Identity { start: own.start + 1, ..own }.is_alive());
    }
}
