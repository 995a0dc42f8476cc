//! Put: a new job, or an existing one moved and redefined.

use bytes::Bytes;
use hashbrown::HashSet;

use super::Answer;
use crate::job::{Flag, Job, Place, State, Tagged, What};
use crate::tenant::{Cx, Indexes, Tenant};
use crate::{Event, Kind, Name, Put, PutWhen, Refusal, Reply, TrackedEvent, throttle};

impl Tenant {
    pub(super) fn put_one(&mut self, cx: &mut Cx<'_>, put: Put) -> Answer {
        let exists = self.jobs.contains_key(&put.jid);
        check_put(&put, exists)?;
        Ok(Reply::Name(self.put(cx, put, exists)))
    }

    pub(super) fn put_many(&mut self, cx: &mut Cx<'_>, puts: Vec<Put>) -> Answer {
        // What an earlier put of the list makes, exists for the later ones.
        let mut made: hashbrown::HashSet<&Name> = hashbrown::HashSet::new();
        for put in &puts {
            check_put(put, self.jobs.contains_key(&put.jid) || made.contains(&put.jid))?;
            made.insert(&put.jid);
        }
        drop(made);
        let one = |put: Put| {
            let exists = self.jobs.contains_key(&put.jid);
            self.put(cx, put, exists)
        };
        Ok(Reply::Names(puts.into_iter().map(one).collect()))
    }

    /// That the put is allowed was checked, and whether the job exists.
    pub(super) fn put(&mut self, cx: &mut Cx<'_>, put: Put, exists: bool) -> Name {
        let Put {
            jid,
            queue,
            worker,
            klass,
            data,
            delay,
            priority,
            tags,
            retries,
            depends,
            throttles,
            when: _,
            trace,
        } = put;
        let queue = self.indexes.names.shared(queue.bytes());
        let fields = Fields { klass, data, delay, priority, retries, tags, throttles, trace };
        if !depends.is_empty() {
            self.unlink_others(&jid, &depends);
        }
        cx.emit(Event::Put { jid: jid.clone(), queue: queue.clone() });
        let mut waiters = Vec::new();
        let old = if exists { self.jobs.get_mut(&jid) } else { None };
        let mut job = match old {
            Some(job) => {
                if job.place == Place::Locks {
                    waiters = self.indexes.throttles_of(job);
                }
                self.indexes.take_away(cx, job, worker.as_ref(), &queue);
                job
            }
            None => {
                let mut job = Box::new(Job::new(jid.clone(), &queue, &self.indexes.names.none()));
                self.indexes.note(cx, &mut job, cx.now, What::Put(queue.clone()));
                match self.jobs.insert(job) {
                    Some(job) => job,
                    None => return jid,
                }
            }
        };
        self.indexes.redefine(cx, job, fields, &queue);
        if !depends.is_empty() {
            self.link(&jid, &depends);
            match self.jobs.get_mut(&jid) {
                Some(linked) => job = linked,
                None => return jid,
            }
        }
        self.indexes.place(cx, job, delay);
        self.indexes.register(&queue, cx.now);
        self.indexes.emit_tracked(cx, TrackedEvent::Put, &jid);
        cx.tell_now(Kind::Put, job);
        self.admit_all(cx, &waiters);
        jid
    }

    /// New dependencies replace the old.
    fn unlink_others(&mut self, jid: &Name, depends: &[Name]) {
        let more = self.jobs.get(jid).and_then(|job| job.more.as_deref());
        let old: Vec<Name> = more.map_or_else(Vec::new, |more| more.dependencies.iter().cloned().collect());
        let depends: HashSet<&Name> = depends.iter().collect();
        for other in old.iter().filter(|other| !depends.contains(other)) {
            self.unlink(jid, other);
        }
    }
}

impl Indexes {
    /// Ends what an existing job was doing; notes the put in its history.
    fn take_away(&mut self, cx: &mut Cx<'_>, job: &mut Job, worker: Option<&Name>, queue: &Name) {
        self.unindex_tags(cx, job);
        self.note(cx, job, cx.now, What::Put(queue.clone()));
        self.uncount_failed(job);
        self.leave(cx, job);
        self.release_locks(job);
        self.unhold(job);
        let holder = job.worker().filter(|holder| !holder.is_empty() && worker != Some(holder));
        if let Some(holder) = holder {
            cx.emit(Event::LockLost { jid: job.jid.clone(), worker: holder.clone() });
            if job.state == State::Running {
                cx.tell_lost(job, job.state, "moved");
            }
        }
    }

