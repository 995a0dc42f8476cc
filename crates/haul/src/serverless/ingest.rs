//! From the journal into the engine, in bulk. What is already there is left alone, so lines may be read twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use haul_engine::Name;
use haul_journal::Entry;
use tokio::sync::watch;

use super::{Daemon, now_ms};
use crate::auth;

/// Lines that go into the engine together.
const LINES: usize = 1000;
/// Until then they are in the engine, or are read again.
const TIMEOUT_MS: u64 = 10_000;
/// Until the store is tried again after it failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs until told to stop; what is left is read by the next start.
pub(super) async fn run(daemon: Arc<Daemon>, mut stop: watch::Receiver<bool>) {
    loop {
        match pass(&daemon).await {
            Ok(0) => tokio::select! {
                _ = stop.changed() => return,
                () = daemon.journal.grown() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            },
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "jobs could not be taken from the journal yet");
                tokio::select! {
                    _ = stop.changed() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
        if *stop.borrow() {
            return;
        }
    }
}

/// Moves some lines; how many.
async fn pass(daemon: &Arc<Daemon>) -> anyhow::Result<usize> {
    let reader = daemon.clone();
    // Reading a file may wait for the disk.
    let read = tokio::task::spawn_blocking(move || {
        let token = reader.journal.read_reserve(LINES, TIMEOUT_MS, now_ms())?;
        reader.journal.read(token, now_ms()).map(|entries| (token, entries))
    });
    let (token, entries) = read.await??;
    if !entries.is_empty()
        && let Err(error) = add(daemon, &entries).await
    {
        daemon.journal.read_cancel(token);
        return Err(error);
    }
    daemon.journal.rsync(token, now_ms())?;
    Ok(entries.len())
}

async fn add(daemon: &Daemon, entries: &[Entry]) -> anyhow::Result<()> {
    let mut types = BTreeSet::new();
    for entry in entries {
        types.insert((entry.full.tenant(), entry.full.jobtype()));
    }
    let types: Vec<(Name, String)> = types
        .into_iter()
        .map(|(tenant, jobtype)| (auth::tenant(tenant.as_bytes()), jobtype.to_owned()))
        .collect();
    let new: Vec<(Name, String)> =
        types.iter().filter(|(tenant, jobtype)| !daemon.handlers.knows(tenant, jobtype)).cloned().collect();
    daemon.identity().await?;
    daemon.jobs.add(entries, &new).await?;
    for (tenant, _) in &new {
        daemon.reload(tenant).await?;
    }
    daemon.added(types);
    Ok(())
}
