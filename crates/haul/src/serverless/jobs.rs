//! The engine as the daemon sees it: adding, taking, renewing and releasing jobs. All of it goes through rounds of the
//! shard like everybody's commands.

use bytes::Bytes;
use haul_engine::{
    Call, Command, Complete, Fail, Heartbeat, JobList, Jobs as ListJobs, Lock, Name, Pop, Put, PutWhen,
    RankWindow, Refusal, Reply, Retry, Rules,
};
use haul_journal::Entry;

use super::payload;
use crate::auth;
use crate::clock;
use crate::cluster::Shards;
use crate::dialect::Texts;

/// A lock that ran out costs no retry: the job never reported.
const RULES: Rules = Rules { retries_counted: false, ..Rules::NATIVE };
/// Retries of a posted job: age ends it, not their number.
const RETRIES: f64 = 1_000_000.0;
/// The tag of a job that was posted as bytes.
const RAW: &str = "raw";
/// The line of a job's history that holds its scoreboard entry.
pub(crate) const RAN: &str = "ran";
/// The tenant and queue that hold the sysids; no tenant of users is called so.
pub(crate) const SYSID: &str = "queue.sysid";

/// Why the store did not do it; nothing was lost.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(String);

impl StoreError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        StoreError(why.into())
    }
}

type Answer = Result<(Result<Reply, Refusal>, Texts), StoreError>;

/// A job that was taken to be run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) jid: Name,
    pub(crate) payload: Bytes,
    /// Given to the handler as it is, not as a line.
    pub(crate) raw: bool,
    /// When it was made, in seconds.
    pub(crate) created: f64,
    /// How often it was given back.
    pub(crate) retries: u32,
}

/// How a job is given up by this daemon.
#[derive(Clone, Debug)]
pub(crate) enum Release {
    /// Done, with its scoreboard entry.
    Archive { result: Bytes },
    /// Ended without success: the group names the code.
    Bury { group: String, message: Bytes, entry: Option<Bytes> },
    /// Again after a delay in seconds.
    Retry { delay: f64, group: String, message: Bytes },
    /// It was not run: again at once.
    Unget,
}

/// The engine, for one daemon.
#[derive(Clone)]
pub(crate) struct Jobs {
    pub(crate) shard: Shards,
    /// Seconds that a lock lasts.
    pub(crate) lock_seconds: f64,
}

fn call(tenant: &Name, command: Command) -> Call {
    let now = clock::now();
    Call { tenant: tenant.clone(), now, clock: now, rules: RULES, command }
}

impl Jobs {
    async fn ask(&self, calls: Vec<Call>) -> Result<Vec<Answer>, StoreError> {
        let delivery = self.shard.ask(calls, Vec::new()).await;
        let delivery = delivery.map_err(|_| StoreError("the server is stopping".to_owned()))?;
        let mut answers = Vec::new();
        for outcome in delivery.outcomes.into_iter().flatten() {
            answers.push(crate::shard::texts(outcome).await.map_err(|fault| StoreError(fault.to_string())));
        }
        Ok(answers)
    }

    async fn one(&self, tenant: &Name, command: Command) -> Answer {
        let mut answers = self.ask(vec![call(tenant, command)]).await?;
        answers.pop().unwrap_or_else(|| Err(StoreError("no answer".to_owned())))
    }

    /// Adds jobs of the journal; one that exists is left as it is. `new_types` are noted with them.
    pub(crate) async fn add(
        &self,
        entries: &[Entry],
        new_types: &[(Name, String)],
    ) -> Result<(), StoreError> {
        let now_ms = clock::now() * 1000.0;
        let mut calls = Vec::with_capacity(entries.len() + new_types.len());
        for (tenant, jobtype) in new_types {
            let option = Name::from(format!("{}{jobtype}", super::handlers::JOBTYPE));
            calls.push(call(tenant, Command::ConfigSet { option, value: Name::from("1") }));
        }
        for entry in entries {
            calls.push(call(
                &auth::tenant(entry.full.tenant().as_bytes()),
                Command::Put(Box::new(put_of(entry, now_ms))),
            ));
        }
        for answer in self.ask(calls).await? {
            match answer?.0 {
                Ok(_) | Err(Refusal::Exists { .. }) => {}
                Err(refusal) => return Err(StoreError(format!("{refusal:?}"))),
            }
        }
        Ok(())
    }

