//! The worker: takes jobs from queues, runs a handler on each, many at once in one process, and reports what became of them.
//!
//! | the handler | the server is told |
//! |---|---|
//! | returns an [`Outcome`] | what the outcome says: `HAUL.COMPLETE`, `HAUL.RETRY`, `HAUL.RELEASE` or nothing |
//! | returns an error (`?` on any error, [`HandlerError::retry`]) | `HAUL.RETRY` with the group and message, after a pause that doubles with each attempt; the job fails when no retries are left |
//! | returns [`HandlerError::fail`] | `HAUL.FAIL`: trying again would not help |
//! | panics | `HAUL.FAIL` with the group `panic`: a bug, which somebody should look at |
//! | is still running after its lock was lost and the grace passed | nothing: the job is no longer this worker's. The handler is dropped |
//! | is still running when the worker has been stopping for [`Worker::stop_grace`] | `HAUL.RELEASE`: the job is next in line. The handler is dropped |
//!
//! Every report names the attempt, so a worker that lost its lock without noticing cannot disturb the one that has it now.
//! A report that cannot be delivered is repeated until the server answers. A report refused for another reason than a lost
//! lock (a result beyond a limit, say) becomes `HAUL.FAIL` with the group `report`.
//!
//! A program built with `panic = "abort"` ends at a panic; its jobs go to others when their locks run out. A handler is
//! dropped where it awaits: one that computes without awaiting belongs into `spawn_blocking`.

mod attempt;
mod context;
mod keeper;
mod lock;
mod outcome;

pub use context::JobContext;
pub use outcome::{HandlerError, Outcome};

use crate::backoff::Backoff;
use crate::client::{Client, Pop};
use crate::error::Error;
use crate::job::Job;
use attempt::{Ended, attempt};
use lock::Locks;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Jobs asked for in one pop.
const POP_COUNT_MAX: usize = 256;
/// Handlers at once.
const CONCURRENCY_MAX: usize = 65_536;
/// How long jobs that came too late are tried to be given back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How far the worker is with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// No new jobs; those under way may finish.
    Stopping,
    /// What has not finished is given back.
    Abandoning,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs completed, or sent on to another queue.
    pub completed: u64,
    /// Jobs given back to be tried again.
    pub retried: u64,
    /// Jobs failed.
    pub failed: u64,
    /// Jobs given back unfinished.
    pub released: u64,
    /// Jobs whose lock was lost.
    pub lost: u64,
    /// Jobs whose handlers took care of the report themselves.
    pub handled: u64,
}

/// A worker being set up.
///
/// ```no_run
/// use haul_client::{Client, HandlerError, JobContext, Options, Outcome, Worker};
///
/// async fn send_mail(context: JobContext) -> Result<Outcome, HandlerError> {
///     let to: String = context.data()?;
///     context.log(&format!("sending to {to}")).await?;
///     Ok(Outcome::result("sent"))
/// }
///
/// # async fn example() -> Result<(), haul_client::Error> {
/// let client = Client::connect("127.0.0.1:4286", Options::default()).await?;
/// let shutdown = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
/// Worker::new(client, "host-1").queues(["mail"]).concurrency(20).run(send_mail, shutdown).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    pub(crate) client: Client,
    pub(crate) name: Arc<str>,
    queues: Vec<String>,
    concurrency: usize,
    round_robin: bool,
    pub(crate) lock: Duration,
    wait: Duration,
    pub(crate) lost_grace: Duration,
    stop_grace: Duration,
    pub(crate) retry_delay_min: Duration,
    pub(crate) retry_delay_max: Duration,
}

impl Worker {
    /// A worker of this name, which must not be that of another running worker. One job at a time, from no queue yet.
    pub fn new(client: Client, name: impl AsRef<str>) -> Self {
        Self {
            client,
            name: Arc::from(name.as_ref()),
            queues: Vec::new(),
            concurrency: 1,
            round_robin: false,
            lock: Duration::from_secs(60),
            wait: Duration::from_secs(2),
            lost_grace: Duration::from_secs(5),
            stop_grace: Duration::from_secs(30),
            retry_delay_min: Duration::from_secs(1),
            retry_delay_max: Duration::from_secs(300),
        }
    }

