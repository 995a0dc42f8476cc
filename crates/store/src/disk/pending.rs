//! What is in the log but not in the base yet, in memory: a layer that commits go to, and a frozen one
//! that a checkpoint is writing out. The last change of a key is all that counts, so what is put and
//! deleted between two checkpoints never reaches the base.
//!
//! A layer keeps the frames of the log as they are, and says where in them the last change of each key is: a round with
//! thousands of records costs no allocation for each. What was overtaken stays until the layer is in the base; all of it is
//! no more than the log may hold.
//!
//! Ghosts: bodies that are deleted but may still be asked for under a pin. Either the layer below still
//! has the value (then the look-up goes on downwards), or it is kept here until the last such pin goes.

use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::bites::Bites;
use super::chunks::Chunks;
use crate::batch::ROOM_BYTES;
use crate::{Batch, Record, Space};

/// A batch that is not indexed yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) sequence: u64,
    pub(crate) batch: Batch,
    /// A chunk that the batches before this one have filled: see `chunks.rs`.
    pub(crate) spent: Option<BytesMut>,
}

/// A batch as it lies in the log.
#[derive(Clone, Debug)]
struct Frame {
    sequence: u64,
    bytes: Bytes,
}

/// Where the last change of a key is.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u32,
    /// Which frame of the layer.
    frame: u32,
    /// Where in it.
    offset: u32,
}

/// The changes of a run of batches, last one wins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    frames: Vec<Frame>,
    headers: Table,
    bodies: Table,
    hasher: DefaultHashBuilder,
    /// Filled with frames of this layer and of those before it.
    spent: Vec<BytesMut>,
    /// Bytes of the frames.
    pub(crate) bytes: usize,
}

/// Entries that an emptied layer keeps room for, of each kind.
const SPARE_ENTRIES_MAX: usize = 1 << 20;

/// Parts of a table.
const PARTS: usize = 64;

/// Places by the hash of their keys, in parts: one large table would grow in one go, and everybody would wait for it.
#[derive(Clone, Debug)]
struct Table([HashTable<Place>; PARTS]);

impl Default for Table {
    fn default() -> Self {
        Table(std::array::from_fn(|_| HashTable::new()))
    }
}

/// A part takes its slots from the low bits of a hash and its marks from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// Which part: by bits that a part itself hardly looks at.
fn part(hash: u32) -> usize {
    (hash >> 19) as usize % PARTS
}

impl Table {
    fn is_empty(&self) -> bool {
        self.0.iter().all(HashTable::is_empty)
    }

    fn clear(&mut self) {
        for part in &mut self.0 {
            part.clear();
            part.shrink_to(SPARE_ENTRIES_MAX / PARTS, |place| spread(place.hash));
        }
    }

    fn shrink(&mut self) {
        self.0.iter_mut().for_each(|part| part.shrink_to_fit(|place| spread(place.hash)));
    }

    fn find(&self, hash: u32, same: impl FnMut(&Place) -> bool) -> Option<Place> {
        self.0.get(part(hash))?.find(spread(hash), same).copied()
    }

    /// Sets a place; answers the one before.
    fn set(&mut self, place: Place, same: impl FnMut(&Place) -> bool) -> Option<Place> {
        match self.0.get_mut(part(place.hash))?.entry(spread(place.hash), same, |place| spread(place.hash)) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(entry.get_mut(), place)),
            Entry::Vacant(entry) => {
                entry.insert(place);
                None
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().flatten()
    }
}

fn frame_at(frames: &[Frame], place: Place) -> Option<(&Frame, Record<'_>)> {
    let frame = frames.get(place.frame as usize)?;
    let (record, _) = Record::first(frame.bytes.get(place.offset as usize..)?)?;
    Some((frame, record))
}

