//! The state of one tenant, and the moves that verbs share.
//!
//! `jobs` and `indexes` are apart so that a verb can hold a job while it moves it between indexes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

use crate::config::Config;
use crate::engine::Round;
use crate::index::Index;
use crate::job::{Entry, Flag, Job, Place, State, What};
use crate::jobs::Jobs;
use crate::keyspace::Keyspace;
use crate::name::NamePool;
use crate::queue::Queue;
use crate::record::Key;
use crate::score::Score;
use crate::stats::{DayStats, day_of, is_on_day};
use crate::tag::Tag;
use crate::task::Finished;
use crate::throttle::{self, Throttle};
use crate::worker::Worker;
use crate::{Event, JobView, Kind, Name, Notice, Recur, Rules, Text, TrackedEvent};

/// The circumstances of one command, and where its consequences are collected.
pub(crate) struct Cx<'a> {
    pub(crate) now: f64,
    pub(crate) clock: f64,
    pub(crate) rules: Rules,
    pub(crate) round: &'a mut Round,
}

impl Cx<'_> {
    pub(crate) fn emit(&mut self, event: Event) {
        if self.rules.events && !self.round.hushed {
            self.round.events.push(event);
        }
    }

    /// What is known of a job before a verb changes it, for the notice of that; none: nobody listens.
    #[inline]
    pub(crate) fn sight(&self, job: &Job) -> Option<Box<Notice>> {
        self.round.listening.then(|| Box::new(sighted(self.now, job)))
    }

    /// Tells what became of a job that was sighted.
    #[inline]
    pub(crate) fn tell(
        &mut self,
        sight: Option<Box<Notice>>,
        kind: Kind,
        state: State,
        detail: Option<Name>,
    ) {
        if let Some(notice) = sight {
            self.round.notices.push(Notice { kind, state: Some(state), detail, ..*notice });
        }
    }

    /// Tells something of a job as it is now.
    #[inline]
    pub(crate) fn tell_now(&mut self, kind: Kind, job: &Job) {
        if self.round.listening {
            self.tell(Some(Box::new(sighted(self.now, job))), kind, job.state, None);
        }
    }

    /// Tells something that is about no job: of a queue, or what `detail` says.
    pub(crate) fn tell_of(&mut self, kind: Kind, queue: Option<&Name>, detail: Option<&Name>) {
        if !self.round.listening {
            return;
        }
        let none = Name::new(b"");
        self.round.notices.push(Notice {
            kind,
            at: self.now,
            jid: none.clone(),
            queue: queue.unwrap_or(&none).clone(),
            worker: none.clone(),
            klass: none,
            state: None,
            detail: detail.cloned(),
            attempt: 0,
            since: self.now,
            trace: None,
        });
    }

    /// Tells that a job's worker lost its lock, and why.
    #[inline]
    pub(crate) fn tell_lost(&mut self, job: &Job, state: State, reason: &str) {
        if let Some(sight) = self.sight(job) {
            self.tell(Some(sight), Kind::LockLost, state, Some(reason.into()));
        }
    }

    /// Tells something of a recurring definition.
    pub(crate) fn tell_recur(&mut self, kind: Kind, recur: &Recur) {
        self.tell_of(kind, Some(&recur.queue), None);
        if let Some(notice) = self.round.notices.last_mut().filter(|_| self.round.listening) {
            (notice.jid, notice.klass) = (recur.jid.clone(), recur.klass.clone());
        }
    }

    /// Tells of each tag put on a job or taken off it.
    pub(crate) fn tell_tags(&mut self, kind: Kind, job: &Job, tags: &[Name]) {
        if self.round.listening {
            tags.iter().for_each(|tag| self.tell(self.sight(job), kind, job.state, Some(tag.clone())));
        }
    }

    /// Keeps a text: in memory if short, else as a body.
    pub(crate) fn keep(&mut self, bytes: Bytes) -> Text {
        self.round.keep(bytes)
    }

    pub(crate) fn forget(&mut self, text: &Text) {
        self.round.forget(text);
    }
}

#[cold]
fn sighted(now: f64, job: &Job) -> Notice {
    Notice {
        kind: Kind::Put,
        at: now,
        jid: job.jid.clone(),
        queue: job.queue.clone(),
        worker: job.worker().cloned().unwrap_or_else(|| Name::new(b"")),
        klass: job.klass.clone(),
        state: Some(job.state),
        detail: None,
        attempt: job.attempt(),
        since: job.time,
        trace: job.more.as_deref().and_then(|more| more.trace.clone()),
    }
}

