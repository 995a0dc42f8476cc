//! The queue once more, from the specification: clarity over speed, and deliberately unlike the engine.
//!
//! State is kept as the reference keeps it: sorted sets, sets and lists under their Redis names (chapter 4), jobs in a
//! plain list that is searched from the front. Nothing is cached, nothing is indexed twice, and sorting happens when
//! somebody asks. Where the specification says FIX, the fix is what is modelled.
//!
//! Known choices where the text is silent, shared with the engine: a put frees the throttle locks of a running job; a
//! job waiting for a throttle that is released by hand goes to work; a job's own queue is always the last of its
//! throttles, wherever it moved; a recurring child that is named like an existing job replaces it.

mod keys;
mod life;
mod list;
mod pop;
mod put;
mod recur;
mod redis;
mod report;
mod tag;
mod throttle;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use haul_engine::{Call, Command, Event, Name, Recur, Refusal, Rules, State, TrackedEvent, Value};

use crate::answer::{Answer, FailureSeen, JobSeen, ReportSeen};
use redis::Zset;

/// A deliberate mistake in the model, to see that the comparison notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    /// Equal scores are worked off in ascending order of the jid.
    TiesAscending,
    /// A heartbeat takes the warning back.
    HeartbeatClearsWarning,
    /// A tag that is put on again is not counted again.
    TagCountedOnce,
    /// A lock warning is not told to the world.
    SilentWarning,
    /// Data is not replaced by a completion.
    CompleteKeepsData,
}

/// All tenants.
#[derive(Clone, Default)]
pub struct Model {
    tenants: BTreeMap<Name, Tenant>,
    twist: Option<Twist>,
}

/// The circumstances of one command.
struct Cx {
    now: f64,
    clock: f64,
    rules: Rules,
    events: Vec<Event>,
    twist: Option<Twist>,
}

impl Cx {
    fn emit(&mut self, event: Event) {
        if self.rules.events {
            self.events.push(event);
        }
    }
}

/// One tenant's keys.
#[derive(Clone, Default)]
struct Tenant {
    jobs: Vec<Job>,
    recurs: Vec<Recur>,
    zsets: BTreeMap<Vec<u8>, Zset>,
    sets: BTreeMap<Vec<u8>, BTreeSet<Name>>,
    /// The head first.
    lists: BTreeMap<Vec<u8>, Vec<Name>>,
    config: BTreeMap<Name, Name>,
    /// Maximum, and the server time at which the definition ends.
    throttles: BTreeMap<Name, (f64, Option<f64>)>,
    days: BTreeMap<(i64, Name), Day>,
    scratch: BTreeMap<Name, (Value, Option<f64>)>,
    /// What workers say of themselves, and whether they are asked to drain.
    facts: BTreeMap<Name, (Option<Name>, bool)>,
}

/// A job's hash and history.
#[derive(Clone)]
struct Job {
    jid: Name,
    klass: Name,
    data: Bytes,
    priority: f64,
    tags: Vec<Name>,
    state: State,
    worker: Name,
    expires: f64,
    queue: Name,
    retries: f64,
    remaining: f64,
    time: f64,
    failure: Option<FailureSeen>,
    grace: bool,
    scheduled: Option<f64>,
    spawned_from: Option<Name>,
    history: Vec<(f64, String)>,
    /// Without the queue's own.
    throttles: Vec<Name>,
    attempt: u32,
    result: Option<Bytes>,
    report: Option<ReportSeen>,
}

/// Every sample and count of a queue on a day.
#[derive(Clone, Default)]
struct Day {
    wait: Vec<f64>,
    run: Vec<f64>,
    failures: Option<i64>,
    failed: Option<i64>,
    retries: Option<i64>,
}

/// What a worker has in its hands, for a workload that wants its calls to succeed.
#[derive(Clone, Debug)]
pub struct Held {
    pub jid: Name,
    pub worker: Name,
    pub queue: Name,
    pub attempt: u32,
}

