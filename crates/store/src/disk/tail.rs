//! The log's tail: what is written to it, what of that is durable. One sync at a time, and none after one that failed: the
//! system may have dropped the pages, and tells that only once.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::io::Io;
use crate::Fault;

/// Shared by the store, the tickets it has given, and who syncs every so often.
pub(crate) struct Tail {
    io: Arc<dyn Io>,
    /// The segment that is written to, and the last batch in it. Those before it are durable.
    written: Mutex<(Option<Arc<File>>, u64)>,
    /// Held during a sync.
    failed: Mutex<Option<Fault>>,
    /// Whether there is a fault: to ask must not take as long as a sync.
    broken: AtomicBool,
    durable: AtomicU64,
    fsyncs: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tail {
    pub(crate) fn new(io: Arc<dyn Io>, durable: u64) -> Self {
        let written = Mutex::new((None, durable));
        let (durable, fsyncs) = (AtomicU64::new(durable), AtomicU64::new(0));
        Tail { io, written, failed: Mutex::default(), broken: AtomicBool::new(false), durable, fsyncs }
    }

    /// Batch `sequence` was written to `file`.
    pub(crate) fn wrote(&self, file: Option<Arc<File>>, sequence: u64) {
        *lock(&self.written) = (file, sequence);
    }

    /// Returns when batch `sequence` is durable, with all that were written until then.
    pub(crate) fn sync(&self, sequence: u64) -> Result<(), Fault> {
        let mut failed = lock(&self.failed);
        if let Some(fault) = &*failed {
            return Err(fault.clone());
        }
        if self.durable() >= sequence {
            return Ok(());
        }
        let (file, written) = lock(&self.written).clone();
        let Some(file) = file else { return Ok(()) };
        self.fsyncs.fetch_add(1, Ordering::Relaxed);
        match self.io.sync(&file) {
            Ok(()) => {
                self.durable.fetch_max(written, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => {
                let fault = Fault::Retry { what: format!("could not sync the log: {error}") };
                *failed = Some(fault.clone());
                self.broken.store(true, Ordering::Release);
                Err(fault)
            }
        }
    }

    /// Returns when all that is written is durable.
    pub(crate) fn sync_all(&self) -> Result<(), Fault> {
        let written = lock(&self.written).1;
        self.sync(written)
    }

    /// The last batch known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Why nothing will be durable any more.
    pub(crate) fn failed(&self) -> Option<Fault> {
        if self.broken.load(Ordering::Acquire) { lock(&self.failed).clone() } else { None }
    }

    pub(crate) fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }
}