/// One tenant.
#[derive(Default)]
pub(crate) struct Tenant {
    pub(crate) jobs: Jobs,
    pub(crate) indexes: Indexes,
}

/// Everything but the jobs themselves.
#[derive(Default)]
pub(crate) struct Indexes {
    pub(crate) queues: HashMap<Name, Queue>,
    pub(crate) workers: HashMap<Name, Worker>,
    pub(crate) tags: HashMap<Name, Tag>,
    pub(crate) recurs: HashMap<Name, Recur>,
    pub(crate) throttles: HashMap<Name, Throttle>,
    /// Jids by sequence number: the newest last.
    pub(crate) groups: BTreeMap<Name, BTreeMap<u64, Name>>,
    pub(crate) completed: Index,
    /// Jobs in no list; the score is since when.
    pub(crate) drafts: Index,
    /// The lists of finished tasks, a queue each.
    pub(crate) finished: BTreeMap<Name, Finished>,
    pub(crate) finished_seq: u64,
    pub(crate) tracked: HashMap<Name, f64>,
    pub(crate) config: Config,
    pub(crate) stats: BTreeMap<(Score, Name), DayStats>,
    pub(crate) keyspace: Keyspace,
    pub(crate) names: NamePool,
    pub(crate) failure_seq: u64,
    pub(crate) dirty_jobs: Vec<Name>,
    pub(crate) dirty: HashSet<Key>,
    /// The statistics that were changed last in the open round: they are among the dirty.
    last_day: Option<(Score, Name)>,
}

impl Indexes {
    /// A round begins: nothing is dirty.
    pub(crate) fn begin_round(&mut self) {
        self.last_day = None;
    }

    /// Notes that a job must be stored.
    pub(crate) fn mark(&mut self, job: &mut Job) {
        if !job.flags.has(Flag::Dirty) {
            job.flags.set(Flag::Dirty, true);
            self.dirty_jobs.push(job.jid.clone());
        }
    }

    pub(crate) fn queue(&mut self, name: &Name) -> &mut Queue {
        self.queues.entry_ref(name).or_default()
    }

    /// Makes a queue known.
    pub(crate) fn register(&mut self, name: &Name, now: f64) {
        let queue = self.queue(name);
        if queue.seen_at.is_none() {
            queue.seen_at = Some(now);
            self.dirty.insert(Key::Queue(name.clone()));
        }
    }

    pub(crate) fn is_tracked(&self, jid: &Name) -> bool {
        !self.tracked.is_empty() && self.tracked.contains_key(jid)
    }

    pub(crate) fn emit_tracked(&self, cx: &mut Cx<'_>, what: TrackedEvent, jid: &Name) {
        if self.is_tracked(jid) {
            cx.emit(Event::Tracked { what, jid: jid.clone() });
        }
    }

