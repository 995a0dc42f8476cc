//! The program that guardians are: the small one that this binary carries, or this binary itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, SealFlags};

/// Empty in builds that are not for release.
const CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/haul-guard"));

/// What to execute.
pub(super) struct Program {
    /// None: this binary.
    small: Option<OwnedFd>,
}

impl Program {
    /// Where files in memory may not be executed, this binary does it too, with more memory.
    pub(super) fn new() -> Self {
        Program { small: (!CARRIED.is_empty()).then(unpack).and_then(Result::ok) }
    }

    /// A guardian.
    pub(super) fn command(&self) -> Command {
        let path = match &self.small {
            Some(file) => format!("/proc/self/fd/{}", file.as_raw_fd()),
            None => "/proc/self/exe".to_owned(),
        };
        let mut command = Command::new(path);
        command.arg0("haul").arg(haul_guard::WORD);
        command
    }
}

/// A file in memory that nobody can change any more.
fn unpack() -> io::Result<OwnedFd> {
    let name = "haul-guard";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file: File = rustix::fs::memfd_create(name, flags)?.into();
    file.write_all(CARRIED)?;
    // A file that is open for writing cannot be executed.
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(File::open(path)?.into())
}
