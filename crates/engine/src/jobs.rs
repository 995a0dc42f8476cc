//! All jobs of a tenant by jid. The jid is in the job: a table of its own names would cost as much again as its slots.
//!
//! One hash table of millions would be moved as a whole when it grows, and everybody waits for that. So there are many small
//! ones: one that is full is split in two, and nothing else moves.

use std::borrow::Borrow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table};

use crate::Name;
use crate::job::Job;

/// Jobs of a table at most: what its 1024 slots hold. So many move at once.
const TABLE_MAX: usize = 896;
/// Bits of a hash that tell a table from the others, at most. Should they not suffice, tables grow.
const DEPTH_MAX: u32 = 24;

/// Jobs by jid.
#[derive(Default)]
pub(crate) struct Jobs {
    /// The table of each value of the bits that tell them apart. Their number is a power of two.
    parts: Vec<Part>,
    tables: Vec<HashTable<Box<Job>>>,
    hasher: DefaultHashBuilder,
    len: usize,
}

#[derive(Clone, Copy)]
struct Part {
    table: u32,
    /// How many bits the jobs of the table have in common; the other parts that agree in these have the same table.
    depth: u32,
}

/// The bits that tell tables apart: some that the tables do not look at.
fn bits_of(hash: u64) -> usize {
    (hash >> 16) as usize
}

impl Jobs {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains_key(&self, jid: &Name) -> bool {
        self.get(jid).is_some()
    }

    #[inline]
    fn part(&self, hash: u64) -> Option<Part> {
        self.parts.get(bits_of(hash) & self.parts.len().wrapping_sub(1)).copied()
    }

    #[inline]
    fn table_mut(&mut self, hash: u64) -> Option<&mut HashTable<Box<Job>>> {
        let part = self.part(hash)?;
        self.tables.get_mut(part.table as usize)
    }

    pub(crate) fn get<N: Borrow<[u8]> + ?Sized>(&self, jid: &N) -> Option<&Job> {
        let jid = jid.borrow();
        let hash = self.hasher.hash_one(jid);
        let table = self.tables.get(self.part(hash)?.table as usize)?;
        table.find(hash, |job| job.jid.bytes() == jid).map(|job| &**job)
    }

    pub(crate) fn get_mut(&mut self, jid: &Name) -> Option<&mut Job> {
        let hash = self.hasher.hash_one(jid.bytes());
        self.table_mut(hash)?.find_mut(hash, |job| job.jid == *jid).map(|job| &mut **job)
    }

    /// Adds a job, in place of the one of its name if there is one. It is there then.
    pub(crate) fn insert(&mut self, job: Box<Job>) -> Option<&mut Job> {
        let hash = self.hasher.hash_one(job.jid.bytes());
        self.make_room(hash);
        let part = self.part(hash)?;
        let table = self.tables.get_mut(part.table as usize)?;
        match table.entry(hash, |other| other.jid == job.jid, |other| self.hasher.hash_one(other.jid.bytes()))
        {
            hash_table::Entry::Occupied(mut slot) => {
                *slot.get_mut() = job;
                Some(slot.into_mut())
            }
            hash_table::Entry::Vacant(slot) => {
                self.len += 1;
                Some(slot.insert(job).into_mut())
            }
        }
    }

    /// Splits the table that a job of this hash belongs into, if it is full.
    #[inline]
    fn make_room(&mut self, hash: u64) {
        while let Some(part) = self.part(hash) {
            let length = self.tables.get(part.table as usize).map_or(0, HashTable::len);
            if length < TABLE_MAX || part.depth >= DEPTH_MAX {
                return;
            }
            self.split(part, bits_of(hash));
        }
        self.tables.push(HashTable::new());
        self.parts.push(Part { table: 0, depth: 0 });
    }

