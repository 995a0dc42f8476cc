//! The thread that appends. It takes what has arrived, writes it, syncs once, and acknowledges all of it. What could not
//! be made durable is cut off again and refused.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::files::{self, Place};

/// Bytes that are written before a sync, about.
const ROUND_BYTES: usize = 8 << 20;

/// Why a write was refused. Nothing of it will be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// There is no room, or the disk has failed.
    #[error("the journal cannot be written: {0}")]
    Disk(String),
    /// So much waits to be stored that more is not taken.
    #[error("the journal holds {0} bytes that are not stored yet; try again later (journal-bytes-max)")]
    Behind(u64),
    /// The server is stopping.
    #[error("the journal is closed")]
    Closed,
}

/// Tells when a write is durable.
pub type Ack = oneshot::Receiver<Result<(), WriteError>>;

/// Something to append, or only a wish to know when what came before is durable.
pub(crate) struct Work {
    pub(crate) bytes: Vec<u8>,
    pub(crate) now_ms: u64,
    pub(crate) done: Option<oneshot::Sender<Result<(), WriteError>>>,
}

/// What the writing and the reading side share.
pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    /// Up to where the journal is durable: reading stops there.
    durable: Mutex<Place>,
    /// Bytes that are durable and not stored yet.
    pub(crate) backlog: AtomicU64,
    /// Told when more became durable.
    pub(crate) grown: Notify,
    pub(crate) syncs: AtomicU64,
}

impl Shared {
    pub(crate) fn new(folder: PathBuf, durable: Place, backlog: u64) -> Self {
        Shared {
            folder,
            durable: Mutex::new(durable),
            backlog: AtomicU64::new(backlog),
            grown: Notify::new(),
            syncs: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn durable(&self) -> Place {
        *self.lock()
    }
}

/// When a file has had enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    pub(crate) bytes_max: u64,
    pub(crate) ms_max: u64,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) file: File,
    pub(crate) at: Place,
    pub(crate) rotation: Rotation,
    /// When the first record of the file was written.
    pub(crate) began_ms: Option<u64>,
    /// The file could not be brought back to what is durable yet.
    pub(crate) broken: bool,
}

impl Writer {
    /// Runs until the journal is dropped.
    pub(crate) fn run(mut self, works: &Receiver<Work>) {
        let mut round = Vec::new();
        while let Ok(first) = works.recv() {
            let mut bytes = first.bytes.len();
            round.push(first);
            while bytes < ROUND_BYTES {
                match works.try_recv() {
                    Ok(work) => {
                        bytes += work.bytes.len();
                        round.push(work);
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            let outcome = self.write(&round, bytes);
            for work in round.drain(..) {
                if let Some(done) = work.done {
                    let _ = done.send(outcome.clone());
                }
            }
        }
    }

    fn write(&mut self, round: &[Work], bytes: usize) -> Result<(), WriteError> {
        if bytes == 0 {
            return Ok(());
        }
        let now_ms = round.first().map_or(0, |work| work.now_ms);
        let outcome = self.mend().and_then(|()| self.rotate(now_ms)).and_then(|()| self.append(round));
        if let Err(error) = outcome {
            let error = WriteError::Disk(error.to_string());
            tracing::error!(%error, "journal: a write failed and was refused");
            self.broken = true;
            // What cannot be mended now is mended before the next write, or by the next start.
            if let Err(error) = self.mend() {
                tracing::error!(%error, "journal: a failed write could not be taken back yet");
            }
            return Err(error);
        }
        self.began_ms.get_or_insert(now_ms);
        self.at.offset += bytes as u64;
        self.shared.syncs.fetch_add(1, Ordering::Relaxed);
        self.shared.backlog.fetch_add(bytes as u64, Ordering::AcqRel);
        *self.shared.lock() = self.at;
        self.shared.grown.notify_one();
        Ok(())
    }

    fn append(&mut self, round: &[Work]) -> std::io::Result<()> {
        match round {
            [work] => self.file.write_all(&work.bytes)?,
            _ => {
                let parts: Vec<&[u8]> = round.iter().map(|work| work.bytes.as_slice()).collect();
                self.file.write_all(&parts.concat())?;
            }
        }
        self.file.sync_data()
    }

    fn rotate(&mut self, now_ms: u64) -> std::io::Result<()> {
        let old = self.began_ms.is_some_and(|began| now_ms.saturating_sub(began) >= self.rotation.ms_max);
        if self.at.offset == 0 || (self.at.offset < self.rotation.bytes_max && !old) {
            return Ok(());
        }
        self.start_next()
    }

    fn start_next(&mut self) -> std::io::Result<()> {
        let number = self.at.file + 1;
        self.file = files::create(&self.shared.folder, number)?;
        self.at = Place { file: number, offset: 0 };
        self.began_ms = None;
        Ok(())
    }

    /// Takes back what a failed write may have left, and goes on in a new file: after a failed sync nobody knows what the
    /// old one holds behind its durable end.
    fn mend(&mut self) -> std::io::Result<()> {
        if !self.broken {
            return Ok(());
        }
        let durable = self.shared.durable();
        let cut = if durable.file == self.at.file { durable.offset } else { 0 };
        self.file.set_len(cut)?;
        self.file.sync_all()?;
        self.start_next()?;
        *self.shared.lock() = self.at;
        self.broken = false;
        Ok(())
    }
}
