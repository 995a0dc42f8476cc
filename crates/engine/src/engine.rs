//! The engine: tenants, the open round, and the way in.

use bytes::Bytes;
use hashbrown::HashMap;

use crate::name::NamePool;
use crate::record::{self, Key, RecordError};
use crate::tenant::{Cx, Tenant};
use crate::text::TEXT_INLINE_MAX;
use crate::{BodyId, Call, Event, Kind, Name, Notice, Refusal, Reply, Text};

/// All state of a shard, in memory but for bodies.
#[derive(Default)]
pub struct Engine {
    tenants: HashMap<Name, Tenant>,
    round: Round,
}

/// What has happened since the last [`Engine::take_changes`]: the round that is still open.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) events: Vec<Event>,
    /// Collected only if somebody listens.
    pub(crate) notices: Vec<Notice>,
    pub(crate) listening: bool,
    /// The number of `bodies[0]`.
    first_body: u64,
    /// Bodies written in this round; the flag says it was dropped again.
    bodies: Vec<(Bytes, bool)>,
    /// How much they are, dropped ones included.
    bodies_bytes: usize,
    dropped: Vec<BodyId>,
    /// Queues and keys whose waiters should look again; collected only if somebody waits.
    touched: Vec<Name>,
    watching: bool,
    /// Tenants commanded in this round; may repeat.
    tenants: Vec<Name>,
    /// Nobody listens: events are not collected.
    pub(crate) hushed: bool,
    /// Reads must not tidy up: nothing can be stored now.
    pub(crate) frozen: bool,
}

impl Round {
    pub(crate) fn keep(&mut self, bytes: Bytes) -> Text {
        if bytes.len() <= TEXT_INLINE_MAX {
            return Text::Short(Name::new(&bytes));
        }
        let id = BodyId(self.first_body + self.bodies.len() as u64);
        self.bodies_bytes += bytes.len();
        self.bodies.push((bytes, false));
        Text::Long(id)
    }

    pub(crate) fn bodies_bytes(&self) -> usize {
        self.bodies_bytes
    }

    pub(crate) fn forget(&mut self, text: &Text) {
        if let Text::Long(id) = text {
            self.drop_body(*id);
        }
    }

    pub(crate) fn drop_body(&mut self, id: BodyId) {
        match self.slot(id) {
            Some((_, dropped)) => *dropped = true,
            None => self.dropped.push(id),
        }
    }

    /// A body written in this round.
    pub(crate) fn body(&mut self, id: BodyId) -> Option<Bytes> {
        self.slot(id).map(|(bytes, _)| bytes.clone())
    }

    fn slot(&mut self, id: BodyId) -> Option<&mut (Bytes, bool)> {
        let index = id.0.checked_sub(self.first_body)?;
        self.bodies.get_mut(usize::try_from(index).ok()?)
    }

    pub(crate) fn touch_queue(&mut self, queue: &Name) {
        if self.watching {
            self.touched.push(queue.clone());
        }
    }
}

/// What a round changed, ready for the store: whole records, so that replaying it is harmless.
#[derive(Default, Debug)]
pub struct Changes {
    /// Header records to write.
    pub puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Header records to delete.
    pub deletes: Vec<Vec<u8>>,
    /// Bodies to write.
    pub bodies: Vec<(BodyId, Bytes)>,
    /// Bodies to delete.
    pub dropped: Vec<BodyId>,
}

/// Entries that a list which is used in every round keeps room for.
const KEPT_ENTRIES_MAX: usize = 1 << 14;

/// The list, to be used again: without its memory, if it was a large round.
pub(crate) fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
    list.clear();
    list.shrink_to(KEPT_ENTRIES_MAX);
    list
}

/// Where a round's changes go: each key once, so that it does not matter in which order they are written.
pub trait Keep {
    /// A header record to write.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// A header record to delete.
    fn delete(&mut self, key: &[u8]);
    /// A body to write.
    fn put_body(&mut self, id: BodyId, bytes: Bytes);
    /// A body to delete.
    fn delete_body(&mut self, id: BodyId);
}

impl Keep for Changes {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.puts.push((key.to_vec(), value.to_vec()));
    }

    fn delete(&mut self, key: &[u8]) {
        self.deletes.push(key.to_vec());
    }

    fn put_body(&mut self, id: BodyId, bytes: Bytes) {
        self.bodies.push((id, bytes));
    }

    fn delete_body(&mut self, id: BodyId) {
        self.dropped.push(id);
    }
}

