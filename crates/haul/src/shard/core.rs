//! A round, step by step. No threads and no clock: the simulator and the tests drive it as the thread does.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use haul_engine::{BodyId, Call, Command, Engine, Event, Keep, KeyAnswer, Name, Notice, Refusal, Reply};
use haul_store::{Batch, Bodies, Fault, Pin, Space, Store, Ticket};

use super::load;
use super::outlet::Done;
use super::tally::Slot;
use super::thread::Counters;
use super::waiters::{Waiter, Waiters, Want};
use crate::bus::Listeners;

/// Bytes of recently written bodies kept at hand for the pops that follow their puts.
const RECENT_BYTES_MAX: usize = 32 << 20;
/// Their numbers, those that are gone again included.
const RECENT_BODIES_MAX: usize = 1 << 18;

/// Commands of one client that are applied without interleaving, in one round.
pub(crate) struct Request {
    pub(crate) calls: Vec<Call>,
    /// Keys whose fingerprints must not have changed; else none of the calls is done.
    pub(crate) watched: Vec<(Name, Name, u64)>,
    /// Seconds the (single) call waits if there is nothing yet.
    pub(crate) wait: Option<f64>,
    pub(crate) done: Done,
}

/// What comes back for a request.
pub(crate) struct Delivery {
    /// One for each call; none if a watched key had changed.
    pub(crate) outcomes: Option<Vec<Outcome>>,
}

/// The outcome of one call, and the bodies that belong to it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done {
        reply: Result<Reply, Refusal>,
        bodies: Fetch,
    },
    /// It could not be made durable; nothing of it happened.
    Fault(Fault),
}

/// Where bodies are read: the reader of the store that is open now.
pub(crate) type Source = Arc<RwLock<Arc<dyn Bodies>>>;

/// Bodies of a reply: some at hand, some to be read from the store.
#[derive(Default)]
pub(crate) struct Fetch {
    pub(crate) found: Vec<(BodyId, Bytes)>,
    pub(crate) missing: Vec<BodyId>,
    /// Keeps the missing ones readable.
    pub(crate) pin: Option<Pin>,
    /// Where they are; none: nothing is missing.
    pub(crate) source: Option<Source>,
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetch")
            .field("found", &self.found)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

/// Where events go, once durable.
pub(crate) trait Publish {
    fn publish(&mut self, tenant: &Name, events: Vec<Event>);

    /// Who wants notices; asked for once.
    fn listeners(&self) -> Listeners {
        Listeners::default()
    }

    /// What happened in full, while anybody wants it.
    fn notice(&mut self, _tenant: &Name, _notices: Vec<Notice>) {}

    /// Whether anybody would hear them now.
    fn is_heard(&self) -> bool {
        true
    }
}

/// Engine, store, and what waits.
pub(crate) struct Core {
    engine: Engine,
    store: Box<dyn Store>,
    bodies: Arc<dyn Bodies>,
    source: Source,
    recent: Recent,
    waiters: Waiters,
    /// The disk was full at the last commit: only looks are served until a probe succeeds.
    full: Option<Full>,
    /// What the last round that changed anything wrote, or tried to.
    written: RoundSize,
    /// Not let out yet.
    open: Vec<Answer>,
    events: Vec<(Name, Vec<Event>)>,
    notices: Vec<(Name, Vec<Notice>)>,
    listeners: Listeners,
    counters: Arc<Counters>,
}

/// A request answered in this round, and where its answer goes.
pub(crate) struct Answer {
    pub(super) done: Done,
    outcomes: Option<Vec<Outcome>>,
}

impl Answer {
    /// Lets it out.
    pub(crate) fn send(self) {
        self.done.send(Delivery { outcomes: self.outcomes });
    }

    /// Says that it could not be done.
    fn refuse(self, fault: &Fault) {
        let outcomes = self.outcomes.map(|all| all.iter().map(|_| Outcome::Fault(fault.clone())).collect());
        self.done.send(Delivery { outcomes });
    }
}

/// A round that was applied and given to the store: to be let out when it is durable, and not before.
pub(crate) struct Round {
    pub(crate) ticket: Ticket,
    /// None: it changed nothing.
    pub(crate) size: Option<RoundSize>,
    /// Somebody waits for its ticket.
    pub(super) pending: bool,
    /// And makes it come true that way.
    pub(super) lazy: bool,
    answers: Vec<Answer>,
    events: Vec<(Name, Vec<Event>)>,
    notices: Vec<(Name, Vec<Notice>)>,
}

impl Round {
    /// It is durable: lets its events out; its answers are the caller's to let out.
    pub(crate) fn release(self, publish: &mut dyn Publish) -> Vec<Answer> {
        for (tenant, events) in self.events {
            publish.publish(&tenant, events);
        }
        for (tenant, notices) in self.notices {
            publish.notice(&tenant, notices);
        }
        self.answers
    }