type Outcome = Result<Answer, Refusal>;

impl Model {
    /// An empty one, with a mistake in it or without.
    pub fn new(twist: Option<Twist>) -> Self {
        Model { tenants: BTreeMap::new(), twist }
    }

    /// Does one command: its answer and the events, in order.
    pub fn apply(&mut self, call: &Call) -> (Answer, Vec<Event>) {
        let mut cx =
            Cx { now: call.now, clock: call.clock, rules: call.rules, events: Vec::new(), twist: self.twist };
        let tenant = self.tenants.entry(call.tenant.clone()).or_default();
        let answer = tenant.apply(&mut cx, &call.command).unwrap_or_else(Answer::Refused);
        (answer, cx.events)
    }

    /// The jobs that run.
    pub fn held(&self, tenant: &Name) -> Vec<Held> {
        let jobs = self.tenants.get(tenant).into_iter().flat_map(|tenant| &tenant.jobs);
        jobs.filter(|job| job.state == State::Running)
            .map(|job| Held {
                jid: job.jid.clone(),
                worker: job.worker.clone(),
                queue: job.queue.clone(),
                attempt: job.attempt,
            })
            .collect()
    }

    /// Every jid there is.
    pub fn jids(&self, tenant: &Name) -> Vec<Name> {
        let jobs = self.tenants.get(tenant).into_iter().flat_map(|tenant| &tenant.jobs);
        jobs.map(|job| job.jid.clone()).collect()
    }

    /// Every statistics record there is.
    pub fn days(&self, tenant: &Name) -> Vec<(f64, Name)> {
        let days = self.tenants.get(tenant).into_iter().flat_map(|tenant| tenant.days.keys());
        days.map(|(day, queue)| (*day as f64, queue.clone())).collect()
    }
}

impl Tenant {
    fn apply(&mut self, cx: &mut Cx, command: &Command) -> Outcome {
        match command {
            Command::Get { jid } => {
                Ok(Answer::Job(self.find(jid).is_some().then(|| self.view(jid)).flatten().map(Box::new)))
            }
            Command::GetMany { jids } => Ok(Answer::Jobs(self.views(jids))),
            Command::Exists { jid } => Ok(Answer::Bool(self.find(jid).is_some())),
            Command::Put(put) => self.put_many(cx, &[(**put).clone()]).map(|_| Answer::Name(put.jid.clone())),
            Command::PutMany(puts) => self.put_many(cx, puts),
            Command::Pop(pop) => Ok(self.pop(cx, pop)),
            Command::Peek { queue, offset, count } => Ok(self.peek(cx, queue, *offset, *count)),
            Command::Complete(complete) => self.complete(cx, complete).map(Answer::State),
            Command::CompleteMany { worker, jids } => Ok(self.complete_many(cx, worker, jids)),
            Command::Fail(fail) => self.fail(cx, fail),
            Command::Heartbeat(beat) => self.heartbeat(cx, beat).map(Answer::Number),
            Command::HeartbeatMany { worker, jids } => Ok(self.heartbeat_many(cx, worker, jids)),
            Command::Retry(retry) => self.retry(cx, retry),
            Command::Depends { jid, on, jids, all } => self.depends(cx, jid, *on, (jids, *all)),
            Command::Priority { jid, priority } => self.priority(jid, *priority),
            Command::Report(report) => self.report(report),
            Command::Timeout { jids } => Ok(self.timeout(cx, jids)),
            Command::Cancel { jids } => self.cancel(cx, jids),
            Command::Unfail { queue, group, count } => Ok(self.unfail(cx, queue, group, *count)),
            Command::Log { jid, message, data } => self.log(cx, jid, message, data.as_ref()),
            Command::Flush => {
                *self = Tenant::default();
                Ok(Answer::Done)
            }
            other => self.apply_rest(cx, other),
        }
    }