    /// Takes up to `count` jobs that may run.
    pub(crate) async fn take(
        &self,
        tenant: &Name,
        jobtype: &str,
        count: usize,
        sysid: &Name,
    ) -> Result<Vec<Job>, StoreError> {
        let pop = pop_of(jobtype, count, sysid, self.lock_seconds);
        let (reply, texts) = self.one(tenant, Command::Pop(pop)).await?;
        let Ok(Reply::Jobs(jobs)) = reply else { return Ok(Vec::new()) };
        let job = |job: haul_engine::JobView| {
            let payload = payload::to_payload(Bytes::copy_from_slice(texts.bytes(&job.data)));
            let raw = job.tags.iter().any(|tag| tag.bytes() == RAW.as_bytes())
                || memchr::memchr(b'\n', &payload).is_some();
            Job {
                payload,
                raw,
                created: created(&job),
                retries: (job.retries - job.remaining).clamp(0.0, f64::from(u32::MAX)) as u32,
                jid: job.jid,
            }
        };
        Ok(jobs.into_iter().map(job).collect())
    }

    /// Keeps the locks of these jobs; those that are no longer held are left.
    pub(crate) async fn renew(&self, held: Vec<(Name, Name)>, sysid: &Name) -> Result<(), StoreError> {
        let beat = |(tenant, jid): (Name, Name)| {
            let lock = Lock::Seconds(self.lock_seconds);
            let beat = Heartbeat { jid, worker: sysid.clone(), attempt: None, lock, data: None };
            call(&tenant, Command::Heartbeat(beat))
        };
        self.ask(held.into_iter().map(beat).collect()).await.map(|_| ())
    }

