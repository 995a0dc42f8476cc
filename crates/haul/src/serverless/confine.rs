//! Confinement: `haul --confine SPEC PROGRAM ARGS...` restricts itself and then becomes the program. It is a stage of its
//! own because what restricts a process must run in it, and nothing here may be unsafe.
//!
//! The outer stage leaves the server's session and, where the kernel allows, its processes and its network; the inner one
//! takes limits and rules upon itself and executes the program. When the outer one is killed, all of them end.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};

/// The first argument that asks for this.
pub(crate) const FLAG: &str = "--confine";
/// The program could not be started as it must be: an unexpected error (`EX_SOFTWARE`).
const BROKEN: u8 = 70;
/// What every program may read and execute.
const READ: &[&str] = &["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/nix/store"];
/// Files that interpreters look at.
const READ_FILES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/php",
    "/etc/alternatives",
    "/etc/python3",
    "/etc/python3.11",
    "/etc/mime.types",
    "/dev/zero",
    "/dev/urandom",
    "/dev/random",
];
/// What names on the network are looked up with.
const READ_NETWORK: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/services",
    "/run/systemd/resolve",
];
const WRITE_FILES: &[&str] = &["/dev/null"];

/// What a program may do.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Confinement {
    /// The folder that is its own.
    pub(crate) folder: PathBuf,
    pub(crate) memory_bytes: u64,
    /// Processor seconds of a process.
    pub(crate) cpu_seconds: u64,
    pub(crate) processes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) open_files: u64,
    pub(crate) network: bool,
    /// The user to become, if the server may choose.
    pub(crate) user: Option<u32>,
    /// Further places to read from: where the interpreter is.
    pub(crate) read: Vec<PathBuf>,
    /// Refuse to run if the kernel lacks a part.
    pub(crate) require: bool,
    /// The second stage.
    pub(crate) inner: bool,
    /// Only say what the kernel lacks.
    pub(crate) check: bool,
}

/// Runs the stage, if the command line asks for it.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != FLAG {
        return None;
    }
    let spec = args.next().and_then(|text| serde_json::from_str(text.to_str()?).ok());
    let rest: Vec<OsString> = args.collect();
    Some(match spec {
        Some(spec) => run(spec, &rest),
        None => ExitCode::from(BROKEN),
    })
}

fn run(mut spec: Confinement, program: &[OsString]) -> ExitCode {
    let mut lacks = Vec::new();
    if !spec.inner {
        // Nothing outlives the server, however it ends.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let _ = rustix::process::setsid();
        let apart = leave(spec.network, &mut lacks);
        if apart || spec.user.is_some() {
            spec.inner = true;
            return outer(&spec, program, &lacks);
        }
    }
    inner(&spec, program, lacks)
}

/// Leaves the server's processes and network: as root, or in a user namespace of its own.
fn leave(network: bool, lacks: &mut Vec<&'static str>) -> bool {
    let mut flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    if !network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    if unshare(flags).is_ok() {
        return true;
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if unshare(flags | CloneFlags::CLONE_NEWUSER).is_ok() {
        let written = std::fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")))
            .and_then(|()| std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")));
        if written.is_err() {
            lacks.push("user namespaces that can be mapped");
        }
        return true;
    }
    lacks.push("namespaces for processes and network");
    false
}

/// Starts the inner stage and ends as it ends.
fn outer(spec: &Confinement, program: &[OsString], lacks: &[&'static str]) -> ExitCode {
    if spec.require && !lacks.is_empty() {
        return ExitCode::from(BROKEN);
    }
    let Ok(text) = serde_json::to_string(spec) else { return ExitCode::from(BROKEN) };
    // Reached through the link, so that it need not be reachable for the user it runs as.
    let mut command = Command::new("/proc/self/exe");
    command.arg(FLAG).arg(text).args(program).stdin(Stdio::inherit());
    if let Some(user) = spec.user {
        // The standard library drops the supplementary groups when root becomes another user.
        command.uid(user).gid(user);
    }
    match command.status() {
        Ok(status) => match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => ExitCode::from(code),
            None => end_as_killed(),
        },
        Err(_) => ExitCode::from(BROKEN),
    }
}

/// Ends by a signal, as the inner stage did.
fn end_as_killed() -> ExitCode {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    ExitCode::from(BROKEN)
}

fn inner(spec: &Confinement, program: &[OsString], mut lacks: Vec<&'static str>) -> ExitCode {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    limit(spec);
    match restrict(spec) {
        Ok(status) if status.ruleset == RulesetStatus::FullyEnforced => {}
        Ok(status) if status.ruleset == RulesetStatus::PartiallyEnforced => lacks.push("a part of Landlock"),
        _ => lacks.push("Landlock"),
    }
    if rustix::thread::set_no_new_privs(true).is_err() {
        lacks.push("no_new_privs");
    }
    // Who stays root has nothing of it; it does not come back: no new privileges.
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    let _ = rustix::thread::set_capabilities(None, sets);
    if spec.check {
        let mut out = std::io::stdout();
        let _ = std::io::Write::write_all(&mut out, lacks.join(", ").as_bytes());
        return ExitCode::SUCCESS;
    }
    if spec.require && !lacks.is_empty() {
        return ExitCode::from(BROKEN);
    }
    let Some((first, rest)) = program.split_first() else { return ExitCode::from(BROKEN) };
    let error = Command::new(first).args(rest).exec();
    let mut told = std::io::stderr();
    let _ = std::io::Write::write_all(&mut told, format!("{}: {error}\n", first.display()).as_bytes());
    // As a shell says it: not found, or not executable.
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 2 } else { 1 })
}