    /// Takes jobs from these queues, in this order.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Runs up to this many handlers at once; at least 1, at most 65,536.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.clamp(1, CONCURRENCY_MAX);
        self
    }

    /// Takes from each queue in turn, instead of emptying the first one first.
    #[must_use]
    pub fn round_robin(mut self) -> Self {
        self.round_robin = true;
        self
    }

    /// How long a job is held without a sign of life (60 seconds; at least 1). Renewed by itself at a third of that.
    #[must_use]
    pub fn lock(mut self, lock: Duration) -> Self {
        self.lock = lock.clamp(Duration::from_secs(1), Duration::from_secs(365 * 24 * 3600));
        self
    }

    /// How long one request for jobs waits (2 seconds; from 0.1 seconds to an hour). Also how long an idle worker takes to stop: it does not walk out
    /// on an answer that may carry jobs.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.clamp(Duration::from_millis(100), Duration::from_secs(3600));
        self
    }

    /// How long a handler may go on after its lock was lost (5 seconds).
    #[must_use]
    pub fn lost_grace(mut self, grace: Duration) -> Self {
        self.lost_grace = grace;
        self
    }

    /// How long handlers may go on after the shutdown (30 seconds); then their jobs are given back.
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// The pause before a failed job is tried again: the first (1 second), doubled with each attempt up to the longest
    /// (5 minutes), shortened at random by up to half.
    #[must_use]
    pub fn retry_delay(mut self, first: Duration, longest: Duration) -> Self {
        self.retry_delay_min = first;
        self.retry_delay_max = longest;
        self
    }

    /// Works until `shutdown` is ready, then finishes or gives back what is under way. Broken connections are waited out.
    ///
    /// # Errors
    /// The server refuses the request for jobs for good: a bad queue name, a missing token. What was under way has been
    /// finished or given back then, too.
    pub async fn run<H, F>(self, handler: H, shutdown: impl Future<Output = ()>) -> Result<Summary, Error>
    where
        H: Fn(JobContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
    {
        let (phase, phases) = watch::channel(Phase::Running);
        let locks = Arc::new(Locks::default());
        let mut keepers = JoinSet::new();
        keepers.spawn(keeper::renew(self.client.clone(), self.name.clone(), locks.clone(), self.lock));
        keepers.spawn(keeper::listen(self.client.clone(), self.name.clone(), locks.clone(), self.lock));
        let shift = Shift { worker: Arc::new(self), handler: Arc::new(handler), locks, phases };
        let mut running = Running::default();
        let outcome = shift.take_jobs(&mut running, std::pin::pin!(shutdown)).await;

        phase.send_replace(Phase::Stopping);
        if timeout(shift.worker.stop_grace, running.drain()).await.is_err() {
            phase.send_replace(Phase::Abandoning);
            running.drain().await;
        }
        outcome.map(|()| running.summary)
    }

    fn pop(&self, count: usize) -> Pop {
        let pop = Pop::new(&*self.name, &self.queues)
            .count(count.min(POP_COUNT_MAX))
            .wait(self.wait)
            .lock(self.lock);
        if self.round_robin { pop.round_robin() } else { pop }
    }
}

/// One run of a worker.
struct Shift<H> {
    worker: Arc<Worker>,
    handler: Arc<H>,
    locks: Arc<Locks>,
    phases: watch::Receiver<Phase>,
}

/// The attempts under way, and what became of those that ended.
#[derive(Default)]
struct Running {
    attempts: JoinSet<Ended>,
    summary: Summary,
}

impl Running {
    fn note(&mut self, ended: Ended) {
        let counter = match ended {
            Ended::Completed => &mut self.summary.completed,
            Ended::Retried => &mut self.summary.retried,
            Ended::Failed => &mut self.summary.failed,
            Ended::Released => &mut self.summary.released,
            Ended::Lost => &mut self.summary.lost,
            Ended::Handled => &mut self.summary.handled,
        };
        *counter += 1;
    }

    fn reap(&mut self) {
        while let Some(ended) = self.attempts.try_join_next() {
            self.note(ended.unwrap_or(Ended::Lost));
        }
    }

    async fn drain(&mut self) {
        while let Some(ended) = self.attempts.join_next().await {
            self.note(ended.unwrap_or(Ended::Lost));
        }
    }
}

impl<H, F> Shift<H>
where
    H: Fn(JobContext) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
{
    /// Pops as many jobs as there are free slots, until the shutdown.
    async fn take_jobs(
        &self,
        running: &mut Running,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let slots = Arc::new(Semaphore::new(self.worker.concurrency));
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let mut free = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                free = free_slots(&slots) => free,
            };
            running.reap();
            let pop = self.worker.pop(free.num_permits());
            let mut popping = std::pin::pin!(self.worker.client.pop(&pop));
            let popped = tokio::select! {
                popped = &mut popping => popped,
                () = &mut shutdown => {
                    self.give_back(popping.await.unwrap_or_default()).await;
                    return Ok(());
                }
            };
            match popped {
                Ok(jobs) => {
                    backoff.reset();
                    for job in jobs {
                        let slot = free.split(1);
                        self.start(job, slot, running);
                    }
                }
                Err(error) if error.is_passing() => {
                    backoff.fail();
                    tracing::warn!(worker = %self.worker.name, %error, "cannot take jobs; trying again");
                    tokio::select! {
                        () = sleep(backoff.delay()) => {}
                        () = &mut shutdown => return Ok(()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn start(&self, job: Job, slot: Option<OwnedSemaphorePermit>, running: &mut Running) {
        let lock = self.locks.hold(&job, Instant::now(), self.worker.lock);
        let context = JobContext::new(&self.worker, job, lock, self.phases.clone(), self.locks.clone());
        let (worker, handler, locks) = (self.worker.clone(), self.handler.clone(), self.locks.clone());
        running.attempts.spawn(async move {
            let (jid, number) = (context.job().jid.clone(), context.job().attempt);
            let ended = attempt(&worker, context, handler).await;
            locks.drop_hold(&jid, number);
            drop(slot);
            ended
        });
    }

    /// Jobs that came after the shutdown.
    async fn give_back(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let release = self.worker.client.release(jobs.iter().map(|job| &job.jid));
        if !matches!(timeout(RELEASE_TIMEOUT, release).await, Ok(Ok(()))) {
            tracing::warn!(worker = %self.worker.name, jobs = jobs.len(), "jobs stay locked until their locks run out");
        }
    }
}

/// Waits for a free slot, then takes every one there is.
async fn free_slots(slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    loop {
        let Ok(mut free) = slots.clone().acquire_owned().await else {
            // Never closed; but waiting for ever is the right thing to do without slots.
            std::future::pending::<()>().await;
            continue;
        };
        let more = u32::try_from(slots.available_permits()).unwrap_or(u32::MAX);
        if let Ok(rest) = slots.clone().try_acquire_many_owned(more) {
            free.merge(rest);
        }
        return free;
    }
}

#[cfg(test)]
mod tests;
