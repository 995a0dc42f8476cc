//! What the disk can do: bytes appended to a file and synced, over and over, without any server.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bytes::BytesMut;

use super::driver::Desk;
use super::load::Worked;
use super::server::Spent;
use crate::clock;

/// The file is written once before, so that no sync has to write its length too, and from its start again at its end.
const FILE_BYTES: usize = 64 << 20;

/// A file to append to.
pub(super) struct Tape {
    file: File,
    at: usize,
}

impl Tape {
    pub(super) fn new(folder: &Path) -> anyhow::Result<Tape> {
        let path = folder.join(format!("haul-bench-{}", std::process::id()));
        let made = File::options().read(true).write(true).create_new(true).open(&path);
        let mut file = made.with_context(|| format!("{} could not be made", path.display()))?;
        // It lasts as long as it is open.
        std::fs::remove_file(&path)?;
        file.write_all(&vec![0; FILE_BYTES])?;
        file.sync_all()?;
        Ok(Tape { file, at: FILE_BYTES })
    }

    /// Appends and syncs.
    pub(super) fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.at + bytes.len() > FILE_BYTES {
            self.file.rewind()?;
            self.at = 0;
        }
        self.file.write_all(bytes)?;
        self.at += bytes.len();
        self.file.sync_data()
    }
}

/// Appends for so many seconds, one batch after the other or at a pace of so many seconds; a put is a sync of one batch.
pub(super) fn run(folder: &Path, mut desk: Desk, seconds: f64, pace: f64) -> anyhow::Result<(Worked, Spent)> {
    let mut tape = Tape::new(folder)?;
    let (start, cpu) = (clock::instant(), super::server::own_cpu_seconds());
    let mut worked = Worked::default();
    let mut batch = BytesMut::new();
    let (mut bytes, mut syncs) = (0, 0_u32);
    while start.elapsed() < Duration::from_secs_f64(seconds) {
        let sent = clock::instant();
        batch.clear();
        desk.write_put(&mut batch);
        tape.append(&batch)?;
        let took = sent.elapsed();
        worked.put.record(took, 1);
        worked.jobs += desk.batch() as u64;
        bytes += batch.len();
        syncs += 1;
        std::thread::sleep(Duration::from_secs_f64(pace).saturating_sub(took));
    }
    worked.seconds = start.elapsed().as_secs_f64();
    let own_cpu_seconds = super::server::own_cpu_seconds() - cpu;
    let (fsyncs, bytes) = (Some(f64::from(syncs)), Some(bytes as f64));
    Ok((worked, Spent { cpu_seconds: 0.0, fsyncs, bytes, own_cpu_seconds }))
}
