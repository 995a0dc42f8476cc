//! The last step before a task's command: a process of this binary that becomes the leader of a session, ties its life to
//! its guardian's, takes its limits on, and then turns into the command. Done here because the standard library has no
//! safe way to do it between fork and exec.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, Signal};

use super::plan::Limits;

/// The environment variable by which the processes of one run are known.
pub(super) const MARK: &str = "HAUL_RUN";
/// Settings of our allocator that keep a guardian small: it would take three huge pages, 6 MB, before its first job.
pub(super) const SMALL: [(&str, &str); 2] =
    [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_ARENA_EAGER_COMMIT", "0")];
/// The kernel's limit is above the guardian's by this and three times that, so that the guardian sees it first and names it.
const DATA_ROOM: u64 = 512 << 20;
/// What a shell answers when a command cannot be run.
const NOT_RUN: u8 = 127;

/// `GUARDIAN-PID LIMITS-JSON COMMAND ARGS...`.
pub(super) fn run(args: &[OsString]) -> ExitCode {
    let [guardian, limits, command, rest @ ..] = args else { return ExitCode::from(NOT_RUN) };
    let _ = rustix::process::setsid();
    let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    // Whoever died before the tie was made cannot take us along any more.
    if tied.is_err() || parent.as_deref() != guardian.to_str() {
        return ExitCode::from(NOT_RUN);
    }
    let limits: Limits = limits.to_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    take_on(&limits);
    // When memory runs out, tasks go before guardians and servers.
    drop(std::fs::write("/proc/self/oom_score_adj", "500"));
    let mut command = Command::new(command);
    let error =
        SMALL.iter().fold(&mut command, |command, (name, _)| command.env_remove(name)).args(rest).exec();
    drop(writeln!(
        std::io::stderr(),
        "haul: {} cannot be run: {error}",
        command.get_program().to_string_lossy()
    ));
    ExitCode::from(NOT_RUN)
}

fn take_on(limits: &Limits) {
    let data = limits.memory_bytes.map(|bytes| bytes.saturating_mul(4).saturating_add(DATA_ROOM));
    let wanted = [
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.files),
        (Resource::As, limits.address_bytes),
        // The guardian watches memory and names the limit; this stops what grows faster than it looks.
        (Resource::Data, data),
        (Resource::Core, Some(0)),
    ];
    for (resource, limit) in wanted {
        let Some(limit) = limit else { continue };
        // A first signal at the limit, the end one second of processor time later.
        let maximum = if resource == Resource::Cpu { limit + 1 } else { limit };
        let _ = rustix::process::setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(maximum) });
    }
}