    /// Releases jobs that this daemon holds; of one whose lock was lost nothing changes.
    pub(crate) async fn release(
        &self,
        tenant: &Name,
        jobs: Vec<(Name, Release)>,
        sysid: &Name,
    ) -> Result<(), StoreError> {
        let (ungot, jobs): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|(_, release)| matches!(release, Release::Unget));
        self.unget(tenant, ungot.into_iter().map(|(jid, _)| jid).collect(), sysid).await?;
        let mut calls = Vec::with_capacity(jobs.len());
        for (jid, mut release) in jobs {
            if let Release::Bury { entry, .. } = &mut release
                && let Some(data) = entry.take()
            {
                calls.push(Jobs::log(tenant, &jid, data));
            }
            let Some(command) = command_of(jid, release, sysid) else { continue };
            calls.push(call(tenant, command));
        }
        for answer in self.ask(calls).await? {
            if let Err(refusal) = answer?.0 {
                tracing::debug!(?refusal, "a job was lost to somebody else before it was released");
            }
        }
        Ok(())
    }

    /// What a run came to, for a job that is not archived: a line of its history.
    fn log(tenant: &Name, jid: &Name, entry: Bytes) -> Call {
        call(tenant, Command::Log { jid: jid.clone(), message: Name::from(RAN), data: Some(entry) })
    }

    /// Gives jobs back that were not run. Taking a lock away asks for no holder, so that it is ours is made sure first.
    pub(crate) async fn unget(&self, tenant: &Name, jids: Vec<Name>, sysid: &Name) -> Result<(), StoreError> {
        if jids.is_empty() {
            return Ok(());
        }
        let lock = Lock::Seconds(self.lock_seconds);
        let beat = |jid: &Name| {
            let beat = Heartbeat { jid: jid.clone(), worker: sysid.clone(), attempt: None, lock, data: None };
            call(tenant, Command::Heartbeat(beat))
        };
        let answers = self.ask(jids.iter().map(beat).collect()).await?;
        let mut calls = Vec::new();
        for (jid, answer) in jids.into_iter().zip(answers) {
            if answer?.0.is_ok() {
                calls.push(call(tenant, Command::Timeout { jids: vec![jid] }));
            }
        }
        self.ask(calls).await.map(|_| ())
    }

    /// Makes the row of a sysid; false if there is one.
    pub(crate) async fn insert_sysid(&self, sysid: &str, seconds: f64) -> Result<bool, StoreError> {
        let refused = self.put_sysid(sysid, seconds, PutWhen::New).await?;
        Ok(!matches!(refused, Some(Refusal::Exists { .. })))
    }

    /// Moves the end of a sysid's row; false if it is gone.
    pub(crate) async fn renew_sysid(&self, sysid: &str, seconds: f64) -> Result<bool, StoreError> {
        Ok(self.put_sysid(sysid, seconds, PutWhen::Exists).await?.is_none())
    }

    async fn put_sysid(
        &self,
        sysid: &str,
        seconds: f64,
        when: PutWhen,
    ) -> Result<Option<Refusal>, StoreError> {
        let put = Put {
            jid: Name::from(sysid),
            queue: Name::from(SYSID),
            worker: Some(Name::from(sysid)),
            klass: Some(Name::from(SYSID)),
            data: Some(Bytes::from_static(b"null")),
            delay: seconds,
            priority: None,
            tags: None,
            retries: None,
            depends: Vec::new(),
            throttles: Vec::new(),
            when,
            trace: None,
        };
        let (reply, _) = self.one(&Name::from(SYSID), Command::Put(Box::new(put))).await?;
        Ok(reply.err())
    }

    /// Removes a sysid's row.
    pub(crate) async fn release_sysid(&self, sysid: &str) -> Result<(), StoreError> {
        self.one(&Name::from(SYSID), Command::Cancel { jids: vec![Name::from(sysid)] }).await.map(|_| ())
    }

    /// Removes rows whose time has ended.
    pub(crate) async fn drop_old_sysids(&self) -> Result<(), StoreError> {
        let tenant = Name::from(SYSID);
        let list = |list| {
            let range = RankWindow::Limit { offset: 0, count: Some(1000) };
            Command::Jobs(ListJobs { list, queue: tenant.clone(), range })
        };
        // A row is a job that is scheduled for its end. Asking for those makes the ones that are due wait, for ever.
        let _ = self.one(&tenant, list(JobList::Scheduled)).await?;
        let Ok(Reply::Names(jids)) = self.one(&tenant, list(JobList::Waiting)).await?.0 else {
            return Ok(());
        };
        if !jids.is_empty() {
            let _ = self.one(&tenant, Command::Cancel { jids }).await?;
        }
        Ok(())
    }

    /// The tenants there are.
    pub(crate) async fn tenants(&self) -> Result<Vec<Name>, StoreError> {
        match self.one(&Name::from(""), Command::Tenants).await?.0 {
            Ok(Reply::Names(names)) => Ok(names),
            _ => Ok(Vec::new()),
        }
    }

    pub(crate) async fn options(&self, tenant: &Name) -> Result<Vec<(Name, Name)>, StoreError> {
        match self.one(tenant, Command::ConfigAll).await?.0 {
            Ok(Reply::Options(options)) => Ok(options),
            _ => Ok(Vec::new()),
        }
    }

    pub(crate) async fn set_option(
        &self,
        tenant: &Name,
        option: Name,
        value: Option<Name>,
    ) -> Result<(), StoreError> {
        let command = match value {
            Some(value) => Command::ConfigSet { option, value },
            None => Command::ConfigUnset { option },
        };
        self.one(tenant, command).await.map(|_| ())
    }

    /// Which of these types may have something to run: waiting, due, recurring, or locked by somebody who is gone.
    pub(crate) async fn waiting(&self, tenant: &Name, types: &[String]) -> Result<Vec<String>, StoreError> {
        let Ok(Reply::AllCounts(counts)) = self.one(tenant, Command::AllQueueCounts).await?.0 else {
            return Ok(Vec::new());
        };
        let is_due = |name: &String| {
            counts.iter().any(|queue| {
                queue.name.bytes() == name.as_bytes()
                    && queue.waiting + queue.scheduled + queue.stalled + queue.recurring > 0
            })
        };
        Ok(types.iter().filter(|name| is_due(name)).cloned().collect())
    }

    /// Removes failed jobs of a type that failed before a moment.
    pub(crate) async fn purge_failed(
        &self,
        tenant: &Name,
        before: f64,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let search = haul_engine::Search {
            state: Some(haul_engine::SearchState::Failed),
            until: Some(before),
            count: limit,
            examine_max: limit * 10,
            ..haul_engine::Search::default()
        };
        let Ok(Reply::Found { jobs, .. }) = self.one(tenant, Command::Search(Box::new(search))).await?.0
        else {
            return Ok(0);
        };
        let ours = |job: &haul_engine::JobView| {
            let group = job.failure.as_ref().map(|failure| failure.group.display().into_owned());
            group.is_some_and(|group| group.starts_with("failed-") || group.starts_with("abandoned-"))
                && haul_journal::Id::parse(&job.jid.display()).is_some()
        };
        let jids: Vec<Name> = jobs.into_iter().filter(ours).map(|job| job.jid).collect();
        let count = jids.len();
        if count > 0 {
            let _ = self.one(tenant, Command::Cancel { jids }).await?;
        }
        Ok(count)
    }

    /// Removes jobs of a type that could have been taken before a moment and were not.
    pub(crate) async fn expire_unrun(
        &self,
        tenant: &Name,
        jobtype: &str,
        before: f64,
    ) -> Result<usize, StoreError> {
        let list = ListJobs {
            list: JobList::Waiting,
            queue: Name::from(jobtype),
            range: RankWindow::Limit { offset: 0, count: Some(1000) },
        };
        let Ok(Reply::Names(jids)) = self.one(tenant, Command::Jobs(list)).await?.0 else { return Ok(0) };
        // Only what was posted here, which its id tells.
        let made_before = |jid: &Name| {
            haul_journal::Id::parse(&jid.display()).is_some_and(|id| (id.ms as f64) < before * 1000.0)
        };
        let jids: Vec<Name> = jids.into_iter().filter(made_before).collect();
        if jids.is_empty() {
            return Ok(0);
        }
        // A job that was deferred is much older than its wait.
        let Ok(Reply::Jobs(jobs)) = self.one(tenant, Command::GetMany { jids }).await?.0 else {
            return Ok(0);
        };
        let jids: Vec<Name> =
            jobs.into_iter().filter(|job| job.available_since < before).map(|job| job.jid).collect();
        let count = jids.len();
        if count > 0 {
            let _ = self.one(tenant, Command::Cancel { jids }).await?;
        }
        Ok(count)
    }
}