impl Layer {
    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.headers.is_empty() && self.bodies.is_empty()
    }

    /// Empties it and keeps its memory, within a bound.
    pub(crate) fn clear(&mut self, chunks: &Chunks, bites: &mut Bites<'_>) {
        while self.frames.pop().is_some() {
            bites.rest();
        }
        self.spent.drain(..).for_each(|chunk| chunks.take_back(chunk));
        self.headers.clear();
        self.bodies.clear();
        self.bytes = 0;
    }

    /// Gives the memory back that it does not need.
    fn shrink(&mut self) {
        self.frames.shrink_to_fit();
        self.headers.shrink();
        self.bodies.shrink();
    }

    fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    fn table(&self, space: Space) -> &Table {
        match space {
            Space::Header => &self.headers,
            Space::Body => &self.bodies,
        }
    }

    /// Takes a batch in. Hands the values of deleted bodies that it had to `gone`.
    fn take(&mut self, fresh: Fresh, mut gone: impl FnMut(&[u8], Bytes)) {
        let Fresh { sequence, batch, spent } = fresh;
        self.spent.extend(spent);
        let bytes = batch.into_buffer();
        self.bytes += bytes.len();
        let number = self.frames.len() as u32;
        self.frames.push(Frame { sequence, bytes: bytes.clone() });
        let mut rest = bytes.get(ROOM_BYTES..).unwrap_or_default();
        while let Some((record, after)) = Record::first(rest) {
            let offset = (bytes.len() - rest.len()) as u32;
            let place = Place { hash: self.hash(record.key), frame: number, offset };
            let old = self.set(&record, place);
            if record.space == Space::Body
                && record.value.is_none()
                && let Some((frame, Record { value: Some(value), .. })) =
                    old.and_then(|old| frame_at(&self.frames, old))
            {
                gone(record.key, frame.bytes.slice_ref(value));
            }
            rest = after;
        }
    }

    /// Notes where a record is; answers where it was.
    fn set(&mut self, record: &Record<'_>, place: Place) -> Option<Place> {
        let Layer { frames, headers, bodies, .. } = self;
        let table = match record.space {
            Space::Header => headers,
            Space::Body => bodies,
        };
        let same = |old: &Place| {
            old.hash == place.hash && frame_at(frames, *old).is_some_and(|(_, old)| old.key == record.key)
        };
        table.set(place, same)
    }

    /// The last change of a key, and by which batch.
    fn get(&self, space: Space, key: &[u8]) -> Option<(&Frame, Record<'_>)> {
        let hash = self.hash(key);
        let same = |place: &Place| {
            place.hash == hash && frame_at(&self.frames, *place).is_some_and(|(_, record)| record.key == key)
        };
        frame_at(&self.frames, self.table(space).find(hash, same)?)
    }

    /// Whether it has something to say about a key.
    pub(crate) fn covers(&self, space: Space, key: &[u8]) -> bool {
        self.get(space, key).is_some()
    }

    /// The last change of each key, and by which batch, one batch after the other and each from its start: as they lie in memory, and
    /// mostly as their keys are ordered.
    pub(crate) fn records_in_order(&self, space: Space, bites: &mut Bites<'_>) -> Vec<(u64, Record<'_>)> {
        let parts = &self.table(space).0;
        let mut ends = vec![0_usize; self.frames.len()];
        for part in parts {
            for place in part {
                ends.get_mut(place.frame as usize).into_iter().for_each(|count| *count += 1);
            }
            bites.rest();
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut offsets = vec![0_u32; sum];
        for part in parts {
            for place in part {
                let end = ends.get_mut(place.frame as usize);
                if let Some((slot, end)) = end.and_then(|end| offsets.get_mut(*end).map(|slot| (slot, end))) {
                    *slot = place.offset;
                    *end += 1;
                }
            }
            bites.rest();
        }
        let mut records = Vec::with_capacity(sum);
        let mut start = 0;
        for (frame, end) in self.frames.iter().zip(ends) {
            let offsets = offsets.get_mut(start..end).unwrap_or_default();
            start = end;
            offsets.sort_unstable();
            let found =
                offsets.iter().filter_map(|offset| Record::first(frame.bytes.get(*offset as usize..)?));
            records.extend(found.map(|(record, _)| (frame.sequence, record)));
            bites.rest();
        }
        records
    }

    /// The last change of each key, and by which batch; in no order.
    pub(crate) fn records(&self, space: Space) -> impl Iterator<Item = (u64, Record<'_>)> {
        let places = self.table(space).iter();
        places
            .filter_map(|place| frame_at(&self.frames, *place))
            .map(|(frame, record)| (frame.sequence, record))
    }
}

/// A deleted body's value and the batch that deleted it.
#[derive(Clone, Debug)]
struct Ghost {
    by: u64,
    value: Bytes,
}

/// Where a look-up in memory ended.
pub(crate) enum Looked {
    /// Here is the value.
    Found(Bytes),
    /// Deleted, for everybody.
    Gone,
    /// Look in the base.
    Below,
}

/// The layers and the ghosts.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) active: Layer,
    pub(crate) frozen: Option<Arc<Layer>>,
    /// An empty layer that still has the memory of the last one: growing a table anew costs more than filling it.
    spare: Layer,
    ghosts: HashMap<Bytes, Ghost>,
}

impl Pending {
    /// Applies a durable batch. `oldest` is the oldest living pin.
    pub(crate) fn apply(&mut self, fresh: Fresh, oldest: u64) {
        let sequence = fresh.sequence;
        let ghosts = &mut self.ghosts;
        if !ghosts.is_empty() {
            ghosts.retain(|_, ghost| ghost.by > oldest);
        }
        self.active.take(fresh, |key, value| {
            if sequence > oldest {
                ghosts.insert(Bytes::copy_from_slice(key), Ghost { by: sequence, value });
            }
        });
    }

    /// Looks for a body from the newest layer down.
    pub(crate) fn look(&self, key: &[u8], oldest: u64) -> Looked {
        for layer in [Some(&self.active), self.frozen.as_deref()].into_iter().flatten() {
            match layer.get(Space::Body, key) {
                Some((frame, Record { value: Some(value), .. })) => {
                    return Looked::Found(frame.bytes.slice_ref(value));
                }
                Some((frame, _)) if frame.sequence <= oldest => return Looked::Gone,
                Some((frame, _)) => {
                    if let Some(ghost) = self.ghosts.get(key).filter(|ghost| ghost.by == frame.sequence) {
                        return Looked::Found(ghost.value.clone());
                    }
                }
                None => {}
            }
        }
        Looked::Below
    }