    /// Takes a job out of the index that holds it.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>, job: &mut Job) {
        let entry = (Score::new(job.score), job.jid.clone());
        match job.place {
            Place::Completed => {
                self.completed.remove(&entry);
            }
            Place::Draft => {
                self.drafts.remove(&entry);
            }
            Place::Failed => self.leave_group(job),
            place => {
                let queue = self.queue(&job.queue);
                queue.index(place).map(|index| index.remove(&entry));
                if place == Place::Locks {
                    queue.unthrottled -= usize::from(job.flags.take(Flag::Unthrottled));
                    cx.round.touch_queue(&job.queue);
                }
            }
        }
        if let Some((id, at)) = job.more.as_mut().and_then(|more| more.pending.take())
            && let Some(throttle) = self.throttles.get_mut(&id)
        {
            throttle.pending.remove(&(Score::new(at), job.jid.clone()));
        }
        if job.task().is_some() {
            self.task_leaves(job);
        }
        self.mark(job);
    }

    fn leave_group(&mut self, job: &Job) {
        let Some(failure) = job.failure() else { return };
        if let Some(group) = self.groups.get_mut(&failure.group) {
            group.remove(&(job.score as u64));
            if group.is_empty() {
                self.groups.remove(&failure.group);
            }
        }
    }

    /// Puts a job, which is in no index, into one.
    pub(crate) fn enter(&mut self, cx: &mut Cx<'_>, job: &mut Job, place: Place, score: f64) {
        job.place = place;
        job.score = Score::new(score).get();
        self.mark(job);
        self.index_job(job);
        if job.task().is_some() {
            self.task_enters(job);
        }
        if !matches!(place, Place::Completed | Place::Failed | Place::Draft) {
            cx.round.touch_queue(&job.queue);
        }
    }

    /// Adds the entry that a job's place and score call for.
    pub(crate) fn index_job(&mut self, job: &Job) {
        let entry = (Score::new(job.score), job.jid.clone());
        match job.place {
            Place::Completed => {
                self.completed.insert(entry);
            }
            Place::Draft => {
                self.drafts.insert(entry);
            }
            Place::Failed => {
                let Some(failure) = job.failure() else { return };
                let group = self.groups.entry(failure.group.clone()).or_default();
                group.insert(job.score as u64, job.jid.clone());
            }
            place => {
                let queue = self.queue(&job.queue);
                queue.index(place).map(|index| index.insert(entry));
            }
        }
    }

    /// Into the work index, as of `entered_at`.
    pub(crate) fn enter_work(&mut self, cx: &mut Cx<'_>, job: &mut Job, entered_at: f64) {
        self.enter(cx, job, Place::Work, Job::work_score(job.priority(), entered_at));
    }

    /// A lock gets a new end; the job stays the holder of whatever it holds.
    pub(crate) fn relock(&mut self, cx: &mut Cx<'_>, job: &mut Job, ends_at: f64) {
        let unthrottled = job.flags.has(Flag::Unthrottled);
        self.leave(cx, job);
        self.enter(cx, job, Place::Locks, ends_at);
        if unthrottled {
            job.flags.set(Flag::Unthrottled, true);
            self.queue(&job.queue).unthrottled += 1;
        }
    }

    /// Into a failure group, the newest. `job.failure` says which.
    pub(crate) fn enter_group(&mut self, cx: &mut Cx<'_>, job: &mut Job) {
        self.failure_seq += 1;
        self.enter(cx, job, Place::Failed, self.failure_seq as f64);
    }

    /// Lists a job among its worker's, until `expires`. The worker's name is the shared one.
    pub(crate) fn hold(&mut self, job: &mut Job, worker: Name, expires: f64) {
        self.unhold(job);
        self.worker(&worker).jobs.insert((Score::new(expires), job.jid.clone()));
        let run = job.run();
        (run.worker, run.expires) = (Some(worker), expires);
        job.flags.set(Flag::Held, true);
    }

    /// Takes a job off its worker's list. The worker's name stays on the job.
    pub(crate) fn unhold(&mut self, job: &mut Job) {
        if !job.flags.take(Flag::Held) {
            return;
        }
        self.mark(job);
        let Some(record) = self.workers.get_mut(job.worker_bytes()) else { return };
        record.jobs.remove(&(Score::new(job.expires()), job.jid.clone()));
        if record.jobs.is_empty() && record.seen_at.is_none() {
            self.workers.remove(job.worker_bytes());
        }
    }

    /// Who holds a job, or held it last; empty for nobody.
    pub(crate) fn worker_of(&self, job: &Job) -> Name {
        job.worker().cloned().unwrap_or_else(|| self.names.none())
    }

    pub(crate) fn worker(&mut self, name: &Name) -> &mut Worker {
        self.workers.entry_ref(name).or_default()
    }

    /// A sign of life.
    pub(crate) fn saw_worker(&mut self, name: &Name, now: f64) {
        let worker = self.worker(name);
        if worker.seen_at != Some(now) {
            worker.seen_at = Some(now);
            self.dirty.insert(Key::Worker(name.clone()));
        }
    }

    /// Appends to a job's history, within the cap: the first entry is always kept.
    pub(crate) fn note(&mut self, cx: &mut Cx<'_>, job: &mut Job, when: f64, what: What) {
        if let Some(cap) = self.config.max_job_history() {
            let excess = (job.history.len() + 1).saturating_sub(cap);
            if excess > 0 {
                job.history.forget(excess).iter().for_each(|text| cx.forget(text));
            }
        }
        job.history.push(Entry { when: when.floor(), what });
        self.mark(job);
    }

    /// The statistics of a queue on the day of `at`, to be changed.
    pub(crate) fn day(&mut self, queue: &Name, at: f64) -> &mut DayStats {
        let key = match &self.last_day {
            Some(key) if is_on_day(key.0.get(), at) && key.1 == *queue => key.clone(),
            _ => {
                let key = (Score::new(day_of(at)), self.names.shared(queue.bytes()));
                self.dirty.insert(Key::Stats(key.0, key.1.clone()));
                if !self.stats.contains_key(&key) {
                    self.prune_stats(key.0.get());
                }
                self.last_day = Some(key.clone());
                key
            }
        };
        self.stats.entry(key).or_default()
    }

    /// Statistics of days too long before `today` go, where that was asked for.
    fn prune_stats(&mut self, today: f64) {
        let Some(days) = self.config.stats_days() else { return };
        let kept = self.stats.split_off(&(Score::new(today - days * 86_400.0), Name::new(b"")));
        let old = std::mem::replace(&mut self.stats, kept);
        self.dirty.extend(old.into_keys().map(|(day, queue)| Key::Stats(day, queue)));
    }

    /// Counts a failure.
    pub(crate) fn count_failure(&mut self, queue: &Name, now: f64) {
        let day = self.day(queue, now);
        *day.failures.get_or_insert(0) += 1;
        *day.failed.get_or_insert(0) += 1;
    }

    /// A failed job leaves the failed ones: uncounts it where it was counted.
    pub(crate) fn uncount_failed(&mut self, job: &Job) {
        if job.place != Place::Failed {
            return;
        }
        if let Some((queue, when)) = job.failure().map(|failure| (failure.queue.clone(), failure.when)) {
            *self.day(&queue, when).failed.get_or_insert(0) -= 1;
        }
    }

    /// Enters a tag of a job into the tag index.
    pub(crate) fn index_tag(&mut self, tag: &Name, jid: &Name, old: Option<f64>, now: f64) {
        let record = self.tags.entry_ref(tag).or_default();
        if let Some(at) = old {
            record.jobs.remove(&(Score::new(at), jid.clone()));
        }
        record.jobs.insert((Score::new(now), jid.clone()));
        *record.count.get_or_insert(0) += 1;
        self.dirty.insert(Key::Tag(tag.clone()));
    }

    /// Takes a tag of a job out of the tag index. `at`: none if the index never held it.
    pub(crate) fn unindex_tag(&mut self, cx: &Cx<'_>, tag: &Name, jid: &Name, at: Option<f64>) {
        let record = self.tags.entry_ref(tag).or_default();
        if let Some(at) = at {
            record.jobs.remove(&(Score::new(at), jid.clone()));
        }
        record.count = match record.count {
            _ if cx.rules.unused_tags_forgotten && record.jobs.is_empty() => None,
            count => Some(count.unwrap_or(0) - 1),
        };
        if record.count.is_none() && record.jobs.is_empty() {
            self.tags.remove(tag);
        }
        self.dirty.insert(Key::Tag(tag.clone()));
    }

    /// Takes all tags of a job out of the tag index. A tag listed twice is counted twice.
    pub(crate) fn unindex_tags(&mut self, cx: &Cx<'_>, job: &Job) {
        for tagged in job.tags().iter().filter(|tagged| tagged.at.is_some()) {
            self.unindex_tag(cx, &tagged.tag, &job.jid, tagged.at);
        }
    }

    /// How many locks a throttle has given out. A queue's own counts the queue's running jobs, and those of other
    /// queues that name it.
    fn locks_of(&self, id: &Name) -> usize {
        let named = self.throttles.get(id).map_or(0, |throttle| throttle.locks.len());
        let queue = throttle::queue_of(id).and_then(|queue| self.queues.get(queue));
        named + queue.map_or(0, |queue| queue.locks.len() - queue.unthrottled)
    }

    pub(crate) fn is_available(&self, id: &Name, clock: f64) -> bool {
        let Some(throttle) = self.throttles.get(id) else { return true };
        let maximum = throttle.maximum_at(clock);
        maximum == 0.0 || (self.locks_of(id) as f64) < maximum
    }

    /// How many waiting jobs a throttle may let go on now.
    pub(crate) fn room_of(&self, id: &Name, clock: f64) -> usize {
        let maximum = self.throttles.get(id).map_or(0.0, |throttle| throttle.maximum_at(clock));
        if maximum == 0.0 { 10 } else { (maximum - self.locks_of(id) as f64).max(0.0) as usize }
    }

    /// The first of a job's throttles that is full, the queue's own last.
    pub(crate) fn unavailable(&self, job: &Job, clock: f64) -> Option<Name> {
        if self.throttles.is_empty() {
            return None;
        }
        let own = throttle::of_queue(&job.queue);
        let named = job.more.as_deref().map_or(&[][..], |more| &more.throttles);
        named.iter().chain(std::iter::once(&own)).find(|id| !self.is_available(id, clock)).cloned()
    }

    /// Holds a job back behind a throttle that is full.
    pub(crate) fn throttle(&mut self, cx: &mut Cx<'_>, job: &mut Job, id: Name) {
        let now = cx.now;
        self.throttles.entry_ref(&id).or_default().pending.insert((Score::new(now), job.jid.clone()));
        job.more().pending = Some((id, now));
        if job.state != State::Throttled {
            job.state = State::Throttled;
            self.note(cx, job, now, What::Throttled(job.queue.clone()));
        }
        self.enter(cx, job, Place::Throttled, now);
    }

    /// Takes the locks of all of a job's throttles; that there is room was checked. The queue's own is the lock index.
    pub(crate) fn acquire(&mut self, job: &mut Job) {
        let Some(more) = job.more.as_deref_mut() else { return };
        if more.throttles.is_empty() {
            return;
        }
        let own = throttle::of_queue(&job.queue);
        let mut holds: Vec<Name> = more.throttles.iter().filter(|id| **id != own).cloned().collect();
        holds.sort_unstable();
        holds.dedup();
        more.holds = holds;
        for id in &more.holds {
            self.throttles.entry_ref(id).or_default().locks.insert(job.jid.clone());
        }
    }

    /// Gives the locks back. Whoever waits for them is let go by [`Tenant::admit`], once the job is settled.
    pub(crate) fn release_locks(&mut self, job: &mut Job) {
        let Some(more) = job.more.as_deref_mut() else { return };
        for id in std::mem::take(&mut more.holds) {
            if let Some(throttle) = self.throttles.get_mut(&id) {
                throttle.locks.remove(&job.jid);
                if throttle.is_unused() {
                    self.throttles.remove(&id);
                }
            }
        }
    }

    /// The throttles of a job, for [`Tenant::admit_all`] after it changed.
    pub(crate) fn throttles_of(&self, job: &Job) -> Vec<Name> {
        if self.throttles.is_empty() {
            return Vec::new();
        }
        let mut ids = job.more.as_deref().map_or_else(Vec::new, |more| more.throttles.clone());
        ids.push(throttle::of_queue(&job.queue));
        ids
    }

    /// A job as replies show it.
    pub(crate) fn view(&self, job: &Job) -> JobView {
        let more = job.more.as_deref();
        let list = |set: &BTreeSet<Name>| set.iter().cloned().collect::<Vec<_>>();
        let named = more.map_or(&[][..], |more| &more.throttles);
        let mut throttles = Vec::with_capacity(named.len() + usize::from(!job.queue.is_empty()));
        throttles.extend_from_slice(named);
        if !job.queue.is_empty() {
            throttles.push(throttle::of_queue(&job.queue));
        }
        JobView {
            jid: job.jid.clone(),
            klass: job.klass.clone(),
            queue: job.queue.clone(),
            state: job.state,
            worker: self.worker_of(job),
            tracked: self.is_tracked(&job.jid),
            priority: job.priority(),
            retries: job.retries(),
            remaining: job.remaining(),
            expires: job.expires(),
            due: (job.place == Place::Scheduled).then_some(job.score),
            available_since: job.available_since(),
            pid: job.task().and_then(crate::task::Task::pid),
            opaque: job.task().is_some(),
            attempt: job.attempt(),
            data: job.data.clone(),
            result: more.and_then(|more| more.result.clone()),
            tags: job.tags().iter().map(|tagged| tagged.tag.clone()).collect(),
            history: job.history.to_vec(),
            failure: job.failure().cloned(),
            spawned_from: more.and_then(|more| more.spawned_from.clone()),
            report: more.and_then(|more| more.report.clone()),
            dependents: more.map_or_else(Vec::new, |more| list(&more.dependents)),
            dependencies: more.map_or_else(Vec::new, |more| list(&more.dependencies)),
            throttles,
            trace: more.and_then(|more| more.trace.clone()),
        }
    }
}

