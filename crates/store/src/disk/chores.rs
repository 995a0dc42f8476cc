//! What nobody has to wait for, on a thread of its own: batches are entered into the index of what is pending, and the next
//! segment of the log is made ready before it is needed. Both go easy on the processors and the disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::bites::moment;
use super::io::Io;
use super::log::Spares;
use super::records::Records;
use crate::Fault;

/// While a segment is made ready, the disk is left alone for so many times as long as each part took.
const SEGMENT_RESTS: u32 = 4;

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

    /// Does nothing for a while but what else it is asked for meanwhile. Not when it is to stop.
    fn rest(&self, rest: Duration, mut index: impl FnMut()) {
        let until = moment() + rest;
        while let Some(left) = until.checked_sub(moment()) {
            let idle = |asked: &mut Asked| !(asked.index || asked.stop);
            let waited = self.changed.wait_timeout_while(self.lock(), left, idle);
            let (mut asked, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if asked.stop {
                return;
            }
            if std::mem::take(&mut asked.index) {
                drop(asked);
                index();
            }
        }
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
                    records.index_gently();
                }
                let mut rest = |took: Duration| theirs.rest(SEGMENT_RESTS * took, || records.index_gently());
                if asked.segment
                    && let Err(error) = spares.make(io.as_ref(), segment_bytes, &mut rest)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than a test may take.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_rest_does_what_else_is_asked_and_ends_when_all_is_to_stop() {
        let desk = Desk::default();
        desk.ask(|asked| asked.index = true);
        // One segment is being made: the next is for later.
        desk.ask(|asked| asked.segment = true);
        let mut indexed = 0;
        desk.rest(LONG, || {
            indexed += 1;
            desk.ask(|asked| (asked.index, asked.stop) = (true, indexed == 2));
        });
        assert_eq!(indexed, 2);
        assert!(desk.lock().segment);
    }

    #[test]
    fn a_rest_ends_by_itself() {
        let (desk, began) = (Desk::default(), moment());
        desk.rest(Duration::from_millis(2), || ());
        assert!(moment().saturating_sub(began) >= Duration::from_millis(2));
    }
}