    fn apply_rest(&mut self, cx: &mut Cx, command: &Command) -> Outcome {
        match command {
            Command::Tag { jid, tags } => self.tag(cx, jid, tags),
            Command::Untag { jid, tags } => self.untag(cx, jid, tags),
            Command::Tagged { tag, range } => Ok(self.tagged(tag, *range)),
            Command::TopTags { offset, count } => Ok(self.top_tags(*offset, *count)),
            Command::Track { jid } => self.track(cx, jid),
            Command::Untrack { jid } => Ok(self.untrack(cx, jid)),
            Command::Tracked => Ok(self.tracked()),
            Command::Recur(recur) => Ok(self.recur(cx, recur)),
            Command::Unrecur { jid } => Ok(self.unrecur(jid)),
            Command::RecurGet { jid } => Ok(Answer::Recur(self.recur_view(jid).map(Box::new))),
            Command::RecurUpdate { jid, changes } => self.recur_update(cx, jid, changes),
            Command::RecurTag { jid, tags } => self.recur_tag(jid, tags),
            Command::RecurUntag { jid, tags } => self.recur_untag(jid, tags),
            Command::ConfigGet { option } => Ok(Answer::Option(self.config.get(option).cloned())),
            Command::ConfigAll => Ok(Answer::Options(
                self.config.iter().map(|(option, value)| (option.clone(), value.clone())).collect(),
            )),
            Command::ConfigSet { option, value } => {
                cx.emit(Event::ConfigSet { option: option.clone(), value: value.clone() });
                self.config.insert(option.clone(), value.clone());
                Ok(Answer::Done)
            }
            Command::ConfigUnset { option } => {
                cx.emit(Event::ConfigUnset { option: option.clone() });
                self.config.remove(option);
                Ok(Answer::Done)
            }
            Command::ThrottleSet { id, maximum, ttl } => Ok(self.throttle_set(cx, id, *maximum, *ttl)),
            Command::ThrottleGet { id } => Ok(self.throttle_get(cx, id)),
            Command::ThrottleDelete { id } => {
                self.throttles.remove(id);
                Ok(Answer::Done)
            }
            Command::ThrottleLocks { id } => Ok(Answer::Names(self.members(&redis::throttle(id, "locks")))),
            Command::ThrottlePending { id } => {
                Ok(Answer::Names(self.members(&redis::throttle(id, "pending"))))
            }
            Command::ThrottleRelease { id, jids } => Ok(self.throttle_release(cx, id, jids)),
            Command::Key(query) => self.key(cx, query),
            Command::Keyspace(command) => self.keyspace(cx, command),
            Command::Versions { .. } => Ok(Answer::Unchecked),
            other => Ok(self.apply_lists(cx, other)),
        }
    }

    fn apply_lists(&mut self, cx: &mut Cx, command: &Command) -> Answer {
        match command {
            Command::Pause { queues, paused } => self.pause(queues, *paused),
            Command::QueueCounts { queue } => Answer::Counts(vec![self.queue_counts(cx, queue)]),
            Command::AllQueueCounts => {
                let names = self.members(b"ql:queues");
                Answer::Counts(names.iter().map(|name| self.queue_counts(cx, name)).collect())
            }
            Command::QueueNames => Answer::Names(self.members(b"ql:queues")),
            Command::Length { queue } => {
                let parts = ["locks", "work", "scheduled"];
                Answer::Int(parts.iter().map(|part| self.zcard(&redis::queue(queue, part)) as i64).sum())
            }
            Command::Stats { queue, date } => Answer::Stats(Box::new(self.stats(queue, *date))),
            Command::Workers => self.workers(cx),
            Command::WorkerJobs { worker } => self.worker_jobs(cx, worker),
            Command::Register { worker, facts, is_new, draining } => {
                self.register_worker(cx, worker, facts, (*is_new, *draining))
            }
            Command::Drain { worker, drain } => self.drain(worker, *drain),
            Command::Deregister { workers } => {
                for worker in workers {
                    self.zrem(b"ql:workers", worker);
                    self.facts.remove(worker);
                }
                Answer::Done
            }
            Command::Forget { queues } => {
                for queue in queues {
                    self.zrem(b"ql:queues", queue);
                }
                Answer::Done
            }
            Command::Jobs(jobs) => Answer::Names(self.list(cx, jobs)),
            Command::FailureGroups => self.failure_groups(),
            Command::Failed { group, range } => self.failed(group, *range),
            Command::Totals => Answer::Totals(self.jobs.len()),
            _ => Answer::Unchecked,
        }
    }

