//! Tests of the disk store, by subject. What they share: a folder, small segments, a disk that fails.

mod checkpoint;
mod conform;
mod crash;
mod failure;
mod folder;
mod spares;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::io::Io;
use super::*;
use crate::Space;

/// Small enough for many segments and checkpoints in a short test.
fn small(path: &Path) -> DiskOptions {
    DiskOptions {
        segment_bytes: 4096,
        checkpoint_bytes: 12 << 10,
        log_bytes_max: 64 << 10,
        ..DiskOptions::new(path)
    }
}

fn put(key: impl Into<String>, value: impl Into<String>) -> Batch {
    let mut batch = Batch::default();
    batch.put(Space::Header, key.into(), value.into());
    batch
}

fn headers(store: &mut DiskStore) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut all = Vec::new();
    let load = store.load(&mut |key, value| {
        all.push((text(key), text(value)));
        Ok(())
    });
    load.unwrap();
    all.sort();
    all
}

fn keys(store: &mut DiskStore) -> Vec<String> {
    headers(store).into_iter().map(|(key, _)| key).collect()
}

/// The log's files, oldest first.
fn segments(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A disk that fails as told.
struct Faulty {
    /// Bytes that may still be written to the log; below zero: no limit.
    room: AtomicI64,
    /// At most this many bytes per write; zero: no limit.
    short: AtomicI64,
    fail_sync: AtomicBool,
    fail_base: AtomicBool,
    base_room: AtomicI64,
}

impl Faulty {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            room: AtomicI64::new(-1),
            short: AtomicI64::new(0),
            fail_sync: AtomicBool::new(false),
            fail_base: AtomicBool::new(false),
            base_room: AtomicI64::new(i64::MAX),
        })
    }
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

impl Io for Faulty {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let room = self.room.load(Ordering::SeqCst);
        let short = self.short.load(Ordering::SeqCst);
        let mut length = bytes.len();
        if short > 0 {
            length = length.min(short as usize);
        }
        if room >= 0 {
            length = length.min(room as usize);
            if length == 0 {
                return Err(full());
            }
            self.room.fetch_sub(length as i64, Ordering::SeqCst);
        }
        file.write_at(&bytes[..length], offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        file.sync_data()
    }

    fn available(&self, _: &Path) -> io::Result<u64> {
        Ok(self.base_room.load(Ordering::SeqCst) as u64)
    }

    fn before_base_write(&self) -> io::Result<()> {
        if self.fail_base.load(Ordering::SeqCst) { Err(full()) } else { Ok(()) }
    }
}
