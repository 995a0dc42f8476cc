//! The verbs, one file each. A verb reads: look up, check everything, change, emit, reply.

mod cancel;
mod complete;
mod config;
mod depends;
mod fail;
mod heartbeat;
mod list;
mod overview;
mod page;
mod pop;
mod put;
mod recur;
mod report;
mod retry;
mod search;
mod tag;
mod task;
mod task_lists;
mod throttle;
mod timeout;
mod track;
mod unfail;

pub use pop::KLASS_WALK_MAX;

use crate::job::{Job, State};
use crate::jobs::Jobs;
use crate::record::Key;
use crate::tenant::{Cx, Tenant};
use crate::{Command, Kind, Name, Refusal, Reply, What};

/// What every verb answers.
pub(crate) type Answer = Result<Reply, Refusal>;

impl Tenant {
    /// Does one command.
    pub(crate) fn apply(&mut self, cx: &mut Cx<'_>, command: Command) -> Answer {
        match command {
            Command::Get { jid } => {
                Ok(Reply::Job(self.jobs.get(&jid).map(|job| Box::new(self.indexes.view(job)))))
            }
            Command::GetMany { jids } => Ok(Reply::Jobs(self.views(&jids))),
            Command::Exists { jid } => Ok(Reply::Bool(self.jobs.contains_key(&jid))),
            Command::Put(put) => self.put_one(cx, *put),
            Command::PutMany(puts) => self.put_many(cx, puts),
            Command::Pop(pop) => Ok(self.pop(cx, &pop)),
            Command::Peek { queue, offset, count } => Ok(self.peek(cx, &queue, offset, count)),
            Command::Complete(complete) => self.complete(cx, *complete),
            Command::CompleteMany { worker, jids } => Ok(self.complete_many(cx, &worker, jids)),
            Command::Fail(fail) => self.fail(cx, *fail),
            Command::Heartbeat(beat) => self.heartbeat(cx, beat).map(Reply::Number),
            Command::HeartbeatMany { worker, jids } => Ok(self.heartbeat_many(cx, &worker, jids)),
            Command::Report(report) => self.report(cx, *report),
            Command::Retry(retry) => self.retry(cx, *retry),
            Command::Depends { jid, on, jids, all } => self.depends(cx, &jid, on, &jids, all),
            Command::Priority { jid, priority } => self.priority(cx, &jid, priority),
            Command::Timeout { jids } => Ok(self.timeout(cx, jids)),
            Command::Cancel { jids } => self.cancel(cx, &jids),
            Command::Unfail { queue, group, count } => Ok(self.unfail(cx, &queue, &group, count)),
            Command::Log { jid, message, data } => self.log(cx, &jid, message, data),
            Command::Flush => Ok(Reply::Done), // the engine's own
            other => self.apply_rest(cx, other),
        }
    }

    /// The commands on everything but a job's life.
    fn apply_rest(&mut self, cx: &mut Cx<'_>, command: Command) -> Answer {
        match command {
            Command::Tag { jid, tags } => self.tag(cx, &jid, &tags),
            Command::Untag { jid, tags } => self.untag(cx, &jid, &tags),
            Command::Tagged { tag, range } => Ok(self.tagged(&tag, range)),
            Command::TopTags { offset, count } => Ok(self.top_tags(offset, count)),
            Command::Track { jid } => self.track(cx, &jid),
            Command::Untrack { jid } => Ok(self.untrack(cx, &jid)),
            Command::Tracked => Ok(self.tracked()),
            Command::Recur(recur) => self.recur(cx, *recur),
            Command::Unrecur { jid } => Ok(self.unrecur(cx, &jid)),
            Command::RecurGet { jid } => {
                Ok(Reply::Recur(self.indexes.recurs.get(&jid).cloned().map(Box::new)))
            }
            Command::RecurUpdate { jid, changes } => self.recur_update(cx, &jid, changes),
            Command::RecurRun { jid } => self.recur_run(cx, &jid),
            Command::RecurTag { jid, tags } => self.recur_tag(&jid, tags),
            Command::RecurUntag { jid, tags } => self.recur_untag(&jid, &tags),
            Command::ConfigGet { option } => {
                Ok(Reply::Option(self.indexes.config.options.get(&option).cloned()))
            }
            Command::ConfigAll => Ok(self.config_all()),
            Command::ConfigSet { option, value } => Ok(self.config_set(cx, option, value)),
            Command::ConfigUnset { option } => Ok(self.config_unset(cx, option)),
            Command::ThrottleSet { id, maximum, ttl } => Ok(self.throttle_set(cx, id, maximum, ttl)),
            Command::ThrottleGet { id } => Ok(self.throttle_get(cx, id)),
            Command::ThrottleDelete { id } => Ok(self.throttle_delete(cx, &id)),
            Command::ThrottleLocks { id } => Ok(self.throttle_locks(&id)),
            Command::ThrottlePending { id } => Ok(self.throttle_pending(&id)),
            Command::ThrottleRelease { id, jids } => Ok(self.throttle_release(cx, &id, &jids)),
            Command::Key(query) => self.key(cx, &query),
            Command::Keyspace(command) => self.keyspace(cx, command),
            Command::Task(command) => self.task(cx, command),
            Command::Versions { keys } => Ok(Reply::Versions(self.versions(cx, &keys))),
            other => Ok(self.apply_lists(cx, other)),
        }
    }