impl Changes {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.bodies.is_empty() && self.dropped.is_empty()
    }
}

impl Engine {
    /// Does one command. A refused command changed nothing.
    pub fn apply(&mut self, call: Call) -> Result<Reply, Refusal> {
        let Call { tenant, now, clock, rules, command } = call;
        let begins = self.round.tenants.last() != Some(&tenant);
        if begins {
            self.round.tenants.push(tenant.clone());
        }
        let mut cx = Cx { now, clock, rules, round: &mut self.round };
        if matches!(command, crate::Command::Tenants) {
            return Ok(Reply::Names(self.tenants()));
        }
        if matches!(command, crate::Command::Flush) {
            cx.tell_of(Kind::Flushed, None, None);
            self.flush(&tenant);
            return Ok(Reply::Done);
        }
        let tenant = self.tenants.entry_ref(&tenant).or_default();
        if begins {
            tenant.indexes.begin_round();
        }
        tenant.apply(&mut cx, command)
    }

    /// While frozen, commands that only look do not move what is due: nothing could be stored.
    pub fn freeze(&mut self, frozen: bool) {
        self.round.frozen = frozen;
    }

    /// While hushed, no events are collected: nobody would hear them.
    pub fn hush(&mut self, hushed: bool) {
        self.round.hushed = hushed;
    }

    /// The events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.round.events)
    }

    /// Whether to collect what [`Engine::take_notices`] answers.
    pub fn listen(&mut self, listening: bool) {
        self.round.listening = listening;
    }

    /// The notices since the last call, in order.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.round.notices)
    }

    /// Whether to collect what [`Engine::take_touched`] answers.
    pub fn watch(&mut self, watching: bool) {
        self.round.watching = watching;
    }

    /// Queues and scratch keys in which something may have become available since the last call.
    pub fn take_touched(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.round.touched)
    }

    /// A body written in the open round, even if dropped again: replies of this round may need it.
    pub fn body_in_round(&self, id: BodyId) -> Option<&Bytes> {
        let index = id.0.checked_sub(self.round.first_body)?;
        self.round.bodies.get(usize::try_from(index).ok()?).map(|(bytes, _)| bytes)
    }

    /// The number that the next body gets.
    pub fn next_body(&self) -> BodyId {
        BodyId(self.round.first_body + self.round.bodies.len() as u64)
    }

    /// Gives no body a number before this one: somebody may still ask for those of an engine that was here before. No round may be
    /// open.
    pub fn number_bodies_from(&mut self, next: BodyId) {
        self.round.first_body = self.round.first_body.max(next.0);
    }

    /// The body that a job's data is, unless it is short or there is no such job.
    pub fn data_body(&self, tenant: &Name, jid: &Name) -> Option<BodyId> {
        self.tenants.get(tenant)?.jobs.get(jid)?.data.body()
    }

    /// Whether a pop of this queue might find something now, and else the next moment it might by itself.
    pub fn outlook(&self, tenant: &Name, queue: &Name, now: f64) -> (bool, Option<f64>) {
        let Some(queue) = self.tenants.get(tenant).and_then(|tenant| tenant.indexes.queues.get(queue)) else {
            return (false, None);
        };
        if queue.paused {
            return (false, None);
        }
        let due = queue.next_due();
        (!queue.work.is_empty() || due.is_some_and(|due| due <= now), due)
    }

    /// Ends the round: everything changed since the last call, as records.
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.write_changes(&mut changes);
        changes
    }

    /// The same, handed to `out` record by record.
    pub fn write_changes(&mut self, out: &mut impl Keep) {
        for name in self.round.tenants.drain(..) {
            if let Some(tenant) = self.tenants.get_mut(&name) {
                record::collect(&name, tenant, out);
            }
        }
        let first = self.round.first_body;
        self.round.first_body += self.round.bodies.len() as u64;
        self.round.bodies_bytes = 0;
        for (index, (bytes, dropped)) in self.round.bodies.drain(..).enumerate() {
            if !dropped {
                out.put_body(BodyId(first + index as u64), bytes);
            }
        }
        self.round.dropped.drain(..).for_each(|id| out.delete_body(id));
        self.round.bodies = emptied(std::mem::take(&mut self.round.bodies));
        self.round.dropped = emptied(std::mem::take(&mut self.round.dropped));
    }

    /// Whether [`Engine::take_changes`] may have anything to give.
    pub fn has_changes(&self) -> bool {
        let round = &self.round;
        !(round.tenants.is_empty() && round.bodies.is_empty() && round.dropped.is_empty())
    }

    /// How many jobs there are, over all tenants.
    pub fn jobs(&self) -> usize {
        self.tenants.values().map(|tenant| tenant.jobs.len()).sum()
    }

    /// The tenants that hold anything, by name.
    pub fn tenants(&self) -> Vec<Name> {
        let mut names: Vec<Name> = self.tenants.keys().cloned().collect();
        names.sort();
        names
    }

    pub(crate) fn tenant_states(&self) -> impl Iterator<Item = (&Name, &Tenant)> {
        self.tenants.iter()
    }

    fn flush(&mut self, name: &Name) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        let mut fresh = Tenant::default();
        fresh.indexes.failure_seq = tenant.indexes.failure_seq;
        fresh.indexes.finished_seq = tenant.indexes.finished_seq;
        fresh.indexes.keyspace.go_on_from(&tenant.indexes.keyspace);
        let old = std::mem::replace(tenant, fresh);
        for job in old.jobs {
            let jid = job.jid.clone();
            job.bodies().for_each(|id| self.round.drop_body(id));
            for other in job.more.iter().flat_map(|more| &more.dependencies) {
                tenant.indexes.dirty.insert(Key::Edge(jid.clone(), other.clone()));
            }
            tenant.indexes.dirty_jobs.push(jid);
        }
        tenant.indexes.dirty_jobs.extend(old.indexes.dirty_jobs);
        let dirty = &mut tenant.indexes.dirty;
        dirty.extend(old.indexes.dirty);
        dirty.extend(old.indexes.queues.into_keys().map(Key::Queue));
        dirty.extend(old.indexes.workers.into_keys().map(Key::Worker));
        dirty.extend(old.indexes.tags.into_keys().map(Key::Tag));
        dirty.extend(old.indexes.recurs.into_keys().map(Key::Recur));
        dirty.extend(old.indexes.throttles.into_keys().map(Key::Throttle));
        dirty.extend(old.indexes.tracked.into_keys().map(Key::Tracked));
        dirty.extend(old.indexes.config.options.into_keys().map(Key::Option));
        dirty.extend(old.indexes.stats.into_keys().map(|(day, queue)| Key::Stats(day, queue)));
        dirty.extend(old.indexes.keyspace.slots.into_keys().map(Key::Scratch));
    }
}

