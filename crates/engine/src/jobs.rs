//! All jobs of a tenant by jid. The jid is in the job: a table of its own names would cost as much again as its slots.

use std::borrow::Borrow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table};

use crate::Name;
use crate::job::Job;

/// Jobs by jid.
#[derive(Default)]
pub(crate) struct Jobs {
    table: HashTable<Box<Job>>,
    hasher: DefaultHashBuilder,
}

impl Jobs {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn contains_key(&self, jid: &Name) -> bool {
        self.get(jid).is_some()
    }

    pub(crate) fn get<N: Borrow<[u8]> + ?Sized>(&self, jid: &N) -> Option<&Job> {
        let hash = self.hasher.hash_one(jid.borrow());
        self.table.find(hash, |job| job.jid.bytes() == jid.borrow()).map(|job| &**job)
    }

    pub(crate) fn get_mut(&mut self, jid: &Name) -> Option<&mut Job> {
        let hash = self.hasher.hash_one(jid.bytes());
        self.table.find_mut(hash, |job| job.jid == *jid).map(|job| &mut **job)
    }

    /// Adds a job, in place of the one of its name if there is one.
    pub(crate) fn insert(&mut self, job: Box<Job>) -> &mut Job {
        let hash = self.hasher.hash_one(job.jid.bytes());
        match self.table.entry(
            hash,
            |other| other.jid == job.jid,
            |other| self.hasher.hash_one(other.jid.bytes()),
        ) {
            hash_table::Entry::Occupied(mut slot) => {
                *slot.get_mut() = job;
                slot.into_mut()
            }
            hash_table::Entry::Vacant(slot) => slot.insert(job).into_mut(),
        }
    }

    pub(crate) fn remove(&mut self, jid: &Name) -> Option<Box<Job>> {
        let hash = self.hasher.hash_one(jid.bytes());
        let slot = self.table.find_entry(hash, |job| job.jid == *jid).ok()?;
        Some(slot.remove().0)
    }

    /// All of them, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Job> {
        self.table.iter().map(|job| &**job)
    }

    /// All of them with their jids, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &Job)> {
        self.values().map(|job| (&job.jid, job))
    }
}

impl IntoIterator for Jobs {
    type Item = Box<Job>;
    type IntoIter = hash_table::IntoIter<Box<Job>>;

    fn into_iter(self) -> Self::IntoIter {
        self.table.into_iter()
    }
}
