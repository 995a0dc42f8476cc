//! The recent events of one tenant, within bounds of number, bytes and age.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use haul_engine::Notice;
use tokio::sync::watch;

use super::told::{Position, Told};

/// Events kept.
pub(super) const EVENTS_MAX: usize = 16_384;
/// Bytes of events kept.
pub(super) const BYTES_MAX: usize = 8 << 20;
/// How long they are kept.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Events read at once: few enough that the lock is held briefly.
const BATCH_MAX: usize = 512;

pub(super) struct Ring {
    told: VecDeque<(Instant, Arc<Told>)>,
    bytes: usize,
    /// The newest event that is no longer here, or that was before the ring.
    gone: u64,
    newest: u64,
    wake: watch::Sender<u64>,
}

pub(super) fn read(ring: &RwLock<Ring>) -> RwLockReadGuard<'_, Ring> {
    ring.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write(ring: &RwLock<Ring>) -> RwLockWriteGuard<'_, Ring> {
    ring.write().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    /// An empty ring; `newest` is the last id given to anybody.
    pub(super) fn new(newest: u64) -> Self {
        Ring { told: VecDeque::new(), bytes: 0, gone: newest, newest, wake: watch::Sender::new(newest) }
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn wake(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// Whether everything behind this event is still here.
    pub(super) fn holds_after(&self, id: u64) -> bool {
        (self.gone..=self.newest).contains(&id)
    }

    /// Takes in events with the ids from `first` on.
    pub(super) fn push(&mut self, run: u64, first: u64, notices: &[Notice], now: Instant) {
        for (id, notice) in (first..).zip(notices) {
            let told = Told::new(Position { run, id }, notice.clone());
            self.bytes += told.bytes();
            self.newest = id;
            self.told.push_back((now, Arc::new(told)));
        }
        while let Some((at, told)) = self.told.front() {
            let fits = self.told.len() <= EVENTS_MAX && self.bytes <= BYTES_MAX;
            if fits && now.duration_since(*at) < AGE_MAX {
                break;
            }
            self.bytes -= told.bytes();
            self.gone = told.position.id;
            self.told.pop_front();
        }
        self.wake.send_replace(self.newest);
    }

    /// The next events behind this one; none: some of them have gone.
    pub(super) fn after(&self, id: u64) -> Option<Vec<Arc<Told>>> {
        if id < self.gone {
            return None;
        }
        let from = self.told.partition_point(|(_, told)| told.position.id <= id);
        Some(self.told.range(from..).take(BATCH_MAX).map(|(_, told)| told.clone()).collect())
    }
}
