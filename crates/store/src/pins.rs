//! Pins: which sequence numbers readers still look back to. A body deleted by batch `d` must stay
//! readable while a pin older than `d` lives. Pins last milliseconds, so a count per number in an
//! ordered map under a mutex is enough.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the bodies that existed when it was taken readable. Cheap to clone and to send.
pub struct Pin {
    pins: Arc<Pins>,
    sequence: u64,
}

impl Pin {
    /// The last batch it sees.
    #[cfg(feature = "object")]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.pins.add(self.sequence);
        Self { pins: Arc::clone(&self.pins), sequence: self.sequence }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.remove(self.sequence);
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pin({})", self.sequence)
    }
}

/// All living pins of one store, and the number of the last batch applied.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    applied: u64,
    living: BTreeMap<u64, usize>,
}

impl State {
    fn oldest(&self) -> u64 {
        self.living.keys().next().copied().unwrap_or(u64::MAX)
    }
}

impl Pins {
    /// Pins what exists after the last applied batch.
    pub(crate) fn pin(self: &Arc<Self>) -> Pin {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = state.applied;
        *state.living.entry(sequence).or_insert(0) += 1;
        Pin { pins: Arc::clone(self), sequence }
    }

    /// Counts batch `sequence` as applied and returns the oldest pin's number (the largest number if
    /// there is none). Call it before the batch's deletes are applied: a pin taken from then on does not
    /// see them, one taken before is in the answer.
    pub(crate) fn advance(&self, sequence: u64) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.applied = sequence;
        state.oldest()
    }

    /// The oldest pin's number, the largest number if there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).oldest()
    }

    fn add(&self, sequence: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.living.entry(sequence).or_insert(0) += 1;
    }

    fn remove(&self, sequence: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = state.living.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                state.living.remove(&sequence);
            }
        }
    }
}
