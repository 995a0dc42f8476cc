//! Watching what a context does: how long, how much processor time and memory all its processes use together, what lies in
//! its folder. The kernel limits each process; what many of them use is only seen here.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::clock;

/// Between looks. What is over sooner is not looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Ticks of the processor clock in a second, as `/proc` counts.
const TICKS: u64 = 100;
/// Processes of one context that are looked at.
const PROCESSES_MAX: usize = 10_000;

/// What may be used meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Limits<'a> {
    /// The first process; none: there is nothing to watch but the time.
    pub(super) pid: Option<u32>,
    pub(super) timeout: Duration,
    /// Processor time from now on; none: not limited.
    pub(super) cpu: Option<Duration>,
    pub(super) memory_bytes: u64,
    pub(super) processes: u64,
    pub(super) folder: &'a Path,
    pub(super) folder_bytes: u64,
    pub(super) folder_files: u64,
}

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Time,
    Memory,
    Processes,
    Disk,
}

impl Excess {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Excess::Time => "timeout",
            Excess::Memory => "too much memory (memoryMb)",
            Excess::Processes => "too many processes",
            Excess::Disk => "too much in its folder",
        }
    }
}

impl Limits<'_> {
    /// Waits for something as long as the limits are kept.
    pub(super) async fn hold<T>(&self, doing: impl Future<Output = T>) -> Result<T, Excess> {
        let mut doing = std::pin::pin!(doing);
        let began = clock::instant();
        let pause = || LOOK_EVERY.min(self.timeout.saturating_sub(began.elapsed()));
        if let Ok(done) = tokio::time::timeout(pause(), &mut doing).await {
            return Ok(done);
        }
        let mut used_before = None;
        loop {
            if began.elapsed() >= self.timeout {
                return Err(Excess::Time);
            }
            let used = Used::of(self.pid);
            // Counted from the first look on: what it had used before belongs to other jobs.
            let used_before = *used_before.get_or_insert(used.cpu);
            if self.cpu.is_some_and(|most| used.cpu.saturating_sub(used_before) >= most) {
                return Err(Excess::Time);
            }
            if used.memory_bytes > self.memory_bytes && used.memory_together() > self.memory_bytes {
                return Err(Excess::Memory);
            }
            if used.pids.len() as u64 > self.processes {
                return Err(Excess::Processes);
            }
            if self.is_folder_full() {
                return Err(Excess::Disk);
            }
            if let Ok(done) = tokio::time::timeout(pause(), &mut doing).await {
                return Ok(done);
            }
        }
    }

    /// Whether there is more in the folder than may be.
    pub(super) fn is_folder_full(&self) -> bool {
        let (mut bytes, mut files) = (0, 0);
        let mut folders = vec![self.folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                files += 1;
                let Ok(about) = entry.metadata() else { continue };
                if about.is_dir() {
                    folders.push(entry.path());
                } else {
                    bytes += std::os::unix::fs::MetadataExt::blocks(&about) * 512;
                }
                if bytes > self.folder_bytes || files > self.folder_files {
                    return true;
                }
            }
        }
        false
    }
}

/// What a process and all that come from it have used.
#[derive(Debug, Default)]
pub(super) struct Used {
    pids: Vec<u32>,
    cpu: Duration,
    memory_bytes: u64,
}

impl Used {
    pub(super) fn of(first: Option<u32>) -> Self {
        let pids = tree(first);
        let ticks: u64 = pids.iter().copied().map(ticks_of).sum();
        let page = rustix::param::page_size() as u64;
        let pages = |pid: &u32| field(&format!("/proc/{pid}/statm"), 1);
        let memory_bytes = pids.iter().filter_map(pages).sum::<u64>() * page;
        Used { pids, cpu: Duration::from_millis(ticks * 1000 / TICKS), memory_bytes }
    }

    /// The memory again, what several share counted once: that takes longer to find out.
    fn memory_together(&self) -> u64 {
        let share = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = text.lines().find(|line| line.starts_with("Pss:"))?;
            line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
        };
        let shares: Vec<u64> = self.pids.iter().filter_map(share).collect();
        if shares.is_empty() { self.memory_bytes } else { shares.into_iter().sum::<u64>() << 10 }
    }
}

/// How many processes there are.
pub(super) fn processes(first: Option<u32>) -> usize {
    tree(first).len()
}

fn tree(first: Option<u32>) -> Vec<u32> {
    let mut pids: Vec<u32> = first.into_iter().collect();
    let mut at = 0;
    while let Some(pid) = pids.get(at).copied()
        && pids.len() < PROCESSES_MAX
    {
        at += 1;
        pids.extend(children(Some(pid)));
    }
    pids
}

/// The processes that a process has started.
pub(super) fn children(pid: Option<u32>) -> Vec<u32> {
    let mut pids = Vec::new();
    let threads = pid.and_then(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    // Each thread has those that it started.
    for thread in threads.into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        pids.extend(text.split_ascii_whitespace().filter_map(|text| text.parse::<u32>().ok()));
    }
    pids
}

fn field(path: &str, at: usize) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

fn ticks_of(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may hold anything: the fields are behind the last one.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(folder: &Path) -> Limits<'_> {
        Limits {
            pid: Some(std::process::id()),
            timeout: Duration::from_secs(60),
            cpu: None,
            memory_bytes: u64::MAX,
            processes: u64::MAX,
            folder,
            folder_bytes: 8192,
            folder_files: 3,
        }
    }

    #[tokio::test]
    async fn what_keeps_to_its_limits_goes_on_and_what_does_not_is_told_why() {
        let folder = tempfile::tempdir().unwrap();
        let limits = limits(folder.path());
        let long = || tokio::time::sleep(Duration::from_secs(3600));
        assert_eq!(limits.hold(std::future::ready(7)).await, Ok(7));
        let short = Limits { timeout: Duration::from_millis(20), ..limits.clone() };
        assert_eq!(short.hold(long()).await, Err(Excess::Time));
        let busy = Limits { cpu: Some(Duration::ZERO), ..limits.clone() };
        assert_eq!(busy.hold(long()).await, Err(Excess::Time));
        let small = Limits { memory_bytes: 4096, ..limits.clone() };
        assert_eq!(small.hold(long()).await, Err(Excess::Memory));
        let alone = Limits { processes: 0, ..limits.clone() };
        assert_eq!(alone.hold(long()).await, Err(Excess::Processes));
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/a"), [1; 8192]).unwrap();
        assert!(!limits.is_folder_full());
        fs::write(folder.path().join("sub/b"), [1; 1]).unwrap();
        assert_eq!(limits.hold(long()).await, Err(Excess::Disk));
        fs::write(folder.path().join("sub/b"), []).unwrap();
        assert!(!limits.is_folder_full(), "three files, as many as may be");
        fs::write(folder.path().join("c"), []).unwrap();
        assert!(limits.is_folder_full());
    }

    #[test]
    fn all_that_come_from_a_process_are_counted() {
        use std::os::unix::process::CommandExt;

        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = [0; 1];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert_eq!(processes(Some(child.id())), 3);
        assert_eq!(processes(None), 0);
        assert!(Used::of(Some(child.id())).memory_bytes > 0);
        let group = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