    /// Writes the fields; the job is in no index.
    fn redefine(&mut self, cx: &mut Cx<'_>, job: &mut Job, fields: Fields, queue: &Name) {
        if fields.klass.is_some() {
            super::report::clear_checkpoint(cx, job);
        }
        Tenant::set_data(cx, job, fields.data);
        let given = match &fields.klass {
            Some(_) => fields.throttles,
            None => job.more.as_deref().map_or_else(Vec::new, |more| more.throttles.clone()),
        };
        if let Some(klass) = fields.klass {
            job.klass = self.names.shared(klass.bytes());
        }
        if let Some(priority) = fields.priority {
            job.set_priority(priority);
        }
        if let Some(retries) = fields.retries {
            job.set_retries(retries.floor());
        }
        job.set_remaining(job.retries());
        let old_queue = std::mem::replace(&mut job.queue, queue.clone());
        job.clear_lock();
        job.time = cx.now;
        job.flags.set(Flag::Warned, false);
        job.state = if fields.delay > 0.0 { State::Scheduled } else { State::Waiting };
        // The queue's own throttle is implied, the old queue's is not carried along.
        let implied = |id: &Name| {
            throttle::queue_of(id).is_some_and(|own| own == queue.bytes() || own == old_queue.bytes())
        };
        let throttles: Vec<Name> = given.into_iter().filter(|id| !implied(id)).collect();
        if let Some(more) = job.more.as_deref_mut() {
            more.scheduled = None;
            more.throttles = throttles;
        } else if !throttles.is_empty() {
            job.more().throttles = throttles;
        }
        if let Some(trace) = fields.trace {
            job.more().trace = Some(trace);
        }
        let tags =
            fields.tags.unwrap_or_else(|| job.tags().iter().map(|tagged| tagged.tag.clone()).collect());
        self.retag(cx, job, tags);
        self.mark(job);
    }

    /// Into the index its dependencies, delay and throttles call for.
    fn place(&mut self, cx: &mut Cx<'_>, job: &mut Job, delay: f64) {
        let now = cx.now;
        if job.has_dependencies() {
            job.state = State::Depends;
            if delay > 0.0 {
                job.more().scheduled = Some(now + delay);
            }
            self.enter(cx, job, Place::Depends, now);
        } else if delay > 0.0 {
            self.enter(cx, job, Place::Scheduled, now + delay);
        } else if let Some(full) = self.unavailable(job, cx.clock) {
            self.throttle(cx, job, full);
        } else {
            self.enter_work(cx, job, now);
        }
    }
}

fn check_put(put: &Put, exists: bool) -> Result<(), Refusal> {
    let incomplete = put.klass.is_none() || put.data.is_none();
    match put.when {
        PutWhen::New if exists => Err(Refusal::Exists { jid: put.jid.clone() }),
        _ if !exists && (incomplete || put.when == PutWhen::Exists) => {
            Err(Refusal::NoJob { jid: put.jid.clone() })
        }
        _ => Ok(()),
    }
}

/// The part of a put that becomes fields of the job.
struct Fields {
    klass: Option<Name>,
    data: Option<Bytes>,
    delay: f64,
    priority: Option<f64>,
    retries: Option<f64>,
    tags: Option<Vec<Name>>,
    throttles: Vec<Name>,
    trace: Option<Name>,
}

impl Indexes {
    /// Gives a job these tags, none of which is indexed for it yet. Repeats are kept and counted.
    pub(super) fn retag(&mut self, cx: &Cx<'_>, job: &mut Job, tags: Vec<Name>) {
        if tags.is_empty() && job.more.is_none() {
            return;
        }
        let mut tagged = Vec::with_capacity(tags.len());
        for tag in tags {
            let tag = self.names.shared(tag.bytes());
            let at = cx.rules.tags_indexed.then_some(cx.now);
            if at.is_some() {
                self.index_tag(&tag, &job.jid, None, cx.now);
            }
            tagged.push(Tagged { tag, at });
        }
        job.more().tags = tagged;
    }
}
