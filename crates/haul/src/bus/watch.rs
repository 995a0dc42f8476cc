//! Waits for one job each. Thousands cost an entry each and one look-up for each notice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use haul_engine::{Name, Notice};
use tokio::sync::watch;

use super::Listeners;

type Of = HashMap<Name, HashMap<Name, Watched>>;

/// A job somebody waits for.
struct Watched {
    changes: watch::Sender<u64>,
    holders: usize,
}

impl Watched {
    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// All waits, by tenant and job.
#[derive(Clone)]
pub(super) struct Watches {
    of: Arc<Mutex<Of>>,
    count: Arc<AtomicUsize>,
    listeners: Listeners,
}

impl Watches {
    pub(super) fn new(listeners: Listeners) -> Self {
        Watches { of: Arc::default(), count: Arc::default(), listeners }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn of(&self) -> MutexGuard<'_, Of> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, tenant: &Name, jid: &Name) -> Watch {
        let mut of = self.of();
        let jobs = of.entry_ref(tenant).or_default();
        let new = || Watched { changes: watch::Sender::new(0), holders: 0 };
        let watched = jobs.entry_ref(jid).or_insert_with(new);
        watched.holders += 1;
        let changes = watched.changes.subscribe();
        drop(of);
        self.count.fetch_add(1, Ordering::AcqRel);
        self.listeners.add();
        Watch { watches: self.clone(), tenant: tenant.clone(), jid: jid.clone(), changes }
    }

    /// Wakes whoever waits for one of these jobs. A flush wakes all of the tenant's.
    pub(super) fn wake(&self, tenant: &Name, notices: &[Notice]) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let of = self.of();
        let Some(jobs) = of.get(tenant) else { return };
        for notice in notices {
            if notice.kind == haul_engine::Kind::Flushed {
                jobs.values().for_each(Watched::tell);
            } else if let Some(watched) = jobs.get(&notice.jid) {
                watched.tell();
            }
        }
    }

    fn leave(&self, tenant: &Name, jid: &Name) {
        let mut of = self.of();
        if let Some(jobs) = of.get_mut(tenant) {
            if let Some(watched) = jobs.get_mut(jid) {
                watched.holders -= 1;
                if watched.holders == 0 {
                    jobs.remove(jid);
                }
            }
            if jobs.is_empty() {
                of.remove(tenant);
            }
        }
        drop(of);
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.listeners.remove();
    }
}

/// A wait for one job.
pub(crate) struct Watch {
    watches: Watches,
    tenant: Name,
    jid: Name,
    changes: watch::Receiver<u64>,
}

impl Watch {
    /// Returns when something has happened to the job since the watch was made, or since the last call.
    pub(crate) async fn next(&mut self) {
        // Only the last watch to leave drops the sender.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.leave(&self.tenant, &self.jid);
    }
}
