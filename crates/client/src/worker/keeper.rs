//! Keeps the worker's locks: renews them in batches, and listens for those taken away.

use super::lock::{Hold, Locks};
use crate::client::{Client, Heartbeat, Subscription};
use crate::error::Error;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Locks renewed with one command.
const RENEW_BATCH_MAX: usize = 1000;
/// The pause after renewing failed.
const RENEW_PAUSE: Duration = Duration::from_secs(1);
/// The pause after the server refused to let us listen. Listening only makes things quicker.
const LISTEN_PAUSE: Duration = Duration::from_secs(30);

/// Renews every lock at a third of its length, for ever.
pub(super) async fn renew(client: Client, worker: Arc<str>, locks: Arc<Locks>, lock: Duration) {
    loop {
        match locks.due(Instant::now()) {
            Ok(due) => {
                for batch in due.chunks(RENEW_BATCH_MAX) {
                    renew_batch(&client, &worker, &locks, batch, lock).await;
                }
            }
            Err(next_at) => tokio::select! {
                () = locks.sooner.notified() => {}
                () = wait_until(next_at) => {}
            },
        }
    }
}

async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn renew_batch(client: &Client, worker: &str, locks: &Locks, batch: &[Hold], lock: Duration) {
    let asked_at = Instant::now();
    let request = client.heartbeat_many(worker, batch.iter().map(|hold| &hold.jid));
    let answers = match timeout(lock / 3, request).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => {
            tracing::warn!(worker, %error, "cannot renew locks");
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    let mut answers = answers.into_iter();
    for hold in batch {
        settle(locks, hold, asked_at, answers.next().unwrap_or(Err(Error::Timeout)));
    }
}

fn settle(locks: &Locks, hold: &Hold, asked_at: Instant, answer: Result<Duration, Error>) {
    match answer {
        // A lock of less than a second cannot be kept: told apart from "gone" only by the next answer.
        Ok(lasts) => locks.renewed(hold, asked_at, lasts.max(Duration::from_secs(1))),
        Err(error) if error.is_lock_lost() => locks.lost(hold),
        Err(_) => locks.postponed(hold, Instant::now() + RENEW_PAUSE),
    }
}

/// What is published on a worker's channel.
#[derive(Deserialize)]
struct Notice {
    jid: String,
    event: String,
}

/// Listens for locks taken away, for ever. A notice may be about an earlier attempt than the one running now, so each is
/// confirmed by asking for that very attempt.
pub(super) async fn listen(client: Client, worker: Arc<str>, locks: Arc<Locks>, lock: Duration) {
    let channel = format!("ql:w:{worker}");
    let mut subscription = Subscription::unopened(&client, "SUBSCRIBE", vec![channel]);
    loop {
        let message = match subscription.next().await {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!(%worker, %error, "cannot listen for lost locks");
                sleep(LISTEN_PAUSE).await;
                continue;
            }
        };
        let Ok(notice) = serde_json::from_slice::<Notice>(&message.payload) else { continue };
        if !matches!(notice.event.as_str(), "lock_lost" | "canceled") {
            continue;
        }
        let Some(attempt) = locks.attempt_of(&notice.jid) else { continue };
        let hold = Hold { jid: notice.jid, attempt };
        let asked_at = Instant::now();
        let question = Heartbeat::new(&*worker, &hold.jid).attempt(attempt).lock(lock);
        settle(&locks, &hold, asked_at, client.heartbeat(&question).await);
    }
}
