//! Bodies read ahead. Workers take jobs mostly in the order in which they were put, so the bodies that they ask for follow each
//! other; to read a run of them costs little more than to read the first.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::base::Base;
use crate::Fault;

/// Bodies read in one go.
const RUN_COUNT: usize = 64;
/// A run ends when it has this many bytes.
const RUN_BYTES: usize = 256 << 10;
/// A body that is at most this far from the last run continues it.
const NEAR: u64 = 4 * RUN_COUNT as u64;
/// Bodies kept that nobody has asked for yet.
const KEPT_COUNT: usize = 8 * RUN_COUNT;
/// Bytes of these.
const KEPT_BYTES: usize = 8 * RUN_BYTES;

/// What was read and not asked for yet. As the base has it: to be emptied whenever that changes.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    bodies: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// What would continue the last run.
    next: u64,
}

/// Keys that are numbers follow each other.
fn number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear(&self) {
        *self.lock() = State::default();
    }

    /// A body of the base. Who continues a run reads on from its end; others wait meanwhile, as they will want what it brings.
    pub(crate) fn get(&self, base: &Base, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        let Some(number) = number(key) else { return base.body(key) };
        let mut state = self.lock();
        if let Some(body) = state.take(number) {
            return Ok(Some(body));
        }
        let from = state.next;
        match number.checked_sub(from) {
            Some(gap) if gap < NEAR => {
                for (at, body) in base.bodies_from(&from.to_be_bytes(), gap as usize + RUN_COUNT, RUN_BYTES) {
                    state.keep(self::number(&at).unwrap_or_default(), body);
                }
                state.next = state.next.max(number.saturating_add(1));
                if let Some(body) = state.take(number) {
                    return Ok(Some(body));
                }
            }
            // Somebody who came late.
            None if from - number <= NEAR => {}
            _ => state.next = number.saturating_add(1),
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

    fn keep(&mut self, number: u64, body: Bytes) {
        self.next = self.next.max(number.saturating_add(1));
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
        assert_eq!((state.bodies.len(), state.bytes, state.next), (1, KEPT_BYTES, 2001));
        state.keep(2000, large);
        assert_eq!((state.bodies.len(), state.bytes), (1, KEPT_BYTES), "the same one again");
    }
}
