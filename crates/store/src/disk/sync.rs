//! `Durability::Interval`: a thread that syncs the log's tail every so often.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::tail::Tail;
use crate::Fault;

/// The thread, and what it shares with the store.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    tail: Arc<Tail>,
    stop: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn run(&self, every: Duration) {
        let mut stop = false;
        while !stop {
            let stopped = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(stopped, every, |stop| !*stop);
            stop = *waited.unwrap_or_else(PoisonError::into_inner).0;
            if self.tail.failed().is_none()
                && let Err(fault) = self.tail.sync_all()
            {
                tracing::error!(%fault, "nothing more is written until the store is opened again");
            }
        }
    }
}

impl Syncer {
    pub(crate) fn start(tail: Arc<Tail>, every: Duration) -> Result<Self, Fault> {
        let shared = Arc::new(Shared { tail, stop: Mutex::new(false), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("haul-sync".to_owned()).spawn(move || theirs.run(every));
        let thread =
            thread.map_err(|error| Fault::Retry { what: format!("could not start a thread: {error}") })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Syncer {
    /// Syncs once more.
    fn drop(&mut self) {
        *self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
    }
}
