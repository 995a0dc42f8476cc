//! One attempt at one job: runs the handler, then tells the server what became of it.

use super::outcome::{HandlerError, Outcome, Remedy};
use super::{JobContext, Phase, Worker};
use crate::backoff::Backoff;
use crate::client::{Complete, Fail, Retry};
use crate::error::Error;
use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

/// How long a dropped handler may take to come to a place where it awaits, when the worker stops.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long giving a job back may take, when the worker stops.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Completed,
    Retried,
    Failed,
    Released,
    Lost,
    Handled,
}

/// What the server is to be told.
#[derive(Debug, Clone)]
enum Report {
    Complete(Complete),
    Retry(Retry),
    Fail(Fail),
    Release,
    Nothing,
}

pub(super) async fn attempt<H, F>(worker: &Worker, context: JobContext, handler: Arc<H>) -> Ended
where
    H: Fn(JobContext) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
{
    // A set of one, because a set ends its tasks when it is dropped; the handler then cannot outlive the worker.
    let mut task = JoinSet::new();
    let given = context.clone();
    task.spawn(async move { handler(given).await });
    tokio::select! {
        Some(returned) = task.join_next() => deliver(worker, &context, report(worker, &context, returned)).await,
        () = lost_for(&context, worker.lost_grace) => {
            tracing::warn!(jid = context.job().jid, "lock lost; handler dropped");
            task.shutdown().await;
            Ended::Lost
        }
        () = context.reached(Phase::Abandoning) => {
            let dropped = timeout(DROP_TIMEOUT, task.shutdown()).await.is_ok();
            give_back(worker, &context, dropped).await
        }
    }
}

/// Waits until the lock has been lost for this long.
async fn lost_for(context: &JobContext, grace: Duration) {
    context.lost().await;
    context.lose();
    sleep(grace).await;
}

/// Gives back a job whose handler was dropped. One that still computes must not be run elsewhere at the same time: its
/// lock runs out by itself.
async fn give_back(worker: &Worker, context: &JobContext, dropped: bool) -> Ended {
    if context.is_lost() || !dropped {
        return Ended::Lost;
    }
    match timeout(RELEASE_TIMEOUT, worker.client.release([&context.job().jid])).await {
        Ok(Ok(())) => Ended::Released,
        _ => Ended::Lost,
    }
}

type Returned = Result<Result<Outcome, HandlerError>, JoinError>;

fn report(worker: &Worker, context: &JobContext, returned: Returned) -> Report {
    let (name, job) = (&*worker.name, context.job());
    let usual_delay = || {
        let backoff = Backoff::new(worker.retry_delay_min, worker.retry_delay_max);
        backoff.delay_after(u32::try_from(job.attempt).unwrap_or(u32::MAX).max(1))
    };
    match returned {
        Ok(Ok(Outcome::Complete { result: None })) => Report::Complete(Complete::job(name, job)),
        Ok(Ok(Outcome::Complete { result: Some(result) })) => {
            Report::Complete(Complete::job(name, job).result(result))
        }
        Ok(Ok(Outcome::Next { queue, delay })) => {
            let complete = Complete::job(name, job).next(queue);
            Report::Complete(match delay {
                Some(delay) => complete.delay(delay),
                None => complete,
            })
        }
        Ok(Ok(Outcome::Retry { delay })) => {
            Report::Retry(Retry::job(name, job).delay(delay.unwrap_or_else(usual_delay)))
        }
        Ok(Ok(Outcome::Release)) => Report::Release,
        Ok(Ok(Outcome::Handled)) => Report::Nothing,
        Ok(Err(HandlerError { group, message, remedy: Remedy::Retry { delay } })) => {
            let delay = delay.unwrap_or_else(usual_delay);
            Report::Retry(Retry::job(name, job).delay(delay).failure(group, message))
        }
        Ok(Err(HandlerError { group, message, remedy: Remedy::Fail })) => {
            Report::Fail(Fail::job(name, job, group, message))
        }
        Err(error) if error.is_panic() => {
            Report::Fail(Fail::job(name, job, "panic", panic_text(&*error.into_panic())))
        }
        // Only the runtime's own end cancels a handler here.
        Err(_) => Report::Release,
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Sends the report until the server has answered it one way or the other, or the worker gives up waiting to stop.
async fn deliver(worker: &Worker, context: &JobContext, mut report: Report) -> Ended {
    let job = context.job();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
    loop {
        let error = match send(worker, context, &report).await {
            Ok(ended) => return ended,
            Err(error) => error,
        };
        if error.is_lock_lost() {
            tracing::info!(jid = job.jid, %error, "the job is no longer this worker's");
            return Ended::Lost;
        }
        if !error.is_passing() {
            tracing::warn!(jid = job.jid, %error, "report refused");
            if let Report::Fail(_) = report {
                return Ended::Lost;
            }
            report = Report::Fail(Fail::job(&*worker.name, job, "report", error.to_string()));
            continue;
        }
        backoff.fail();
        tracing::warn!(jid = job.jid, %error, "report not delivered; trying again");
        tokio::select! {
            () = sleep(backoff.delay()) => {}
            () = context.reached(Phase::Abandoning) => return Ended::Lost,
        }
    }
}

async fn send(worker: &Worker, context: &JobContext, report: &Report) -> Result<Ended, Error> {
    let client = &worker.client;
    match report {
        Report::Complete(complete) => client.complete(complete).await.map(|_| Ended::Completed),
        Report::Fail(fail) => client.fail(fail).await.map(|()| Ended::Failed),
        Report::Retry(retry) => {
            client.retry(retry).await.map(|left| if left.is_some() { Ended::Retried } else { Ended::Failed })
        }
        // Releasing does not name an attempt: it could take the lock from whoever has it now.
        Report::Release if context.is_lost() => Ok(Ended::Lost),
        Report::Release => client.release([&context.job().jid]).await.map(|()| Ended::Released),
        Report::Nothing => Ok(Ended::Handled),
    }
}
