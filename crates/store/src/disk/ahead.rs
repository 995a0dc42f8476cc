//! Bodies read ahead. Workers take jobs mostly in the order in which they were put, so the bodies that they ask for follow each
//! other; to read a run of them costs little more than to read the first.
//!
//! What is pending is not asked when a body is taken, but when a run was read: of what the base has and pending records delete or
//! replace, nothing is kept. A body that is kept never changes; its number is another's only after a load, which empties this.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::base::Base;
use super::pending::Pending;
use crate::{Fault, Space};

/// Bodies read in one go.
const RUN_COUNT: usize = 256;
/// A run ends when it has this many bytes.
const RUN_BYTES: usize = 512 << 10;
/// A body that is at most this far from the last run continues it.
const NEAR: u64 = RUN_COUNT as u64;
/// With fewer at hand it is time to read on.
const LOW_COUNT: usize = RUN_COUNT / 2;
/// Bodies kept that nobody has asked for yet.
const KEPT_COUNT: usize = 4 * RUN_COUNT;
/// Bytes of these.
const KEPT_BYTES: usize = 4 * RUN_BYTES;

/// What was read and not asked for yet. As the base has it: to be emptied whenever that changes.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    bodies: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// What would continue the last run.
    next: u64,
    /// Where one began to read on, until it is done.
    reading_from: Option<u64>,
    /// The last run brought something.
    is_running: bool,
    /// How often it was emptied.
    emptied: u64,
}

/// Keys that are numbers follow each other.
fn number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties it; the run goes on with what was kept.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        let next = state.bodies.first_key_value().map_or(state.next, |(first, _)| *first);
        *state = State { next, emptied: state.emptied + 1, ..State::default() };
    }

    /// A body that was read, if nobody is just reading.
    pub(crate) fn at_hand(&self, key: &[u8]) -> Option<Bytes> {
        let number = number(key)?;
        self.0.try_lock().ok()?.take(number)
    }

    /// Whether it is time to read on. Whoever is told so is to do it; nobody else is told until then.
    pub(crate) fn is_low(&self) -> bool {
        let Ok(mut state) = self.0.try_lock() else { return false };
        // Not so much that what is wanted next had to go for it.
        let has_room = state.bodies.len() < LOW_COUNT && state.bytes <= KEPT_BYTES - 2 * RUN_BYTES;
        let low = state.is_running && state.reading_from.is_none() && has_room;
        if low {
            state.reading_from = Some(state.next);
        }
        low
    }

    /// Reads the next run while others take what is there.
    pub(crate) fn read_on<P: Deref<Target = Pending>>(&self, base: &Base, pending: impl FnOnce() -> P) {
        let (from, emptied) = match &*self.lock() {
            State { reading_from: Some(from), emptied, .. } => (*from, *emptied),
            _ => return,
        };
        let run = base.bodies_from(&from.to_be_bytes(), RUN_COUNT, RUN_BYTES);
        let mut state = self.lock();
        if state.emptied == emptied && state.reading_from == Some(from) {
            state.keep_run(run, &pending());
        }
    }

    /// A body of the base. Who continues a run reads on from its end; others wait meanwhile, as they will want what it brings.
    pub(crate) fn get<P: Deref<Target = Pending>>(
        &self,
        base: &Base,
        key: &[u8],
        pending: impl FnOnce() -> P,
    ) -> Result<Option<Bytes>, Fault> {
        let Some(number) = number(key) else { return base.body(key) };
        let mut state = self.lock();
        if let Some(body) = state.take(number) {
            return Ok(Some(body));
        }
        let from = state.next;
        match number.checked_sub(from) {
            Some(gap) if gap < NEAR => {
                let run = base.bodies_from(&from.to_be_bytes(), gap as usize + RUN_COUNT, RUN_BYTES);
                state.keep_run(run, &pending());
                state.next = state.next.max(number.saturating_add(1));
                if let Some(body) = state.take(number) {
                    return Ok(Some(body));
                }
            }
            // Somebody who came late.
            None if from - number <= NEAR => {}
            _ => (state.next, state.is_running) = (number.saturating_add(1), false),
        }
        drop(state);
        base.body(key)
    }
}

impl State {
    fn take(&mut self, number: u64) -> Option<Bytes> {
        let body = self.bodies.remove(&number)?;
        self.bytes -= body.len();
        Some(body)
    }

    fn keep_run(&mut self, run: Vec<(Bytes, Bytes)>, pending: &Pending) {
        (self.is_running, self.reading_from) = (!run.is_empty(), None);
        for (key, body) in run {
            let number = number(&key).unwrap_or_default();
            self.next = self.next.max(number.saturating_add(1));
            if !pending.covers(Space::Body, &key) {
                self.keep(number, body);
            }
        }
    }

    fn keep(&mut self, number: u64, body: Bytes) {
        self.bytes += body.len();
        if let Some(old) = self.bodies.insert(number, body) {
            self.bytes -= old.len();
        }
        while self.bodies.len() > KEPT_COUNT || self.bytes > KEPT_BYTES {
            let Some((_, oldest)) = self.bodies.pop_first() else { break };
            self.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_by_count_and_by_bytes() {
        let mut state = State::default();
        (0..=KEPT_COUNT as u64).for_each(|number| state.keep(number, Bytes::from_static(b"x")));
        assert_eq!((state.bodies.len(), state.bytes), (KEPT_COUNT, KEPT_COUNT));
        assert_eq!((state.take(0), state.take(1)), (None, Some(Bytes::from_static(b"x"))), "the oldest went");
        let large = Bytes::from(vec![0; KEPT_BYTES]);
        state.keep(2000, large.clone());
        assert_eq!((state.bodies.len(), state.bytes), (1, KEPT_BYTES));
        state.keep(2000, large);
        assert_eq!((state.bodies.len(), state.bytes), (1, KEPT_BYTES), "the same one again");
    }
}
