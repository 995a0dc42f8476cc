//! The last step before a task's command, in the new process between fork and exec: it becomes the leader of a session,
//! ties its life to its parent's, and takes its limits on.
//!
//! The only unsafe code there is: only the new process itself can do these things, and a program in between that does them
//! and then turns into the command costs as much as the command's own start (docs/decisions/0007-a-small-guardian.md).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::plan::Limits;

/// The environment variable by which the processes of one run are known.
pub const MARK: &str = "HAUL_RUN";
/// The kernel's limit is above the guardian's by this and three times that, so that the guardian sees it first and names it.
const DATA_ROOM: u64 = 512 << 20;

/// Lets the command begin as the leader of a session that ends with the thread that starts it, within these limits.
#[expect(unsafe_code, reason = "there is no safe way to run code between fork and exec")]
pub fn prepare(command: &mut Command, limits: &Limits) {
    let parent = rustix::process::getpid();
    let limits = resources(limits);
    // SAFETY: `enter` makes only system calls, through `rustix`, which makes them directly; it allocates nothing and takes
    // no lock, so that it does not matter what other threads were doing at the fork.
    unsafe { command.pre_exec(move || enter(parent, &limits)) };
}

/// In the new process: no memory may be allocated here, and no lock taken.
fn enter(parent: Pid, limits: &[(Resource, Option<Rlimit>)]) -> io::Result<()> {
    let _ = rustix::process::setsid();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Who died before the tie was made cannot take us along any more.
    if rustix::process::getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    for (resource, limit) in limits {
        if let Some(limit) = limit {
            let _ = rustix::process::setrlimit(*resource, *limit);
        }
    }
    // When memory runs out, tasks go before guardians and servers.
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY, Mode::empty()) {
        let _ = rustix::io::write(file, b"500");
    }
    Ok(())
}

fn resources(limits: &Limits) -> [(Resource, Option<Rlimit>); 6] {
    let data = limits.memory_bytes.map(|bytes| bytes.saturating_mul(4).saturating_add(DATA_ROOM));
    let exactly = |limit: u64| Rlimit { current: Some(limit), maximum: Some(limit) };
    // A first signal at the limit, the end one second of processor time later.
    let cpu = |limit: u64| Rlimit { current: Some(limit), maximum: Some(limit.saturating_add(1)) };
    [
        (Resource::Cpu, limits.cpu_seconds.map(cpu)),
        (Resource::Fsize, limits.file_bytes.map(exactly)),
        (Resource::Nofile, limits.files.map(exactly)),
        (Resource::As, limits.address_bytes.map(exactly)),
        // The guardian watches memory and names the limit; this stops what grows faster than it looks.
        (Resource::Data, data.map(exactly)),
        (Resource::Core, Some(exactly(0))),
    ]
}
