//! The few operations on files that can fail in ways worth testing, behind a trait: the real ones here,
//! and in the tests ones that find the disk full or a sync failing on demand.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// File operations of the log, and the gate in front of the base's.
pub(crate) trait Io: Send + Sync {
    /// Writes some of `bytes` at `offset`, returns how many.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    /// Makes the file's data durable.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Reserves room for `bytes` from the start of the file; what was not written reads as zero.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // The file system cannot reserve: a sparse file works, but may find the disk full later.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(bytes),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes a writer may still use on the disk under `path`.
    fn available(&self, path: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(path)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Asked before every write to the base: a test makes it fail.
    fn before_base_write(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The operating system's.
pub(crate) struct RealIo;

impl Io for RealIo {}

/// Whether the error means that there is no room, now or for this user or this file.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all_at(io: &dyn Io, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut rest = bytes;
    let mut offset = offset;
    while !rest.is_empty() {
        match io.write_at(file, rest, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                rest = rest.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
