//! All records as readers see them: what is pending in memory, over the base. Shared by the store, the
//! checkpoint and the readers of bodies.
//!
//! A batch is indexed where it costs nobody time: it is fresh until somebody looks, or has time for it.
//!
//! Locks are taken in this order: the base, what was read ahead, what is pending, what is fresh, the pins.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::{Bytes, BytesMut};
use hashbrown::HashSet;

use super::ahead::Ahead;
use super::base::Base;
use super::bites::Bites;
use super::chunks::Chunks;
use super::io::Io;
use super::pending::{self, Fresh, Looked, Pending};
use crate::pins::Pins;
use crate::{Batch, Bodies, EachHeader, EachKey, EachRecord, Fault, Pin, Space};

/// Batches that may be fresh: whoever brings one more indexes them.
const FRESH_MAX: usize = 1024;

/// How to open the base, the first time and again.
pub(crate) struct BaseSettings {
    pub(crate) path: PathBuf,
    pub(crate) cache_bytes: u64,
    pub(crate) io: Arc<dyn Io>,
}

/// Pending records over the base.
pub(crate) struct Records {
    settings: BaseSettings,
    /// None while it could not be reopened, and after the store was closed.
    base: RwLock<Option<Base>>,
    pending: RwLock<Pending>,
    /// Batches that belong to what is pending and are not in its index yet, oldest first.
    fresh: Mutex<VecDeque<Fresh>>,
    chunks: Chunks,
    ahead: Ahead,
    pins: Arc<Pins>,
    /// Of what is pending, fresh or not.
    bytes: AtomicUsize,
    /// Of the base's files, when that was last known.
    base_bytes: AtomicU64,
}

/// The base, kept open as long as this lives.
pub(crate) struct OpenBase<'a>(RwLockReadGuard<'a, Option<Base>>);

impl OpenBase<'_> {
    pub(crate) fn get(&self) -> Result<&Base, Fault> {
        self.0.as_ref().ok_or_else(|| Fault::Retry { what: "the store is not open".to_owned() })
    }
}

impl Records {
    pub(crate) fn open(settings: BaseSettings) -> Result<Self, Fault> {
        let base = Base::open(&settings.path, settings.cache_bytes, Arc::clone(&settings.io))?;
        let base = RwLock::new(Some(base));
        Ok(Self {
            settings,
            base,
            pending: RwLock::default(),
            fresh: Mutex::default(),
            chunks: Chunks::default(),
            ahead: Ahead::default(),
            pins: Arc::default(),
            bytes: AtomicUsize::new(0),
            base_bytes: AtomicU64::new(0),
        })
    }

    pub(crate) fn base(&self) -> OpenBase<'_> {
        OpenBase(self.base.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes of the base's files; as last known while it is opened again, or waits to be: nobody who counts is to wait for that.
    pub(crate) fn base_bytes(&self) -> u64 {
        if let Ok(base) = self.base.try_read() {
            self.base_bytes.store(base.as_ref().map_or(0, Base::disk_bytes), Ordering::Relaxed);
        }
        self.base_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn pending(&self) -> RwLockReadGuard<'_, Pending> {
        self.index();
        self.pending.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pending_mut(&self) -> RwLockWriteGuard<'_, Pending> {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = std::mem::take(&mut *self.fresh());
        for fresh in fresh {
            pending.apply(fresh, self.pins.oldest());
        }
        pending
    }

    /// Memory that is free to be used again.
    pub(crate) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    fn fresh(&self) -> MutexGuard<'_, VecDeque<Fresh>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings what is fresh into the index.
    pub(crate) fn index(&self) {
        if !self.fresh().is_empty() {
            drop(self.pending_mut());
        }
    }

    /// The same, one batch after the other, with rests: nobody waits for it.
    pub(crate) fn index_gently(&self) {
        let is_urgent = || self.fresh().len() > FRESH_MAX / 2;
        let mut bites = Bites::new(&is_urgent);
        while self.index_first() {
            bites.rest();
        }
    }

    /// Brings the oldest batch that is fresh into the index; whether there was one.
    fn index_first(&self) -> bool {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        let first = self.fresh().pop_front();
        first.map(|fresh| pending.apply(fresh, self.pins.oldest())).is_some()
    }

    /// The frozen layer is in the base now: whoever asks finds its records there.
    pub(crate) fn thaw(&self) {
        self.ahead.clear();
        let frozen = self.pending_mut().frozen.take();
        self.bytes.fetch_sub(frozen.map_or(0, |layer| layer.bytes), Ordering::Relaxed);
    }

    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// Makes a batch visible; answers how many are fresh. `spent`: see [`Fresh`].
    pub(crate) fn apply(&self, sequence: u64, batch: Batch, spent: Option<BytesMut>) -> usize {
        self.pins.advance(sequence);
        self.bytes.fetch_add(batch.buffer_bytes(), Ordering::Relaxed);
        let mut fresh = self.fresh();
        fresh.push_back(Fresh { sequence, batch, spent });
        let count = fresh.len();
        if count > FRESH_MAX {
            drop(fresh);
            self.index();
            return 0;
        }
        count
    }

    /// Bytes of the batches that the base does not contain.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Fails with `Full` if the disk has no room for `bytes` more in the base. Asked before a checkpoint,
    /// because fjall refuses everything once a write has failed.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), Fault> {
        let path = &self.settings.path;
        let available = self.settings.io.available(path).unwrap_or(u64::MAX);
        if available >= bytes {
            return Ok(());
        }
        let what = format!("{}: a checkpoint needs {bytes} bytes, {available} are free", path.display());
        Err(Fault::Full { what })
    }