fn limit(spec: &Confinement) {
    let set = |resource, value: u64, more: u64| {
        if value > 0 {
            let _ = setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value + more) });
        }
    };
    set(Resource::Data, spec.memory_bytes, 0);
    set(Resource::Cpu, spec.cpu_seconds, 1);
    set(Resource::Nproc, spec.processes, 0);
    set(Resource::Fsize, spec.file_bytes, 0);
    set(Resource::Nofile, spec.open_files, 0);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// The rules of the file system, of the network, and of signals.
fn restrict(spec: &Confinement) -> Result<RestrictionStatus, landlock::RulesetError> {
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?;
    if !spec.network {
        rules = rules.handle_access(AccessNet::from_all(abi))?;
    }
    let mut rules = rules.scope(Scope::from_all(abi))?.create()?;
    let read = AccessFs::from_read(abi);
    let file = AccessFs::ReadFile | AccessFs::Execute | AccessFs::ReadDir;
    for path in READ.iter().map(Path::new).chain(spec.read.iter().map(PathBuf::as_path)) {
        rules = allow(rules, path, read)?;
    }
    let network: &[&str] = if spec.network { READ_NETWORK } else { &[] };
    for path in READ_FILES.iter().chain(network) {
        rules = allow(rules, Path::new(path), file)?;
    }
    for path in WRITE_FILES {
        rules = allow(rules, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    allow(rules, &spec.folder, AccessFs::from_all(abi))?.restrict_self()
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(folder) = PathFd::new(path) else { return Ok(rules) };
    // Rights of a folder mean nothing on a file, and the kernel says so.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI::V6) };
    rules.add_rule(PathBeneath::new(folder, access))
}

/// What the kernel lacks for a full confinement; empty: nothing.
pub(crate) fn lacking(program: &Path) -> Result<String, std::io::Error> {
    let user = may_choose_user().then_some(super::context::FIRST_USER);
    let spec = Confinement { check: true, folder: std::env::temp_dir(), user, ..Confinement::default() };
    let text = serde_json::to_string(&spec)?;
    let output = Command::new(program).arg(FLAG).arg(text).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Ok("all of it: the confined stage does not start".to_owned());
    }
    let mut lacks = String::from_utf8_lossy(&output.stdout).into_owned();
    if user.is_none() && rustix::process::geteuid().is_root() {
        lacks.push_str(if lacks.is_empty() { "" } else { ", " });
        lacks.push_str("users for tenants");
    }
    Ok(lacks)
}

/// Whether programs can be run as users of their own: as root, where those users exist.
pub(crate) fn may_choose_user() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && has_users(&map)
}

/// Whether all users of tenants are within one range of a map of users.
fn has_users(map: &str) -> bool {
    let (first, count) = (u64::from(super::context::FIRST_USER), u64::from(super::context::USERS));
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(length))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        inside <= first && first + count <= inside + length
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_tenants_exist_where_the_map_has_them() {
        assert!(has_users("         0          0 4294967295\n"));
        for map in
            ["", "0 1000 1\n", "0 100000 65536\n", "0 0 1999999999", "1000000001 0 4000000000", "x y z"]
        {
            assert!(!has_users(map), "{map}");
        }
    }
}
