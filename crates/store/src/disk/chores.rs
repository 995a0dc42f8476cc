//! What nobody has to wait for, on a thread of its own: batches are entered into the index of what is pending, and the next
//! segment of the log is made ready before it is needed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::io::Io;
use super::log::Spares;
use super::records::Records;
use crate::Fault;

/// The thread, and what it is asked to do.
pub(crate) struct Chores {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Asked {
    index: bool,
    segment: bool,
    stop: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, what: impl FnOnce(&mut Asked)) {
        let mut asked = self.lock();
        let before = *asked;
        what(&mut asked);
        if *asked != before {
            self.changed.notify_one();
        }
    }

    /// Waits for something to do.
    fn next(&self) -> Asked {
        let idle = |asked: &mut Asked| *asked == Asked::default();
        let asked = self.changed.wait_while(self.lock(), idle);
        std::mem::take(&mut *asked.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Chores {
    /// Segments are made with room for `segment_bytes`.
    pub(crate) fn start(
        records: Arc<Records>,
        spares: Arc<Spares>,
        io: Arc<dyn Io>,
        segment_bytes: u64,
    ) -> Result<Self, Fault> {
        let desk = Arc::new(Desk::default());
        let theirs = Arc::clone(&desk);
        let work = move || {
            loop {
                let asked = theirs.next();
                if asked.stop {
                    return;
                }
                if asked.index {
                    records.index();
                }
                if asked.segment
                    && let Err(error) = spares.make(io.as_ref(), segment_bytes)
                {
                    // The log makes its own when it needs one, and says if it cannot.
                    tracing::debug!(%error, "no log segment could be made ready");
                }
            }
        };
        let thread = thread::Builder::new().name("haul-chores".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| Fault::Retry { what: format!("could not start a thread: {error}") })?;
        Ok(Self { desk, thread: Some(thread) })
    }

    /// Has what is fresh entered into the index.
    pub(crate) fn index(&self) {
        self.desk.ask(|asked| asked.index = true);
    }

    /// Has a segment made ready, if none is.
    pub(crate) fn make_segment(&self) {
        self.desk.ask(|asked| asked.segment = true);
    }
}

impl Drop for Chores {
    fn drop(&mut self) {
        self.desk.ask(|asked| asked.stop = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for chores panicked");
        }
    }
}