    /// It will never be durable.
    pub(crate) fn abandon(self, fault: &Fault) {
        self.answers.into_iter().for_each(|answer| answer.refuse(fault));
    }
}

impl Core {
    /// Loads the engine from a store.
    pub(crate) fn load(mut store: Box<dyn Store>) -> Result<Self, Fault> {
        let engine = load::engine(&mut *store)?;
        let bodies = store.bodies();
        Ok(Core {
            engine,
            store,
            source: Arc::new(RwLock::new(bodies.clone())),
            bodies,
            recent: Recent::default(),
            waiters: Waiters::default(),
            full: None,
            written: RoundSize::default(),
            open: Vec::new(),
            events: Vec::new(),
            notices: Vec::new(),
            listeners: Listeners::default(),
            counters: Arc::default(),
        })
    }

    /// Notices are made while anybody of these wants them; commands are counted here.
    pub(crate) fn attach(&mut self, listeners: Listeners, counters: Arc<Counters>) {
        (self.listeners, self.counters) = (listeners, counters);
    }

    /// Where answers read bodies.
    pub(crate) fn source(&self) -> Source {
        self.source.clone()
    }

    /// Answers given before this state was loaded again read their bodies here too, and find none that is another's now.
    pub(crate) fn take_over(&mut self, source: Source, next_body: BodyId) {
        self.engine.number_bodies_from(next_body);
        match source.write() {
            Ok(mut bodies) => *bodies = self.bodies.clone(),
            Err(poisoned) => *poisoned.into_inner() = self.bodies.clone(),
        }
        self.source = source;
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    #[cfg(test)]
    pub(crate) fn bodies(&self) -> Arc<dyn Bodies> {
        self.bodies.clone()
    }

    pub(crate) fn stats(&self) -> haul_store::Stats {
        self.store.stats()
    }

    /// Gives memory back: nothing is written now. See also [`Store::rest`].
    pub(crate) fn rest(&mut self) {
        self.recent = Recent::default();
        self.store.rest();
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Forgets blocked pops whose clients have left.
    pub(crate) fn sweep(&mut self) {
        self.waiters.sweep();
    }

    /// The next moment something may happen by itself.
    pub(crate) fn next_wake(&self) -> Option<f64> {
        // On a full disk nobody is served; a probe that succeeds looks at all.
        let look = self.waiters.next_look().filter(|_| self.full.is_none());
        look.into_iter().chain(self.waiters.next_deadline()).min_by(f64::total_cmp)
    }

    pub(crate) fn close(self) -> Result<(), Fault> {
        self.store.close()
    }

    /// Whether events are of interest from now on.
    pub(crate) fn listen(&mut self, heard: bool) {
        self.engine.hush(!heard);
    }

    /// Applies a request in memory. Its answer leaves with [`Core::finish`].
    pub(crate) fn apply(&mut self, request: Request, clock: f64) {
        // Only a request that waits is given up by its client; a job must not go to one that has left.
        if request.wait.is_some() && request.done.is_closed() {
            return;
        }
        if let Some(full) =
            self.full.clone().filter(|_| request.calls.iter().any(|call| !call.command.is_look()))
        {
            request.calls.iter().for_each(|call| self.counters.tally.count_full(Slot::of(&call.command)));
            let outcomes = request.calls.iter().map(|_| Outcome::Fault(full.fault.clone())).collect();
            self.open.push(Answer { done: request.done, outcomes: Some(outcomes) });
            return;
        }
        if !request.watched.is_empty() && self.has_changed(&request.watched, clock) {
            self.open.push(Answer { done: request.done, outcomes: None });
            return;
        }
        let Request { calls, wait, done, .. } = request;
        let waits_for = wait.and_then(|_| calls.first().cloned());
        let outcomes: Vec<Outcome> = calls.into_iter().map(|call| self.call(call)).collect();
        match (waits_for, wait) {
            (Some(call), Some(seconds)) if outcomes.iter().all(is_empty_handed) => {
                self.waiters.park(&self.engine, Waiter { call, deadline: clock + seconds, done }, clock);
            }
            _ => self.open.push(Answer { done, outcomes: Some(outcomes) }),
        }
    }

    fn call(&mut self, mut call: Call) -> Outcome {
        let tenant = call.tenant.clone();
        self.spare_data(&mut call);
        self.engine.watch(!self.waiters.is_empty());
        self.engine.freeze(self.full.is_some());
        let listened = self.listeners.any();
        self.engine.listen(listened);
        let slot = Slot::of(&call.command);
        let reply = self.engine.apply(call);
        self.counters.tally.count(slot, &reply);
        if listened {
            let notices = self.engine.take_notices();
            if !notices.is_empty() {
                self.notices.push((tenant.clone(), notices));
            }
        }
        let events = self.engine.take_events();
        if !events.is_empty() {
            self.events.push((tenant, events));
        }
        let mut bodies = Fetch::default();
        if let Ok(reply) = &reply {
            reply.bodies(&mut |id| match self.body_at_hand(id) {
                Some(bytes) => bodies.found.push((id, bytes.clone())),
                None => bodies.missing.push(id),
            });
            if !bodies.missing.is_empty() {
                bodies.pin = Some(self.bodies.pin());
                bodies.source = Some(self.source.clone());
            }
        }
        Outcome::Done { reply, bodies }
    }

    /// Clients of qless hand a job's data in again with each completion, heartbeat and failure. What is there already need
    /// not be written anew, and the old deleted.
    fn spare_data(&self, call: &mut Call) {
        let (jid, data) = match &mut call.command {
            Command::Complete(complete) => (&complete.jid, &mut complete.data),
            Command::Heartbeat(beat) => (&beat.jid, &mut beat.data),
            Command::Fail(fail) => (&fail.jid, &mut fail.data),
            _ => return,
        };
        if data.is_some()
            && let Some(id) = self.engine.data_body(&call.tenant, jid)
            && data.as_ref() == self.body_at_hand(id)
        {
            *data = None;
        }
    }

    /// A body of this round or a recent one.
    fn body_at_hand(&self, id: BodyId) -> Option<&Bytes> {
        self.engine.body_in_round(id).or_else(|| self.recent.get(id))
    }

    fn has_changed(&mut self, watched: &[(Name, Name, u64)], clock: f64) -> bool {
        watched.iter().any(|(tenant, key, version)| {
            let command = Command::Versions { keys: vec![key.clone()] };
            let rules = haul_engine::Rules::NATIVE;
            let call = Call { tenant: tenant.clone(), now: clock, clock, rules, command };
            !matches!(self.engine.apply(call), Ok(Reply::Versions(now)) if now.first() == Some(version))
        })
    }

    /// Gives blocked pops what has become available, and ends those that waited long enough.
    pub(crate) fn wake(&mut self, clock: f64) {
        if self.waiters.is_empty() || self.full.is_some() {
            return self.end_waits(clock);
        }
        let mut touched = self.engine.take_touched();
        touched.extend(self.waiters.due(clock));
        while let Some(name) = touched.pop() {
            for tenant in self.waiters.tenants_of(&name) {
                self.serve(&tenant, &name, clock);
            }
            touched.extend(self.engine.take_touched());
            touched.sort_unstable();
            touched.dedup();
        }
        self.end_waits(clock);
    }

    /// Serves the waiters of one queue, oldest first, until all that is left to want was wanted in vain.
    fn serve(&mut self, tenant: &Name, queue: &Name, clock: f64) {
        let mut missing = Vec::new();
        while let Some((id, want)) = self.waiters.first(tenant, queue, &missing) {
            let Some(mut call) = self.waiters.call(id) else { break };
            let (ready, due) = self.engine.outlook(tenant, queue, clock);
            let wants_job = matches!(want, Want::Jobs(_));
            if wants_job && !ready {
                self.waiters.look_again(tenant, queue, due.filter(|due| *due > clock));
                missing.push(want);
                continue;
            }
            (call.now, call.clock) = (clock, clock);
            let outcome = self.call(call);
            if is_empty_handed(&outcome) {
                if wants_job {
                    // Something bars the way (a limit, a throttle, other klasses), and nobody may ever tell that it is gone.
                    self.waiters.look_again(tenant, queue, Some(clock + 1.0));
                }
                missing.push(want);
                continue;
            }
            if let Some(waiter) = self.waiters.remove(id) {
                self.open.push(Answer { done: waiter.done, outcomes: Some(vec![outcome]) });
            }
        }
    }

    fn end_waits(&mut self, clock: f64) {
        for waiter in self.waiters.expired(clock) {
            let reply = match waiter.call.command {
                Command::Keyspace(_) => Reply::Keyspace(KeyAnswer::Nil),
                _ => Reply::Jobs(Vec::new()),
            };
            let outcome = Outcome::Done { reply: Ok(reply), bodies: Fetch::default() };
            self.open.push(Answer { done: waiter.done, outcomes: Some(vec![outcome]) });
        }
    }

    /// Everybody who waits goes away empty-handed.
    pub(crate) fn end_all_waits(&mut self) {
        self.end_waits(f64::INFINITY);
    }

    /// Ends the round: gives its changes to the store. Nothing of it may be let out before its ticket has come true.
    /// Err: the memory must be dropped and loaded again.
    pub(crate) fn finish(&mut self) -> Result<Round, Fault> {
        // Most rounds are as large as the one before.
        let batch = self.store.batch(self.written.bytes + RECORD_ROOM_BYTES * (self.written.records + 8));
        let mut round = Written { batch, recent: &mut self.recent };
        self.engine.write_changes(&mut round);
        let batch = round.batch;
        let size = (!batch.is_empty()).then(|| RoundSize { records: batch.len(), bytes: batch.bytes() });
        if let Some(size) = size {
            self.written = size;
        }
        // Also if it is empty: whoever only looks must still be the one to ask.
        let ticket = self.store.submit(batch)?;
        let next = Vec::with_capacity(self.open.len());
        Ok(Round {
            ticket,
            size,
            pending: false,
            lazy: false,
            answers: std::mem::replace(&mut self.open, next),
            events: std::mem::take(&mut self.events),
            notices: std::mem::take(&mut self.notices),
        })
    }

    /// What the round at hand would have written.
    pub(crate) fn round_bytes(&self) -> usize {
        self.written.bytes
    }

    /// Whether the open round has anything to answer or to keep.
    pub(crate) fn has_work(&self) -> bool {
        self.is_awaited() || self.engine.has_changes()
    }

    /// Whether anybody is told anything of the open round. Else all it has is what calls did that wait on: a worker was seen.
    pub(crate) fn is_awaited(&self) -> bool {
        !(self.open.is_empty() && self.events.is_empty() && self.notices.is_empty())
    }

    /// Requests of the open round.
    pub(crate) fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// After a fault: everything unanswered gets it; the store is handed back to be closed or opened again.
    pub(crate) fn abandon(mut self, fault: &Fault) -> (Box<dyn Store>, Waiters) {
        self.open.drain(..).for_each(|answer| answer.refuse(fault));
        (self.store, self.waiters)
    }

    /// Goes on after a fault: who waited waits on; with a full disk only looks are served.
    pub(crate) fn resume(&mut self, waiters: Waiters, full: Option<Full>, clock: f64) {
        self.waiters = waiters;
        self.full = full;
        self.waiters.look_at_all(clock);
    }

    /// Whether the disk takes writes again.
    pub(crate) fn probe(&mut self, clock: f64) -> Result<bool, Fault> {
        let bytes = self.full.as_ref().map_or(0, |full| full.bytes.min(PROBE_BYTES_MAX));
        let key = Bytes::from(vec![0_u8; PROBE_KEY_BYTES]);
        let mut batch = Batch::default();
        (0..=bytes / PROBE_KEY_BYTES).for_each(|_| batch.delete(Space::Header, key.clone()));
        match self.store.commit(batch) {
            Ok(()) => {
                self.full = None;
                self.waiters.look_at_all(clock);
                Ok(true)
            }
            Err(Fault::Full { .. }) => Ok(false),
            Err(fault) => Err(fault),
        }
    }
}

/// A probe writes about as much as the round that found no room: a disk with room for less is still full, and each
/// time that turns out too late the state is loaded again.
const PROBE_KEY_BYTES: usize = 4096;
/// The most a probe writes.
const PROBE_BYTES_MAX: usize = 16 << 20;

/// A disk found full.
#[derive(Clone)]
pub(crate) struct Full {
    pub(crate) fault: Fault,
    /// What the round that found it full would have written.
    pub(crate) bytes: usize,
}

/// How much a round changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundSize {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

fn is_empty_handed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done { reply: Ok(Reply::Jobs(jobs)), .. } => jobs.is_empty(),
        Outcome::Done { reply: Ok(Reply::Keyspace(answer)), .. } => *answer == KeyAnswer::Nil,
        _ => false,
    }
}

/// What a batch takes for a record besides its key and value, about.
const RECORD_ROOM_BYTES: usize = 8;

/// A round on its way to the store.
struct Written<'a> {
    batch: Batch,
    recent: &'a mut Recent,
}

