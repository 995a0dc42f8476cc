//! A store in memory, for tests and simulation. The [`MemoryDisk`] outlives the store: drop the store
//! (a crash) and open another on the same disk. It fails exactly when told to; nothing here is random
//! and nothing waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::pins::Pins;
use crate::{
    Batch, Bodies, EachHeader, EachKey, EachRecord, Fault, Pin, Record, Space, Stats, Store, Ticket,
};

/// What the next commit on a [`MemoryDisk`] does instead of succeeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inject {
    /// Nothing is kept, [`Fault::Retry`], the handle is poisoned.
    Fail,
    /// Nothing is kept, [`Fault::Full`], the handle stays usable.
    Full,
    /// The answer is lost: [`Fault::Retry`] and a poisoned handle, and the batch was kept or not.
    Lose {
        /// Whether the batch reached the disk.
        kept: bool,
    },
    /// This one commit succeeds: to place a later failure.
    Succeed,
}

/// The disk under a [`MemoryStore`]; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    headers: BTreeMap<Bytes, Bytes>,
    bodies: BTreeMap<Bytes, Bytes>,
    injected: VecDeque<Inject>,
    /// The handle that may commit: opening a second one fences the first.
    owner: u64,
}

impl State {
    fn space(&mut self, space: Space) -> &mut BTreeMap<Bytes, Bytes> {
        match space {
            Space::Header => &mut self.headers,
            Space::Body => &mut self.bodies,
        }
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lines up what a coming commit does; the queue is worked off one entry per commit.
    pub fn inject(&self, inject: Inject) {
        self.lock().injected.push_back(inject);
    }

    /// Opens the disk. A store opened earlier on it is fenced from then on.
    pub fn open(&self) -> MemoryStore {
        let mut state = self.lock();
        state.owner += 1;
        let owner = state.owner;
        drop(state);
        let shared = Arc::new(Shared { disk: self.clone(), pins: Arc::default(), ghosts: Mutex::default() });
        MemoryStore { shared, owner, sequence: 0, poisoned: None, stats: Stats::default() }
    }

    /// Everything on the disk, in order: to compare two disks.
    pub fn records(&self) -> Vec<(Space, Bytes, Bytes)> {
        let state = self.lock();
        let headers = state.headers.iter().map(|(key, value)| (Space::Header, key.clone(), value.clone()));
        let bodies = state.bodies.iter().map(|(key, value)| (Space::Body, key.clone(), value.clone()));
        headers.chain(bodies).collect()
    }

    /// Damages the disk as a test sees fit: sets or removes one record behind the store's back.
    pub fn tamper(&self, space: Space, key: &[u8], value: Option<Bytes>) {
        let mut state = self.lock();
        let records = state.space(space);
        match value {
            Some(value) => records.insert(Bytes::copy_from_slice(key), value),
            None => records.remove(key),
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store over a [`MemoryDisk`].
pub struct MemoryStore {
    shared: Arc<Shared>,
    owner: u64,
    sequence: u64,
    poisoned: Option<Fault>,
    stats: Stats,
}

/// What the store and its readers share. `ghosts` are deleted bodies that a pin may still ask for, with
/// the number of the batch that deleted them. They are memory, not disk: a crash ends all pins.
struct Shared {
    disk: MemoryDisk,
    pins: Arc<Pins>,
    ghosts: Mutex<BTreeMap<Bytes, (u64, Bytes)>>,
}

impl Shared {
    fn ghosts(&self) -> MutexGuard<'_, BTreeMap<Bytes, (u64, Bytes)>> {
        self.ghosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    fn poison(&mut self, what: &str) -> Fault {
        let fault = Fault::Retry { what: what.to_owned() };
        self.poisoned = Some(fault.clone());
        fault
    }

    fn apply(&mut self, batch: &Batch) {
        self.sequence += 1;
        let mut ghosts = self.shared.ghosts();
        let mut state = self.shared.disk.lock();
        let oldest = self.shared.pins.advance(self.sequence);
        ghosts.retain(|_, (deleted_by, _)| *deleted_by > oldest);
        for Record { space, key, value } in batch.records() {
            if let Some(value) = value {
                state.space(space).insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                continue;
            }
            let old = state.space(space).remove(key);
            if let Some(old) = old
                && space == Space::Body
                && self.sequence > oldest
            {
                ghosts.insert(Bytes::copy_from_slice(key), (self.sequence, old));
            }
        }
    }
}

impl Store for MemoryStore {
    fn load(&mut self, each: EachHeader<'_>) -> Result<(), Fault> {
        let headers = self.shared.disk.lock().headers.clone();
        headers.iter().try_for_each(|(key, value)| each(key, value))
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Fault> {
        debug_assert!(batch.is_consistent(), "a key is both put and deleted in one batch");
        if let Some(fault) = &self.poisoned {
            return Err(fault.clone());
        }
        batch.check()?;
        let mut state = self.shared.disk.lock();
        if state.owner != self.owner {
            return Err(Fault::Fenced);
        }
        let inject = state.injected.pop_front().unwrap_or(Inject::Succeed);
        drop(state);
        match inject {
            Inject::Fail => return Err(self.poison("injected failure")),
            Inject::Full => return Err(Fault::Full { what: "injected".to_owned() }),
            Inject::Lose { kept: false } => return Err(self.poison("injected loss")),
            Inject::Lose { kept: true } => {
                self.apply(&batch);
                return Err(self.poison("injected loss"));
            }
            Inject::Succeed => {}
        }
        let bytes = batch.bytes() as u64;
        self.apply(&batch);
        self.stats.commits += 1;
        self.stats.bytes_written += bytes;
        Ok(())
    }

    fn submit(&mut self, batch: Batch) -> Result<Ticket, Fault> {
        match batch.is_empty() {
            true if self.shared.disk.lock().owner != self.owner => return Err(Fault::Fenced),
            true => {}
            false => self.commit(batch)?,
        }
        Ok(Ticket::durable())
    }

    fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(MemoryBodies { shared: Arc::clone(&self.shared) })
    }

    fn stats(&self) -> Stats {
        self.stats
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        self.poisoned.map_or(Ok(()), Err)
    }
}

struct MemoryBodies {
    shared: Arc<Shared>,
}

impl Bodies for MemoryBodies {
    fn pin(&self) -> Pin {
        self.shared.pins.pin()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        let ghosts = self.shared.ghosts();
        if let Some(value) = self.shared.disk.lock().bodies.get(key) {
            return Ok(Some(value.clone()));
        }
        let oldest = self.shared.pins.oldest();
        let ghost = ghosts.get(key).filter(|(deleted_by, _)| *deleted_by > oldest);
        Ok(ghost.map(|(_, value)| value.clone()))
    }

    fn keys(&self, each: EachKey<'_>) -> Result<(), Fault> {
        let keys: Vec<Bytes> = self.shared.disk.lock().bodies.keys().cloned().collect();
        keys.iter().try_for_each(|key| each(key))
    }

    fn copy(&self, each: EachRecord<'_>) -> Result<(), Fault> {
        let records = self.shared.disk.records();
        records.iter().try_for_each(|(space, key, value)| each(*space, key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(key: &'static str) -> Batch {
        let mut batch = Batch::default();
        batch.put(Space::Header, key, "value");
        batch
    }

    fn keys(disk: &MemoryDisk) -> Vec<Bytes> {
        disk.records().into_iter().map(|(_, key, _)| key).collect()
    }

    #[test]
    fn the_memory_store_conforms() {
        let mut disks = BTreeMap::<u32, MemoryDisk>::new();
        crate::conformance::check(&mut |case| Box::new(disks.entry(case).or_default().open()), 200);
    }

    #[test]
    fn a_failed_commit_poisons_and_keeps_nothing() {
        let disk = MemoryDisk::new();
        let mut store = disk.open();
        disk.inject(Inject::Fail);
        assert!(matches!(store.commit(batch("a")), Err(Fault::Retry { .. })));
        assert!(matches!(store.commit(batch("b")), Err(Fault::Retry { .. })));
        assert!(keys(&disk).is_empty());
        disk.open().commit(batch("c")).unwrap();
        assert_eq!(keys(&disk), ["c"]);
    }

    #[test]
    fn a_full_disk_keeps_nothing_and_the_handle_goes_on() {
        let disk = MemoryDisk::new();
        let mut store = disk.open();
        disk.inject(Inject::Succeed);
        disk.inject(Inject::Full);
        store.commit(batch("a")).unwrap();
        assert!(matches!(store.commit(batch("b")), Err(Fault::Full { .. })));
        store.commit(batch("c")).unwrap();
        assert_eq!(keys(&disk), ["a", "c"]);
    }

    #[test]
    fn a_lost_answer_may_have_been_kept() {
        for kept in [false, true] {
            let disk = MemoryDisk::new();
            let mut store = disk.open();
            disk.inject(Inject::Lose { kept });
            assert!(matches!(store.commit(batch("a")), Err(Fault::Retry { .. })));
            assert_eq!(keys(&disk).len(), usize::from(kept));
        }
    }

    #[test]
    fn an_earlier_handle_is_fenced() {
        let disk = MemoryDisk::new();
        let mut first = disk.open();
        let mut second = disk.open();
        assert_eq!(first.commit(batch("a")), Err(Fault::Fenced));
        second.commit(batch("b")).unwrap();
        assert_eq!(keys(&disk), ["b"]);
    }
}