    fn apply_lists(&mut self, cx: &mut Cx<'_>, command: Command) -> Reply {
        match command {
            Command::Pause { queues, paused } => self.pause(cx, queues, paused),
            Command::QueueCounts { queue } => Reply::Counts(self.queue_counts(cx, queue)),
            Command::AllQueueCounts => self.all_queue_counts(cx),
            Command::QueueNames => Reply::Names(self.queue_names()),
            Command::Length { queue } => self.length(&queue),
            Command::Stats { queue, date } => self.stats(&queue, date),
            Command::List(list) => self.page(cx, &list),
            Command::Workers => self.workers(cx),
            Command::WorkerJobs { worker } => self.worker_jobs(cx, &worker),
            Command::Register { worker, facts, is_new, draining } => {
                self.register_worker(cx, &worker, facts, (is_new, draining))
            }
            Command::Drain { worker, drain } => self.drain(&worker, drain),
            Command::Deregister { workers } => self.deregister(workers),
            Command::Forget { queues } => self.forget(queues),
            Command::Jobs(jobs) => Reply::Names(self.list(cx, &jobs)),
            Command::FailureGroups => self.failure_groups(),
            Command::Failed { group, range } => self.failed(&group, range),
            Command::Search(search) => self.search(cx, &search),
            Command::Totals => self.totals(),
            Command::KeyCount => Reply::Int(self.key_count(cx) as i64),
            Command::Overview { queues_max } => self.overview(cx, queues_max),
            _ => Reply::Done,
        }
    }

    pub(crate) fn views(&self, jids: &[Name]) -> Vec<crate::JobView> {
        // With room for all from the start: a view is large.
        let mut views = Vec::with_capacity(jids.len());
        views.extend(jids.iter().filter_map(|jid| self.jobs.get(jid)).map(|job| self.indexes.view(job)));
        views
    }

    fn priority(&mut self, cx: &mut Cx<'_>, jid: &Name, priority: f64) -> Answer {
        let job = job_mut(&mut self.jobs, jid)?;
        job.set_priority(priority);
        self.indexes.mark(job);
        if job.place == crate::job::Place::Work {
            self.indexes.leave(cx, job);
            self.indexes.enter(cx, job, crate::job::Place::Work, priority);
        }
        if let Some(sight) = cx.sight(job) {
            let text = Name::from(priority.to_string());
            cx.tell(Some(sight), Kind::Priority, job.state, Some(text));
        }
        Ok(Reply::Number(priority))
    }

    fn log(&mut self, cx: &mut Cx<'_>, jid: &Name, message: Name, data: Option<bytes::Bytes>) -> Answer {
        let job = job_mut(&mut self.jobs, jid)?;
        let data = data.map(|data| cx.keep(data));
        let sight = cx.sight(job);
        cx.tell(sight, Kind::Logged, job.state, Some(message.clone()));
        self.indexes.note(cx, job, cx.now, What::Log(Box::new((message, data))));
        Ok(Reply::Done)
    }

    fn keyspace(&mut self, cx: &mut Cx<'_>, command: crate::KeyCommand) -> Answer {
        if let crate::KeyCommand::Get { key } = &command {
            let scratch = self.indexes.keyspace.value(key.bytes(), cx.clock).is_some();
            if !scratch && self.collection_exists(cx, key) {
                return Err(Refusal::WrongType);
            }
        }
        let (answer, touched) = self.indexes.keyspace.apply(command, cx.clock)?;
        for key in touched {
            cx.round.touch_queue(&key);
            self.indexes.dirty.insert(Key::Scratch(key));
        }
        Ok(Reply::Keyspace(answer))
    }
}

/// The job, or the refusal that says there is none.
fn job_mut<'a>(jobs: &'a mut Jobs, jid: &Name) -> Result<&'a mut Job, Refusal> {
    jobs.get_mut(jid).ok_or_else(|| Refusal::NoJob { jid: jid.clone() })
}

/// Who claims to hold a job.
struct Claim<'a> {
    jid: &'a Name,
    /// None: whoever holds it.
    worker: Option<&'a Name>,
    attempt: Option<u32>,
}

/// The job, if it runs and the claimant holds it.
fn held<'a>(jobs: &'a mut Jobs, claim: &Claim<'_>) -> Result<&'a mut Job, Refusal> {
    let job = job_mut(jobs, claim.jid)?;
    if job.state != State::Running {
        return Err(Refusal::NotRunning { jid: job.jid.clone(), state: job.state });
    }
    let stranger = claim.worker.is_some_and(|worker| worker.bytes() != job.worker_bytes());
    if stranger || claim.attempt.is_some_and(|attempt| attempt != job.attempt()) {
        let worker = job.worker().cloned().unwrap_or_else(|| Name::new(b""));
        return Err(Refusal::NotHeld { jid: job.jid.clone(), worker });
    }
    Ok(job)
}