impl Tenant {
    /// Replaces a job's data.
    pub(crate) fn set_data(cx: &mut Cx<'_>, job: &mut Job, data: Option<Bytes>) {
        if let Some(data) = data {
            cx.forget(&job.data);
            job.data = cx.keep(data);
        }
    }

    /// Lets jobs that wait for any of these throttles go on, as far as there is room.
    pub(crate) fn admit_all(&mut self, cx: &mut Cx<'_>, ids: &[Name]) {
        for id in ids {
            self.admit(cx, id);
        }
    }

    pub(crate) fn admit(&mut self, cx: &mut Cx<'_>, id: &Name) {
        let Some(throttle) = self.indexes.throttles.get(id) else { return };
        let room = self.indexes.room_of(id, cx.clock);
        let waiting: Vec<Name> = throttle.pending.iter().take(room).map(|(_, jid)| jid.clone()).collect();
        for jid in waiting {
            if let Some(job) = self.jobs.get_mut(&jid) {
                self.indexes.leave(cx, job);
                self.indexes.enter_work(cx, job, cx.now);
                cx.tell_now(Kind::Ready, job);
            }
        }
    }

    /// Makes `jid` wait for each of `others` that exists and is not complete; says whether there was one.
    pub(crate) fn link(&mut self, jid: &Name, others: &[Name]) -> bool {
        let mut linked = false;
        for other in others {
            let Some(job) = self.jobs.get_mut(other).filter(|job| job.state != State::Complete) else {
                continue;
            };
            job.more().dependents.insert(jid.clone());
            let other = job.jid.clone();
            if let Some(job) = self.jobs.get_mut(jid) {
                job.more().dependencies.insert(other.clone());
                self.indexes.dirty.insert(Key::Edge(job.jid.clone(), other));
                linked = true;
            }
        }
        linked
    }