    /// Those of a table that have one more bit set go to a new one. `bits` are those of any of its jobs.
    #[cold]
    fn split(&mut self, part: Part, bits: usize) {
        let (bit, depth) = (1 << part.depth, part.depth + 1);
        let upper_table = u32::try_from(self.tables.len()).unwrap_or(u32::MAX);
        if self.parts.len() == bit {
            self.parts.extend_from_within(..);
        }
        for (table, first) in [(part.table, bits & (bit - 1)), (upper_table, bits & (bit - 1) | bit)] {
            self.parts
                .iter_mut()
                .skip(first)
                .step_by(bit << 1)
                .for_each(|slot| *slot = Part { table, depth });
        }
        let rehash = |job: &Job| self.hasher.hash_one(job.jid.bytes());
        let (mut lower, mut upper) =
            (HashTable::with_capacity(TABLE_MAX), HashTable::with_capacity(TABLE_MAX));
        if let Some(table) = self.tables.get_mut(part.table as usize) {
            for job in std::mem::take(table) {
                let hash = rehash(&job);
                let half = if bits_of(hash) & bit == 0 { &mut lower } else { &mut upper };
                half.insert_unique(hash, job, |job| rehash(job));
            }
            *table = lower;
        }
        self.tables.push(upper);
    }

    pub(crate) fn remove(&mut self, jid: &Name) -> Option<Box<Job>> {
        let hash = self.hasher.hash_one(jid.bytes());
        let slot = self.table_mut(hash)?.find_entry(hash, |job| job.jid == *jid).ok()?;
        let job = slot.remove().0;
        self.len -= 1;
        Some(job)
    }

    /// All of them, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Job> {
        self.tables.iter().flatten().map(|job| &**job)
    }

    /// All of them with their jids, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &Job)> {
        self.values().map(|job| (&job.jid, job))
    }
}

impl IntoIterator for Jobs {
    type Item = Box<Job>;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<HashTable<Box<Job>>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.tables.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(number: u32) -> Name {
        Name::from(format!("{number:032x}"))
    }

    fn job(number: u32) -> Box<Job> {
        Box::new(Job::new(jid(number), &"queue".into(), &"".into()))
    }

    fn check(jobs: &Jobs) {
        assert_eq!(jobs.values().count(), jobs.len());
        assert!(jobs.parts.is_empty() || jobs.parts.len().is_power_of_two());
        for (bits, part) in jobs.parts.iter().enumerate() {
            let table = &jobs.tables[part.table as usize];
            assert!(table.len() <= TABLE_MAX);
            let common = (1 << part.depth) - 1;
            for job in table {
                let hash = jobs.hasher.hash_one(job.jid.bytes());
                assert_eq!(bits_of(hash) & common, bits & common);
            }
        }
    }

    #[test]
    fn each_is_found_by_its_jid_however_many_there_are() {
        let mut jobs = Jobs::default();
        assert!(jobs.get(&jid(0)).is_none() && jobs.remove(&jid(0)).is_none());
        for number in 0..30_000 {
            assert!(!jobs.contains_key(&jid(number)));
            assert!(jobs.insert(job(number)).is_some());
            if number % 5_000 == 0 {
                check(&jobs);
            }
        }
        check(&jobs);
        assert_eq!(jobs.len(), 30_000);
        assert!((0..30_000).all(|number| jobs.get_mut(&jid(number)).is_some()));
        assert!(jobs.insert(job(7)).is_some());
        assert_eq!(jobs.len(), 30_000);
        for number in (0..30_000).filter(|number| number % 3 != 0) {
            assert_eq!(jobs.remove(&jid(number)).map(|job| job.jid), Some(jid(number)));
        }
        check(&jobs);
        assert_eq!(jobs.len(), 10_000);
        assert!((0..30_000).all(|number| jobs.contains_key(&jid(number)) == (number % 3 == 0)));
        assert_eq!(jobs.into_iter().count(), 10_000);
    }

    #[test]
    fn few_jobs_take_little_room() {
        let mut jobs = Jobs::default();
        (0..3).for_each(|number| assert!(jobs.insert(job(number)).is_some()));
        assert_eq!((jobs.parts.len(), jobs.tables.len()), (1, 1));
        assert!(jobs.tables[0].capacity() < 10);
    }
}
