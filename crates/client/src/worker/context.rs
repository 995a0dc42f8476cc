//! What a handler knows about its job and can do with it.

use super::lock::{Hold, Lock, Locks};
use super::{Phase, Worker};
use crate::client::{Client, Heartbeat};
use crate::error::Error;
use crate::job::Job;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Progress is noted no more often than this; the rest is dropped.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// One attempt at a job, given to the handler. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JobContext {
    job: Arc<Job>,
    worker: Arc<str>,
    client: Client,
    locks: Arc<Locks>,
    lock_length: Duration,
    lock: watch::Receiver<Lock>,
    phases: watch::Receiver<Phase>,
    progress_at: Arc<Mutex<Option<Instant>>>,
}

impl JobContext {
    pub(super) fn new(
        worker: &Worker,
        job: Job,
        lock: watch::Receiver<Lock>,
        phases: watch::Receiver<Phase>,
        locks: Arc<Locks>,
    ) -> Self {
        Self {
            job: Arc::new(job),
            worker: worker.name.clone(),
            client: worker.client.clone(),
            locks,
            lock_length: worker.lock,
            lock,
            phases,
            progress_at: Arc::default(),
        }
    }

    /// The job, as it was when it was popped.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The job's data as a value of a type.
    ///
    /// # Errors
    /// [`Error::Decode`] if it is of another form.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.job.data.to()
    }

    /// The worker's name.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// The worker's client, to put further jobs, say.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether somebody else may have the job by now: taken away, cancelled, or the lock could not be renewed in time.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match *self.lock.borrow() {
            Lock::Held { until } => Instant::now() >= until,
            Lock::Lost => true,
        }
    }

    /// Waits until [`JobContext::is_lost`]. The handler then has the worker's grace to tidy up.
    pub async fn lost(&self) {
        let mut lock = self.lock.clone();
        loop {
            let state = *lock.borrow_and_update();
            let Lock::Held { until } = state else { return };
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                changed = lock.changed() => if changed.is_err() {
                    // Nobody keeps the lock any more: the attempt has ended.
                    return;
                },
            }
        }
    }

    /// Whether the worker is stopping: a long job may come to a good place to pause, checkpoint, and return
    /// [`super::Outcome::Release`].
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.phases.borrow() >= Phase::Stopping
    }

    /// Waits until the worker is stopping.
    pub async fn stopping(&self) {
        self.reached(Phase::Stopping).await;
    }

    pub(super) async fn reached(&self, phase: Phase) {
        let mut phases = self.phases.clone();
        if phases.wait_for(|now| *now >= phase).await.is_err() {
            // The worker itself is gone without having reached it, and takes this attempt with it.
            std::future::pending().await
        }
    }

    /// Replaces the job's data and renews its lock: a later attempt begins with this data.
    ///
    /// # Errors
    /// [`Error::is_lock_lost`], or there is no answer.
    pub async fn checkpoint(&self, data: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let hold = self.hold();
        let asked_at = Instant::now();
        let heartbeat = Heartbeat::job(&*self.worker, &self.job).lock(self.lock_length).data(data);
        match self.client.heartbeat(&heartbeat).await {
            Ok(lasts) => {
                self.locks.renewed(&hold, asked_at, lasts.max(Duration::from_secs(1)));
                Ok(())
            }
            Err(error) => {
                if error.is_lock_lost() {
                    self.locks.lost(&hold);
                }
                Err(error)
            }
        }
    }

    /// Adds a line to the job's history.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn log(&self, message: &str) -> Result<(), Error> {
        self.client.log(&self.job.jid, message).await
    }

    /// Notes in the job's history how far the work is. At most once a second, except for the last step: the rest is
    /// dropped without a word.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn progress(&self, done: u64, total: u64) -> Result<(), Error> {
        if !self.is_time_for_progress(done >= total) {
            return Ok(());
        }
        let data = serde_json::json!({"done": done, "total": total});
        self.client.log_with(&self.job.jid, "progress", &data).await
    }

    fn is_time_for_progress(&self, last: bool) -> bool {
        let now = Instant::now();
        let mut noted_at = self.progress_at.lock().unwrap_or_else(PoisonError::into_inner);
        let due = noted_at.is_none_or(|noted_at| now >= noted_at + PROGRESS_INTERVAL);
        if due || last {
            *noted_at = Some(now);
        }
        due || last
    }

    /// Once lost, the lock stays lost, even if a renewal comes through after all: the handler has been told.
    pub(super) fn lose(&self) {
        self.locks.lost(&self.hold());
    }

    fn hold(&self) -> Hold {
        Hold { jid: self.job.jid.clone(), attempt: self.job.attempt }
    }
}