    /// Undoes one link.
    pub(crate) fn unlink(&mut self, jid: &Name, other: &Name) {
        if let Some(more) = self.jobs.get_mut(other).and_then(|job| job.more.as_deref_mut()) {
            more.dependents.remove(jid);
        }
        if let Some(more) = self.jobs.get_mut(jid).and_then(|job| job.more.as_deref_mut()) {
            more.dependencies.remove(other);
        }
        self.indexes.dirty.insert(Key::Edge(jid.clone(), other.clone()));
    }

    /// A job whose dependencies have cleared goes on, if it still waits for them.
    pub(crate) fn settle(&mut self, cx: &mut Cx<'_>, jid: &Name, use_schedule: bool) {
        let Some(job) = self.jobs.get_mut(jid) else { return };
        if job.place != Place::Depends || job.has_dependencies() {
            return;
        }
        self.indexes.leave(cx, job);
        let due = job.more.as_deref_mut().and_then(|more| more.scheduled.take()).filter(|_| use_schedule);
        match due {
            Some(due) => {
                job.state = State::Scheduled;
                self.indexes.enter(cx, job, Place::Scheduled, due);
            }
            None => {
                job.state = State::Waiting;
                self.indexes.enter_work(cx, job, cx.now);
            }
        }
        cx.tell_now(Kind::Ready, job);
    }

