//! The daemon's identity: a row in the store that nobody else has, renewed while the daemon lives.

use std::sync::Arc;
use std::time::Duration;

use haul_journal::Sysid;
use tokio::sync::watch;

use super::Daemon;
use super::jobs::{Jobs, StoreError};
use crate::clock;

/// A row that is not renewed for this long, in seconds, is free.
pub(super) const ROW_SECONDS: f64 = 1800.0;
const RENEW_EVERY: Duration = Duration::from_secs(30);
const TRIES_MAX: usize = 20;

/// Random digits behind two letters of the machine's name.
pub(super) fn candidate() -> Sysid {
    let random = clock::random_id();
    let random = random.iter().take(4).fold(0, |value, byte| value << 8 | u64::from(*byte));
    Sysid::new(&rustix::system::uname().nodename().to_string_lossy(), random)
}

/// Reserves the candidate, or another if somebody has it.
pub(super) async fn reserve(jobs: &Jobs, first: Sysid) -> Result<Sysid, StoreError> {
    jobs.drop_old_sysids().await?;
    let mut sysid = first;
    for _ in 0..TRIES_MAX {
        if jobs.insert_sysid(sysid.as_str(), ROW_SECONDS).await? {
            return Ok(sysid);
        }
        sysid = candidate();
    }
    Err(StoreError::new("no sysid could be reserved: too many tries"))
}

/// Keeps the row and the locks until told to stop.
pub(super) async fn run(daemon: Arc<Daemon>, mut stop: watch::Receiver<bool>) {
    let mut row = tokio::time::interval(RENEW_EVERY);
    let mut locks = tokio::time::interval(daemon.settings.renew_every());
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            _ = row.tick() => renew_row(&daemon).await,
            _ = locks.tick() => renew_locks(&daemon).await,
        }
    }
}

/// Renews the row. Without it the identity is lost: nothing goes on under it, and another is reserved.
pub(super) async fn renew_row(daemon: &Daemon) {
    let mut reserved = daemon.reserved.lock().await;
    let Some(sysid) = reserved.clone() else { return };
    if let Err(error) = daemon.jobs.drop_old_sysids().await {
        tracing::warn!(%error, "old sysids could not be removed");
    }
    match daemon.jobs.renew_sysid(sysid.as_str(), ROW_SECONDS).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(sysid = sysid.as_str(), "the sysid was lost; another is reserved");
            *reserved = None;
            daemon.stop_all();
            drop(reserved);
            daemon.journal.ids().rename(candidate());
            if let Err(error) = daemon.identity().await {
                tracing::error!(%error, "no sysid could be reserved");
            }
        }
        Err(error) => tracing::warn!(%error, "the sysid could not be renewed"),
    }
}

async fn renew_locks(daemon: &Daemon) {
    let held: Vec<_> = super::lock(&daemon.held).iter().cloned().collect();
    if held.is_empty() {
        return;
    }
    let sysid = daemon.journal.ids().sysid();
    if let Err(error) = daemon.jobs.renew(held, &sysid.as_str().into()).await {
        tracing::warn!(%error, "locks could not be renewed");
    }
}

/// Gives the row back.
pub(super) async fn release(daemon: &Daemon) {
    if let Some(sysid) = daemon.reserved.lock().await.take() {
        let _ = daemon.jobs.release_sysid(sysid.as_str()).await;
    }
}