    /// Closes the base and opens it again: what it takes after fjall has failed a write.
    pub(crate) fn reopen_base(&self) -> Result<(), Fault> {
        let mut base = self.base.write().unwrap_or_else(PoisonError::into_inner);
        drop(base.take());
        let settings = &self.settings;
        *base = Some(Base::open(&settings.path, settings.cache_bytes, Arc::clone(&settings.io))?);
        Ok(())
    }

    /// Closes the base for good, so that another store may open it. Readers fail from now on.
    pub(crate) fn shut(&self) {
        drop(self.base.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Every header. No commit may run meanwhile.
    pub(crate) fn load(&self, each: EachHeader<'_>) -> Result<(), Fault> {
        // Who loads may give numbers of bodies that are gone to others.
        self.ahead.clear();
        let base = self.base();
        let pending = self.pending();
        let mut scan = base.get()?.scan(Space::Header);
        while let Some(record) = scan.record() {
            let (key, value) = record?;
            if !pending.covers(Space::Header, &key) {
                each(&key, &value)?;
            }
        }
        pending.records(Space::Header).try_for_each(|(key, value)| each(key, value))
    }
}

impl Bodies for Records {
    fn pin(&self) -> Pin {
        self.pins.pin()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        match self.pending().look(key, self.pins.oldest()) {
            Looked::Found(value) => return Ok(Some(value)),
            Looked::Gone => return Ok(None),
            Looked::Below => {}
        }
        let found = self.ahead.get(self.base().get()?, key, || self.pending())?;
        // Not there: a checkpoint may just have taken it from the base and left a ghost.
        Ok(found.or_else(|| self.pending().ghost(key, self.pins.oldest())))
    }

    fn at_hand(&self, key: &[u8]) -> Option<Bytes> {
        self.ahead.at_hand(key)
    }

    fn is_low(&self) -> bool {
        self.ahead.is_low()
    }

    fn read_on(&self) {
        if let Ok(base) = self.base().get() {
            self.ahead.read_on(base, || self.pending());
        }
    }

    fn keys(&self, each: EachKey<'_>) -> Result<(), Fault> {
        let base = self.base();
        // A commit must not wait for the whole pass: the pending keys are copied (8 bytes each).
        let pending = self.pending();
        let mut scan = base.get()?.scan(Space::Body);
        let covered: HashSet<Box<[u8]>> = pending.covered_bodies().map(Box::from).collect();
        let added: Vec<Box<[u8]>> = pending.records(Space::Body).map(|(key, _)| Box::from(key)).collect();
        drop(pending);
        while let Some(key) = scan.key() {
            let key = key?;
            if !covered.contains(&*key) {
                each(&key)?;
            }
        }
        added.iter().try_for_each(|key| each(key))
    }

    fn copy(&self, each: EachRecord<'_>) -> Result<(), Fault> {
        let base = self.base();
        // The moment: no batch can be applied while this is held. A scan of the base sees it as it was when it began.
        let pending = self.pending();
        let (mut headers, mut bodies) = (base.get()?.scan(Space::Header), base.get()?.scan(Space::Body));
        let [active, frozen] = pending.contents();
        drop(pending);
        let layers = [&active, &frozen];
        for (space, scan) in [(Space::Header, &mut headers), (Space::Body, &mut bodies)] {
            while let Some(record) = scan.record() {
                let (key, value) = record?;
                if !layers.iter().any(|layer| layer.covers(space, &key)) {
                    each(space, &key, &value)?;
                }
            }
            pending::added(layers.map(Some), space).try_for_each(|(key, value)| each(space, key, value))?;
        }
        Ok(())
    }

    fn about(&self) -> Option<u64> {
        let base = self.base().get().ok()?.about();
        let pending = self.pending();
        Some(base + (pending.records(Space::Header).count() + pending.records(Space::Body).count()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::disk::{DiskOptions, DiskStore};

    #[test]
    fn what_is_fresh_is_bounded_and_found_by_whoever_looks() {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
        let mut put = |number: usize| {
            let mut batch = Batch::default();
            batch.put(Space::Body, number.to_be_bytes(), number.to_string());
            store.records.apply(number as u64, batch, None)
        };
        assert_eq!((put(0), put(1), put(2)), (1, 2, 3));
        assert_eq!(store.bodies().get(&1_usize.to_be_bytes()), Ok(Some("1".into())));
        assert_eq!(put(3), 1, "who looked has indexed them");
        let counts: Vec<usize> = (4..4 + FRESH_MAX).map(&mut put).collect();
        assert_eq!(counts, (2..=FRESH_MAX).chain([0]).collect::<Vec<_>>());
        let many = FRESH_MAX - 1;
        assert_eq!(store.bodies().get(&many.to_be_bytes()), Ok(Some(many.to_string().into())));
        assert_eq!(store.stats().pending_bytes, store.records.pending().bytes() as u64);
    }
}