/// A header record, read.
pub struct Loaded {
    tenant: Name,
    record: record::Loaded,
}

/// Reads header records. Several may do so at once.
#[derive(Default)]
pub struct Decoder {
    names: NamePool,
}

impl Decoder {
    /// Reads one record, for [`Loader::take`].
    pub fn decode(&mut self, key: &[u8], value: &[u8]) -> Result<Loaded, RecordError> {
        let (tenant, key) = record::decode_key(key)?;
        let tenant = self.names.shared(tenant);
        Ok(Loaded { tenant, record: record::decode_record(&mut self.names, key, value)? })
    }
}

/// Rebuilds an engine from its stored headers, in any order.
#[derive(Default)]
pub struct Loader {
    engine: Engine,
    edges: Vec<(Name, Name, Name)>,
    decoder: Decoder,
}

impl Loader {
    /// Takes in one header record.
    pub fn header(&mut self, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
        let loaded = self.decoder.decode(key, value)?;
        self.take(loaded)
    }

    /// Takes in one that was read already.
    pub fn take(&mut self, loaded: Loaded) -> Result<(), RecordError> {
        let Loaded { tenant, record } = loaded;
        let state = self.engine.tenants.entry_ref(&tenant).or_default();
        if let record::Loaded::Other(Key::Edge(jid, other), _) = record {
            self.edges.push((tenant, jid, other));
            return Ok(());
        }
        record::load(state, record)
    }

    /// Builds the indexes.
    pub fn finish(mut self) -> Engine {
        for (tenant, jid, other) in self.edges {
            let Some(tenant) = self.engine.tenants.get_mut(&tenant) else { continue };
            if let Some(job) = tenant.jobs.get_mut(&other) {
                job.more().dependents.insert(jid.clone());
            }
            if let Some(job) = tenant.jobs.get_mut(&jid) {
                job.more().dependencies.insert(other);
            }
        }
        let mut last_body = None;
        for tenant in self.engine.tenants.values_mut() {
            last_body = last_body.max(record::rebuild(tenant));
        }
        self.engine.round.first_body = last_body.map_or(0, |id: BodyId| id.0 + 1);
        self.engine
    }
}