    /// Everything about a job goes: indexes, tags, links, bodies.
    pub(crate) fn delete(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        let Some(mut job) = self.jobs.remove(jid) else { return };
        if let Some(more) = job.more.as_deref_mut() {
            for other in std::mem::take(&mut more.dependencies) {
                self.unlink(jid, &other);
            }
            // Only jobs that no longer wait can be left here: finished ones, or ones that go in the same command.
            for other in std::mem::take(&mut more.dependents) {
                self.unlink(&other, jid);
            }
        }
        self.indexes.unhold(&mut job);
        self.indexes.leave(cx, &mut job);
        self.indexes.release_locks(&mut job);
        self.indexes.unindex_tags(cx, &job);
        self.indexes.forget_started(&mut job);
        job.bodies().for_each(|id| cx.round.drop_body(id));
    }

    /// Moves up to `count` scheduled jobs that are due to work.
    pub(crate) fn move_due(&mut self, cx: &mut Cx<'_>, queue: &Name, count: usize) {
        if cx.round.frozen {
            return;
        }
        let Some(record) = self.indexes.queues.get(queue) else { return };
        let looked_at = if cx.rules.tasks_stay_scheduled { usize::MAX } else { count };
        let mut left = count;
        for (_, jid) in crate::score::up_to(&record.scheduled, 0.0, cx.now, looked_at) {
            let Some(job) = self.jobs.get_mut(&jid) else { continue };
            if left > 0 && !(cx.rules.tasks_stay_scheduled && job.task().is_some()) {
                left -= 1;
                self.indexes.leave(cx, job);
                job.state = State::Waiting;
                self.indexes.enter_work(cx, job, cx.now);
                cx.tell_now(Kind::Ready, job);
            }
        }
    }
}