/// How a job of the journal is put; one that exists is left as it is.
fn put_of(entry: &Entry, now_ms: f64) -> Put {
    let jobtype = Name::from(entry.full.jobtype());
    Put {
        jid: Name::from(entry.id.to_string()),
        queue: jobtype.clone(),
        worker: None,
        klass: Some(jobtype),
        data: Some(payload::to_data(&entry.payload)),
        delay: entry.due_ms.map_or(0.0, |due| (due as f64 - now_ms) / 1000.0),
        priority: None,
        tags: entry.raw.then(|| vec![Name::from(RAW)]),
        retries: Some(RETRIES),
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::New,
        trace: None,
    }
}

fn pop_of(jobtype: &str, count: usize, sysid: &Name, seconds: f64) -> Pop {
    let queues = vec![Name::from(jobtype)];
    Pop {
        worker: sysid.clone(),
        queues,
        round_robin: false,
        klasses: Vec::new(),
        count,
        lock: Lock::Seconds(seconds),
    }
}

/// The command that releases a job this way; none: it takes two steps.
fn command_of(jid: Name, release: Release, sysid: &Name) -> Option<Command> {
    let worker = sysid.clone();
    Some(match release {
        Release::Archive { result } => Command::Complete(Box::new(Complete {
            jid,
            worker: Some(worker),
            queue: None,
            attempt: None,
            data: None,
            result: Some(result),
            next: None,
        })),
        Release::Bury { group, message, .. } => Command::Fail(Box::new(Fail {
            jid,
            worker: Some(worker),
            attempt: None,
            group: Name::from(group),
            message,
            data: None,
        })),
        Release::Retry { delay, group, message } => Command::Retry(Box::new(Retry {
            jid,
            queue: None,
            worker,
            attempt: None,
            delay,
            group: Some(Name::from(group)),
            message: Some(message),
        })),
        Release::Unget => return None,
    })
}

/// When a job was made: its id says so, or its history.
fn created(job: &haul_engine::JobView) -> f64 {
    match haul_journal::Id::parse(&job.jid.display()) {
        Some(id) => id.ms as f64 / 1000.0,
        None => job.history.first().map_or_else(clock::now, |entry| entry.when),
    }
}

#[cfg(test)]
mod tests;