    /// The ghost of a body that is neither in a layer nor in the base any more.
    pub(crate) fn ghost(&self, key: &[u8], oldest: u64) -> Option<Bytes> {
        self.ghosts.get(key).filter(|ghost| ghost.by > oldest).map(|ghost| ghost.value.clone())
    }

    /// Keeps the value of a body that is about to go from the base. A newer ghost stays.
    pub(crate) fn haunt(&mut self, key: &[u8], by: u64, value: Bytes) {
        if self.ghosts.get(key).is_none_or(|ghost| ghost.by < by) {
            self.ghosts.insert(Bytes::copy_from_slice(key), Ghost { by, value });
        }
    }

    /// Turns the active layer into the frozen one. The caller made sure that there is none.
    pub(crate) fn freeze(&mut self) {
        debug_assert!(self.frozen.is_none(), "one checkpoint at a time");
        let next = std::mem::take(&mut self.spare);
        self.frozen = Some(Arc::new(std::mem::replace(&mut self.active, next)));
    }

    /// Takes back an emptied layer for the next [`Pending::freeze`].
    pub(crate) fn keep_spare(&mut self, layer: Layer) {
        debug_assert!(layer.is_empty(), "what is in it would come back to life");
        self.spare = layer;
    }

    /// Gives the memory back that was kept for the next layers.
    pub(crate) fn shrink(&mut self) {
        self.spare = Layer::default();
        self.active.shrink();
        self.ghosts.shrink_to_fit();
    }

    /// Whether a layer has something to say about this record of the base.
    pub(crate) fn covers(&self, space: Space, key: &[u8]) -> bool {
        let covers = |layer: &Layer| layer.covers(space, key);
        covers(&self.active) || self.frozen.as_deref().is_some_and(covers)
    }

    /// The bodies that a layer has something to say about.
    pub(crate) fn covered_bodies(&self) -> impl Iterator<Item = &[u8]> {
        let layers = [Some(&self.active), self.frozen.as_deref()].into_iter().flatten();
        layers.flat_map(|layer| layer.records(Space::Body)).map(|(_, record)| record.key)
    }

    /// The records that the layers add.
    pub(crate) fn records(&self, space: Space) -> impl Iterator<Item = (&[u8], &[u8])> {
        added([Some(&self.active), self.frozen.as_deref()], space)
    }

    /// The active layer and the frozen one, copied; their frames are shared.
    pub(crate) fn contents(&self) -> [Layer; 2] {
        [self.active.clone(), self.frozen.as_deref().cloned().unwrap_or_default()]
    }

    /// Bytes of records held, ghosts aside.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.active.bytes + self.frozen.as_ref().map_or(0, |layer| layer.bytes)
    }
}

/// The records that a layer and the one below it add.
pub(crate) fn added(
    [active, frozen]: [Option<&Layer>; 2],
    space: Space,
) -> impl Iterator<Item = (&[u8], &[u8])> {
    let below = frozen.into_iter().flat_map(move |layer| layer.records(space));
    let below = below.filter(move |(_, record)| active.is_none_or(|above| !above.covers(space, record.key)));
    let above = active.into_iter().flat_map(move |layer| layer.records(space));
    above.chain(below).filter_map(|(_, record)| Some((record.key, record.value?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_each_key_comes_in_the_order_of_the_batches() {
        let mut layer = Layer::default();
        for sequence in 0..40_u64 {
            let mut batch = Batch::default();
            // Each batch replaces one record of the batch before, and deletes one that only it has.
            for key in [3 * sequence + 3, 3 * sequence, 3 * sequence + 1] {
                batch.put(Space::Header, format!("{key:03}"), sequence.to_string());
            }
            batch.delete(Space::Header, format!("{:03}", 3 * sequence + 2));
            batch.put(Space::Body, sequence.to_be_bytes(), "a body");
            layer.take(Fresh { sequence, batch, spent: None }, |_, _| {});
        }
        let idle = || true;
        let mut bites = Bites::new(&idle);
        let ordered = layer.records_in_order(Space::Header, &mut bites);
        let keys: Vec<(u64, &[u8])> = ordered.iter().map(|(by, record)| (*by, record.key)).collect();
        let expected = (0..40_u64).flat_map(|by| {
            let last = (by == 39).then_some(3 * by + 3);
            last.into_iter().chain([3 * by, 3 * by + 1, 3 * by + 2]).map(move |key| (by, format!("{key:03}")))
        });
        let expected: Vec<(u64, String)> = expected.collect();
        assert!(keys.iter().copied().eq(expected.iter().map(|(by, key)| (*by, key.as_bytes()))), "{keys:?}");
        assert_eq!(ordered.iter().filter(|(_, record)| record.value.is_none()).count(), 40);
        let mut any: Vec<(u64, &[u8])> =
            layer.records(Space::Header).map(|(by, record)| (by, record.key)).collect();
        any.sort_unstable();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!(any, sorted, "the same records");
        assert_eq!(layer.records_in_order(Space::Body, &mut bites).len(), 40);
    }
}
