//! `Durability::Interval`: a thread that syncs the log's current segment every so often. A sync that
//! failed is never tried again: the system may have dropped the pages, so the store is told to poison
//! itself.

use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::io::Io;
use crate::Fault;

/// The thread, and what it shares with the store.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    io: Arc<dyn Io>,
    tail: Mutex<Tail>,
    changed: Condvar,
}

#[derive(Default)]
struct Tail {
    /// The current segment, and the last batch written to it.
    file: Option<Arc<File>>,
    written: u64,
    durable: u64,
    fsyncs: u64,
    failed: Option<Fault>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, every: Duration) {
        let mut stop = false;
        while !stop {
            let waited = self.changed.wait_timeout_while(self.lock(), every, |tail| !tail.stop);
            let (tail, _) = waited.unwrap_or_else(PoisonError::into_inner);
            stop = tail.stop;
            let written = tail.written;
            let file = tail.file.clone().filter(|_| written > tail.durable && tail.failed.is_none());
            drop(tail);
            let Some(file) = file else { continue };
            let result = self.io.sync(&file);
            let mut tail = self.lock();
            tail.fsyncs += 1;
            match result {
                Ok(()) => tail.durable = tail.durable.max(written),
                Err(error) => {
                    tracing::error!(%error, "could not sync the log");
                    tail.failed = Some(Fault::Retry { what: format!("could not sync the log: {error}") });
                }
            }
        }
    }
}

impl Syncer {
    pub(crate) fn start(io: Arc<dyn Io>, every: Duration, durable: u64) -> Result<Self, Fault> {
        let tail = Tail { durable, ..Tail::default() };
        let shared = Arc::new(Shared { io, tail: Mutex::new(tail), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("haul-sync".to_owned()).spawn(move || theirs.run(every));
        let thread =
            thread.map_err(|error| Fault::Retry { what: format!("could not start a thread: {error}") })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Batch `sequence` was written to `file`. Fails if an earlier sync did.
    pub(crate) fn wrote(&self, file: Option<Arc<File>>, sequence: u64) -> Result<(), Fault> {
        let mut tail = self.shared.lock();
        tail.file = file;
        tail.written = sequence;
        tail.failed.clone().map_or(Ok(()), Err)
    }

    /// The store itself has synced up to `sequence`.
    pub(crate) fn synced(&self, sequence: u64) {
        let mut tail = self.shared.lock();
        tail.durable = tail.durable.max(sequence);
    }

    /// The last batch known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.shared.lock().durable
    }

    pub(crate) fn fsyncs(&self) -> u64 {
        self.shared.lock().fsyncs
    }
}

impl Drop for Syncer {
    /// Syncs once more.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
    }
}
