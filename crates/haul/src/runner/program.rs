//! The program that guardians are: the small one that this binary carries, or this binary itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Empty in builds that are not for release.
const CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/haul-guard"));

/// What to execute.
pub(super) struct Program {
    /// None: this binary.
    small: Option<OwnedFd>,
}

impl Program {
    pub(super) fn new() -> Self {
        Program { small: (!CARRIED.is_empty()).then(unpack).and_then(Result::ok) }
    }

    /// Starts a guardian, with pipes to talk to it. Where files in memory may not be executed, this binary is one too, with
    /// more memory.
    pub(super) fn start(&mut self) -> io::Result<Child> {
        match self.spawn() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.small.take().is_some() => {
                self.spawn()
            }
            spawned => spawned,
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let path = match &self.small {
            Some(file) => format!("/proc/self/fd/{}", file.as_raw_fd()),
            None => "/proc/self/exe".to_owned(),
        };
        Command::new(path)
            .arg0("haul")
            .arg(haul_guard::WORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    }
}

/// A file in memory that nobody can change any more.
fn unpack() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match rustix::fs::memfd_create("haul-guard", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 nobody had to say so.
        Err(Errno::INVAL) => rustix::fs::memfd_create("haul-guard", flags),
        made => made,
    };
    let mut file: File = made?.into();
    file.write_all(CARRIED)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    // A file that is open for writing cannot be executed, so it is opened again.
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}