    fn find(&self, jid: &Name) -> Option<&Job> {
        self.jobs.iter().find(|job| job.jid == *jid)
    }

    fn find_mut(&mut self, jid: &Name) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.jid == *jid)
    }

    /// A copy of the job, or the refusal that there is none.
    fn job(&self, jid: &Name) -> Result<Job, Refusal> {
        self.find(jid).cloned().ok_or_else(|| Refusal::NoJob { jid: jid.clone() })
    }

    /// Changes a job that exists.
    fn edit(&mut self, jid: &Name, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.find_mut(jid) {
            change(job);
        }
    }

    fn is_tracked(&self, jid: &Name) -> bool {
        self.zscore(b"ql:tracked", jid).is_some()
    }

    fn emit_tracked(&self, cx: &mut Cx, what: TrackedEvent, jid: &Name) {
        if self.is_tracked(jid) {
            cx.emit(Event::Tracked { what, jid: jid.clone() });
        }
    }

    /// Appends to a job's history, within the cap (3.5).
    fn note(&mut self, jid: &Name, when: f64, what: String) {
        let cap = self.number("max-job-history").unwrap_or(100.0);
        self.edit(jid, |job| {
            if cap > 0.0 && !job.history.is_empty() {
                let first = job.history.remove(0);
                let recent = (cap as usize).saturating_sub(2);
                while job.history.len() > recent {
                    job.history.remove(0);
                }
                job.history.insert(0, first);
            }
            job.history.push((when.floor(), what));
        });
    }

    /// An option that reads as a number.
    fn number(&self, option: &str) -> Option<f64> {
        haul_engine::parse_number(self.config.get(option.as_bytes())?.bytes())
    }

    /// The lock interval of a queue: its own option in either spelling, then the general one (7.6, 16.10).
    fn heartbeat_interval(&self, queue: &Name) -> f64 {
        let own =
            self.number(&format!("{queue}-heartbeat")).or_else(|| self.number(&format!("heartbeat-{queue}")));
        own.or_else(|| self.number("heartbeat")).unwrap_or(60.0)
    }

    /// A job's own throttles and then its queue's.
    fn all_throttles(&self, jid: &Name) -> Vec<Name> {
        let Some(job) = self.find(jid) else { return Vec::new() };
        let mut ids = job.throttles.clone();
        if !job.queue.is_empty() {
            ids.push(redis::queue_throttle(&job.queue));
        }
        ids
    }

    fn view(&self, jid: &Name) -> Option<JobSeen> {
        let job = self.find(jid)?.clone();
        let links = |part| self.sets.get(&redis::job(jid, part)).into_iter().flatten().cloned().collect();
        Some(JobSeen {
            tracked: self.is_tracked(jid),
            dependents: links("dependents"),
            dependencies: links("dependencies"),
            throttles: self.all_throttles(jid),
            jid: job.jid,
            klass: job.klass,
            queue: job.queue,
            state: job.state,
            worker: job.worker,
            priority: job.priority,
            retries: job.retries,
            remaining: job.remaining,
            expires: job.expires,
            attempt: job.attempt,
            data: job.data,
            result: job.result,
            report: job.report,
            tags: job.tags,
            history: job.history,
            failure: job.failure,
            spawned_from: job.spawned_from,
        })
    }

    fn views(&self, jids: &[Name]) -> Vec<JobSeen> {
        jids.iter().filter_map(|jid| self.view(jid)).collect()
    }
}
