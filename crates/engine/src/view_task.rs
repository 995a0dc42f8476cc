//! Blueque's keys as views of the jobs: what reads and writes of them need to know.
//!
//! The work of a queue is its pending list (the next one right), its schedule is a sorted set, the running jobs of a
//! worker in it are a reserved list (the newest left). Hashes are synthesised for jobs that no client of Blueque's has
//! touched. What no job stands for is in the scratch keyspace.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::index::Index;
use crate::job::{Job, Place};
use crate::keyspace::Value;
use crate::score::Score;
use crate::task::{Role, Task, value};
use crate::tenant::{Cx, Tenant};
use crate::view::Collection;
use crate::{KeyType, Name, ViewValue};

/// A list of ids, from its left end.
enum Listing<'a> {
    Upwards(&'a Index),
    Downwards(&'a BTreeMap<u64, Name>),
    These(Vec<Name>),
}

/// Whether a key is a list by its name.
pub(crate) fn is_task_list(key: &Name) -> bool {
    crate::is_task_key(key.bytes()) && Role::of(key.bytes()).kind() == Some(KeyType::List)
}

impl Tenant {
    fn listing(&self, key: &Name) -> Listing<'_> {
        let indexes = &self.indexes;
        let none = || Listing::These(Vec::new());
        match Role::of(key.bytes()) {
            Role::Pending(queue) => {
                indexes.queues.get(&queue).map_or_else(none, |queue| Listing::Upwards(&queue.work))
            }
            Role::Complete(queue) => {
                indexes.finished_list(&queue, Place::Completed).map_or_else(none, Listing::Downwards)
            }
            Role::Failed(queue) => {
                indexes.finished_list(&queue, Place::Failed).map_or_else(none, Listing::Downwards)
            }
            Role::Reserved(names) => {
                let held = self.reserved(&names).into_iter().map(|(_, jid)| jid);
                Listing::These(held.chain(indexes.keyspace.entries(key)).collect())
            }
            _ => Listing::These(indexes.keyspace.entries(key)),
        }
    }

    /// The running jobs of every queue and worker whose names, joined, are these; the newest first. Both may contain
    /// underscores, so there can be more than one such pair.
    fn reserved(&self, names: &Name) -> Vec<(Score, Name)> {
        let bytes = names.bytes();
        let joints = (1..bytes.len().saturating_sub(1)).filter(|at| bytes.get(*at) == Some(&b'_'));
        let mut held = Vec::new();
        for at in joints {
            let (queue, worker) =
                (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default());
            let Some(queue) = self.indexes.queues.get(queue) else { continue };
            let is_its = |job: &Job| job.worker_bytes() == worker;
            let locks = queue.locks.iter().filter(|(_, jid)| self.jobs.get(jid).is_some_and(is_its));
            held.extend(locks.cloned());
        }
        held.sort_unstable_by(|a, b| b.cmp(a));
        held
    }

    pub(crate) fn list_len(&self, key: &Name) -> usize {
        match self.listing(key) {
            Listing::Upwards(index) => index.len(),
            Listing::Downwards(list) => list.len(),
            Listing::These(ids) => ids.len(),
        }
    }

    pub(crate) fn list_part(&self, key: &Name, skip: usize, take: usize) -> Vec<Name> {
        let id = |(_, jid): &(Score, Name)| jid.clone();
        match self.listing(key) {
            // The right end, where the next one is, is never far.
            Listing::Upwards(index) if skip > index.len() / 2 => {
                let behind = index.len().saturating_sub(skip.saturating_add(take));
                let count = index.len().saturating_sub(skip + behind);
                let mut part: Vec<Name> = index.iter().rev().skip(behind).take(count).map(id).collect();
                part.reverse();
                part
            }
            Listing::Upwards(index) => index.iter().skip(skip).take(take).map(id).collect(),
            Listing::Downwards(list) => list.values().rev().skip(skip).take(take).cloned().collect(),
            Listing::These(ids) => ids.into_iter().skip(skip).take(take).collect(),
        }
    }

    /// The ids in a list or a schedule that stand for jobs.
    pub(crate) fn ids(&self, key: &Name) -> Vec<Name> {
        match Role::of(key.bytes()) {
            Role::Scheduled(queue) => {
                let scheduled = self.indexes.queues.get(&queue).map(|queue| &queue.scheduled);
                scheduled.into_iter().flatten().map(|(_, jid)| jid.clone()).collect()
            }
            _ => self.list_part(key, 0, usize::MAX),
        }
    }

    /// The type of a key that exists.
    pub(crate) fn kind_of(&self, cx: &Cx<'_>, key: &Name) -> Option<KeyType> {
        if !crate::is_task_key(key.bytes()) {
            return self.collection(cx, key).map(|found| found.kind());
        }
        let there = match Role::of(key.bytes()) {
            Role::Task(jid) => self.task_hash(&jid).is_some_and(|(task, _)| !task.fields.is_empty()),
            Role::Scheduled(queue) => {
                self.indexes.queues.get(&queue).is_some_and(|queue| !queue.scheduled.is_empty())
            }
            Role::Pending(_) | Role::Reserved(_) | Role::Complete(_) | Role::Failed(_) => {
                self.list_len(key) > 0
            }
            Role::Started(_) | Role::Plain(_) => {
                return self.indexes.keyspace.value(key.bytes(), cx.clock).map(|value| match value {
                    Value::String(_) => KeyType::String,
                    Value::List(_) => KeyType::List,
                    Value::Hash(_) => KeyType::Hash,
                    Value::Set(_) => KeyType::Set,
                    Value::Scored(_) => KeyType::Zset,
                });
            }
        };
        Role::of(key.bytes()).kind().filter(|_| there)
    }

    /// The hash of a task, in step with its job.
    fn task_hash(&self, jid: &Name) -> Option<(Cow<'_, Task>, &Job)> {
        let job = self.jobs.get(jid)?;
        let task = match job.task() {
            Some(task) if !task.is_behind(job) => Cow::Borrowed(task),
            Some(task) => {
                let mut task = task.clone();
                task.catch_up(job, job.state);
                Cow::Owned(task)
            }
            None => Cow::Owned(Task::of(job, job.state)),
        };
        Some((task, job))
    }

    /// The view behind a key; none: there is nothing, or it is not a view.
    pub(crate) fn task_collection(&self, key: &Name) -> Option<Collection<'_>> {
        match Role::of(key.bytes()) {
            Role::Task(jid) => {
                let (task, job) = self.task_hash(&jid)?;
                let pair = |(name, field): &(Name, crate::task::Field)| {
                    Some((name.clone(), ViewValue::Text(value(job, field)?.clone())))
                };
                Some(Collection::Hash(task.fields.iter().filter_map(pair).collect()))
            }
            Role::Scheduled(queue) => {
                self.indexes.queues.get(&queue).map(|queue| Collection::Zset(Cow::Borrowed(&queue.scheduled)))
            }
            Role::Started(_) | Role::Plain(_) => None,
            _ => {
                let ids = self.list_part(key, 0, usize::MAX).into_iter();
                Some(Collection::List(ids.map(ViewValue::Name).collect()))
            }
        }
    }

    /// A number that changes whenever a view does; none: the key is not a view.
    pub(crate) fn task_version(&self, key: &Name) -> Option<u64> {
        if !crate::is_task_key(key.bytes()) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        let place = |queue: &Name, place: Place| {
            let queue = self.indexes.queues.get(queue)?;
            queue.versions.get(place as usize).copied().filter(|version| *version > 0)
        };
        match Role::of(key.bytes()) {
            Role::Task(jid) => {
                let (task, job) = match self.task_hash(&jid) {
                    Some(found) if !found.0.fields.is_empty() => found,
                    _ => return Some(0),
                };
                (task.version, job.place, job.attempt(), job.queue.bytes()).hash(&mut hasher);
                job.data.hash(&mut hasher);
            }
            Role::Pending(queue) => match place(&queue, Place::Work) {
                Some(version) => version.hash(&mut hasher),
                None => return Some(0),
            },
            Role::Scheduled(queue) => match place(&queue, Place::Scheduled) {
                Some(version) => version.hash(&mut hasher),
                None => return Some(0),
            },
            Role::Reserved(names) => {
                self.reserved(&names).hash(&mut hasher);
                self.indexes.keyspace.entries(key).hash(&mut hasher);
            }
            Role::Complete(queue) => {
                let list = self.indexes.finished_list(&queue, Place::Completed);
                list.map(|list| (list.len(), list.last_key_value())).hash(&mut hasher);
            }
            Role::Failed(queue) => {
                let list = self.indexes.finished_list(&queue, Place::Failed);
                list.map(|list| (list.len(), list.last_key_value())).hash(&mut hasher);
            }
            Role::Started(_) | Role::Plain(_) => return None,
        }
        Some(hasher.finish() | 1)
    }

    /// The views that Blueque's clients have to do with, tasks apart: of the queues they know. Some may be empty.
    pub(crate) fn task_keys(&self) -> Vec<Name> {
        let indexes = &self.indexes;
        let known = indexes.keyspace.slots.get(&b"blueque_queues"[..]).map(|slot| &slot.value);
        let known: Vec<&Name> = match known {
            Some(Value::Scored(scores)) => scores.keys().collect(),
            _ => Vec::new(),
        };
        let mut keys = Vec::new();
        for queue in known.iter().copied().chain(indexes.finished.keys()) {
            for list in ["pending", "scheduled", "complete", "failed"] {
                keys.push(Name::new(&[format!("blueque_{list}_tasks_").as_bytes(), queue.bytes()].concat()));
            }
        }
        for queue in known {
            let locks = indexes.queues.get(queue).map(|queue| &queue.locks);
            for (_, jid) in locks.into_iter().flatten() {
                let Some(job) = self.jobs.get(jid) else { continue };
                keys.push(Name::new(
                    &[b"blueque_reserved_tasks_", queue.bytes(), b"_", job.worker_bytes()].concat(),
                ));
            }
        }
        keys
    }
}
