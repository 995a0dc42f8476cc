//! Bodies read ahead. Workers take jobs mostly in the order in which they were put, or, of those that were put together, from the
//! highest jid down: the bodies that they ask for follow each other, up or down, and to read a run of them costs little more than
//! to read the first.
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
/// From so many below a run on, it goes on downwards: one or two may only have come late.
const BELOW_MANY: u32 = 3;

/// What was read and not asked for yet. As the base has it: to be emptied whenever that changes.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    bodies: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// Of the body read last.
    size: usize,
    /// Where the run has been: from `low` on, before `high`. What continues it lies at one of its ends.
    low: u64,
    high: u64,
    way: Way,
    /// What lies below was asked for before this run: it does not go on down there.
    floor: u64,
    /// How many were asked for below the run and were not at hand.
    below: u32,
    /// What one is reading on, until it is done.
    reading: Option<Window>,
    /// The last window brought something.
    is_running: bool,
    /// How often it was emptied.
    emptied: u64,
}

/// Which way a run goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Way {
    #[default]
    Up,
    Down,
}

/// Numbers to read: from `from` on, at most `count` bodies.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    from: u64,
    count: usize,
    way: Way,
}

impl Window {
    fn read(self, base: &Base) -> Vec<(Bytes, Bytes)> {
        base.bodies_from(&self.from.to_be_bytes(), self.count, RUN_BYTES)
    }
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
        let (first, last) = (state.bodies.first_key_value(), state.bodies.last_key_value());
        let (low, high) = match (state.way, first, last) {
            (Way::Up, Some((first, _)), _) => (*first, *first),
            (Way::Down, _, Some((last, _))) => (last.saturating_add(1), state.high),
            _ => (state.low, state.high),
        };
        let State { way, floor, below, emptied, .. } = *state;
        *state = State { low, high, way, floor, below, emptied: emptied + 1, ..State::default() };
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
        let low = state.is_running && state.reading.is_none() && has_room;
        if low {
            state.reading = state.on();
        }
        low && state.reading.is_some()
    }

    /// Reads the next window while others take what is there.
    pub(crate) fn read_on<P: Deref<Target = Pending>>(&self, base: &Base, pending: impl FnOnce() -> P) {
        let (window, emptied) = match &*self.lock() {
            State { reading: Some(window), emptied, .. } => (*window, *emptied),
            _ => return,
        };
        let run = window.read(base);
        let mut state = self.lock();
        if state.emptied == emptied && state.reading == Some(window) {
            state.keep_run(window, run, &pending());
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
        if let Some(window) = state.follow(number) {
            let run = window.read(base);
            state.keep_run(window, run, &pending());
            state.high = state.high.max(number.saturating_add(1));
            if let Some(body) = state.take(number) {
                return Ok(Some(body));
            }
        }
        drop(state);
        let body = base.body(key)?;
        if let Some(body) = &body {
            self.lock().size = body.len();
        }
        Ok(body)
    }
}

impl State {
    fn take(&mut self, number: u64) -> Option<Bytes> {
        let body = self.bodies.remove(&number)?;
        self.bytes -= body.len();
        Some(body)
    }

    /// What to read for a body that is not at hand, if it continues the run; else a run may begin with it.
    fn follow(&mut self, number: u64) -> Option<Window> {
        let above = number.checked_sub(self.high);
        let below = self.low.checked_sub(number).filter(|gap| *gap > 0);
        match (above, below) {
            (Some(gap), _) if gap < NEAR => {
                self.below = 0;
                Some(Window { from: self.high, count: gap as usize + RUN_COUNT, way: Way::Up })
            }
            (_, Some(gap)) if gap <= NEAR => {
                self.below += 1;
                self.low = number;
                let above = number.saturating_add(1);
                (self.below >= BELOW_MANY).then(|| self.window_below(above)).flatten()
            }
            // Somebody who came late, or it is no longer there.
            (None, None) if number.abs_diff(self.end()) <= NEAR => None,
            _ => {
                self.floor = if above.is_some() { self.high } else { 0 };
                (self.low, self.high) = (number, number.saturating_add(1));
                (self.below, self.is_running, self.reading) = (0, false, None);
                None
            }
        }
    }

    /// Where the run is now.
    fn end(&self) -> u64 {
        match self.way {
            Way::Up => self.high,
            Way::Down => self.low,
        }
    }

    /// What comes next on the run's way.
    fn on(&self) -> Option<Window> {
        match self.way {
            Way::Up => Some(Window { from: self.high, count: RUN_COUNT, way: Way::Up }),
            Way::Down => self.window_below(self.low),
        }
    }

    /// As many as a window may have, before `end`. It is read from its lower end, and must not be cut off before the upper one.
    fn window_below(&self, end: u64) -> Option<Window> {
        let most = (RUN_BYTES / 2 / self.size.max(1)).clamp(1, RUN_COUNT) as u64;
        let from = end.saturating_sub(most).max(self.floor);
        (from < end).then(|| Window { from, count: (end - from) as usize, way: Way::Down })
    }

    fn keep_run(&mut self, window: Window, run: Vec<(Bytes, Bytes)>, pending: &Pending) {
        (self.is_running, self.reading, self.way) = (!run.is_empty(), None, window.way);
        if window.way == Way::Down {
            self.low = self.low.min(window.from);
        }
        for (key, body) in run {
            let number = number(&key).unwrap_or_default();
            if window.way == Way::Up {
                self.high = self.high.max(number.saturating_add(1));
            }
            if !pending.covers(Space::Body, &key) {
                self.keep(number, body);
            }
        }
    }

    fn keep(&mut self, number: u64, body: Bytes) {
        self.size = body.len();
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