impl Keep for Written<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(Space::Header, key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.batch.delete(Space::Header, key);
    }

    fn put_body(&mut self, id: BodyId, bytes: Bytes) {
        self.batch.put(Space::Body, id.key(), &bytes);
        self.recent.keep(id, bytes);
    }

    fn delete_body(&mut self, id: BodyId) {
        self.batch.delete(Space::Body, id.key());
        self.recent.forget(id);
    }
}

/// Bodies written lately, the oldest dropped first. Their numbers follow each other, with few gaps.
#[derive(Default)]
struct Recent {
    /// The number of the first one.
    first: u64,
    bodies: VecDeque<Option<Bytes>>,
    bytes: usize,
}

impl Recent {
    fn slot(&self, id: BodyId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first)?).ok()
    }

    fn get(&self, id: BodyId) -> Option<&Bytes> {
        self.bodies.get(self.slot(id)?)?.as_ref()
    }

    fn keep(&mut self, id: BodyId, bytes: Bytes) {
        let next = self.first + self.bodies.len() as u64;
        match id.0.checked_sub(next) {
            Some(gap) if gap < RECENT_BODIES_MAX as u64 => self.bodies.extend((0..gap).map(|_| None)),
            _ => *self = Recent { first: id.0, ..Recent::default() },
        }
        self.bytes += bytes.len();
        self.bodies.push_back(Some(bytes));
        while self.bytes > RECENT_BYTES_MAX
            || self.bodies.len() > RECENT_BODIES_MAX
            || matches!(self.bodies.front(), Some(None))
        {
            let Some(oldest) = self.bodies.pop_front() else { break };
            self.first += 1;
            self.bytes -= oldest.map_or(0, |bytes| bytes.len());
        }
    }

    fn forget(&mut self, id: BodyId) {
        let slot = self.slot(id).and_then(|slot| self.bodies.get_mut(slot)).and_then(Option::take);
        self.bytes -= slot.map_or(0, |bytes| bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: usize) -> Bytes {
        Bytes::from(vec![7; bytes])
    }

    fn has(recent: &Recent, id: u64) -> bool {
        recent.get(BodyId(id)).is_some()
    }

    #[test]
    fn on_a_full_disk_only_deadlines_wake() {
        let mut core = Core::load(Box::new(haul_store::MemoryDisk::new().open())).unwrap();
        let waiting =
            crate::shard::tests::tell(&mut core, crate::shard::tests::plan("POP w WAIT 60 QUEUES q"), 0.0);
        core.full = Some(Full { fault: Fault::Fenced, bytes: 0 });
        core.waiters.look_at_all(1.0);
        assert_eq!(core.next_wake(), Some(60.0));
        core.full = None;
        assert_eq!(core.next_wake(), Some(1.0));
        drop(waiting);
    }

    #[test]
    fn recent_bodies_are_found_by_number_until_they_are_forgotten() {
        let mut recent = Recent::default();
        [5, 6, 9].into_iter().for_each(|id| recent.keep(BodyId(id), body(10)));
        assert_eq!((4..=10).filter(|id| has(&recent, *id)).collect::<Vec<_>>(), [5, 6, 9]);
        [4, 5, 5, 8, 10].into_iter().for_each(|id| recent.forget(BodyId(id)));
        assert_eq!((has(&recent, 5), recent.bytes), (false, 20));
        // Numbers that begin anew, or far away, are another store's.
        recent.keep(BodyId(3), body(10));
        assert_eq!((has(&recent, 3), has(&recent, 6), recent.bytes), (true, false, 10));
        recent.keep(BodyId(4 + RECENT_BODIES_MAX as u64), body(10));
        assert_eq!((has(&recent, 3), recent.bodies.len(), recent.bytes), (false, 1, 10));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes_or_numbers() {
        let mut recent = Recent::default();
        (0..4).for_each(|id| recent.keep(BodyId(id), body(RECENT_BYTES_MAX / 4)));
        assert!(has(&recent, 0));
        recent.keep(BodyId(4), body(1));
        assert!(!has(&recent, 0) && has(&recent, 1));

        let mut recent = Recent::default();
        // The first stays; all the others come and go.
        (0..RECENT_BODIES_MAX as u64).for_each(|id| recent.keep(BodyId(id), body(1)));
        (1..RECENT_BODIES_MAX as u64).for_each(|id| recent.forget(BodyId(id)));
        assert!(has(&recent, 0));
        recent.keep(BodyId(RECENT_BODIES_MAX as u64), body(1));
        assert_eq!((has(&recent, 0), recent.bodies.len(), recent.bytes), (false, 1, 1));
    }
}
