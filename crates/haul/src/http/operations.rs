//! What is done to many jobs at once, on the server's side: it begins after a while in which it can be called back, tells
//! how far it is, and can be stopped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_engine::Name;
use tokio::sync::watch;

/// Operations remembered, those that have ended included.
const KEPT_MAX: usize = 100;
/// Operations of all tenants that have not ended.
const OPEN_MAX: usize = 16;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not begun and can be called back.
    Waiting,
    Running,
    Done,
    /// Somebody stopped it: what was done stays done.
    Stopped,
    /// Something else did.
    Broken,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Done => "done",
            State::Stopped => "stopped",
            State::Broken => "broken",
        }
    }

    fn is_open(self) -> bool {
        matches!(self, State::Waiting | State::Running)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) state: State,
    /// Jobs it was done to.
    pub(crate) done: u64,
    /// Jobs that refused.
    pub(crate) refused: u64,
    pub(crate) ended_at: Option<f64>,
    /// Why it broke.
    pub(crate) message: Option<String>,
}

pub(crate) struct Operation {
    pub(crate) id: u64,
    pub(crate) tenant: Name,
    pub(crate) token: Option<String>,
    /// retry, move or cancel.
    pub(crate) action: &'static str,
    /// What it is done to, as it was asked for.
    pub(crate) filter: serde_json::Value,
    pub(crate) queue: Option<String>,
    pub(crate) starts_at: f64,
    progress: Mutex<Progress>,
    stop: watch::Sender<bool>,
}

/// What an operation is made of.
pub(crate) struct NewOperation {
    pub(crate) tenant: Name,
    pub(crate) token: Option<String>,
    pub(crate) action: &'static str,
    pub(crate) filter: serde_json::Value,
    pub(crate) queue: Option<String>,
    pub(crate) starts_at: f64,
}

impl Operation {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().clone()
    }

    pub(crate) fn began(&self) {
        self.lock().state = State::Running;
    }

    pub(crate) fn count(&self, done: u64, refused: u64) {
        let mut progress = self.lock();
        progress.done += done;
        progress.refused += refused;
    }

    pub(crate) fn ended(&self, state: State, message: Option<String>, now: f64) {
        let mut progress = self.lock();
        (progress.state, progress.message, progress.ended_at) = (state, message, Some(now));
    }

    /// Becomes true when somebody wants it to stop.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// All that are remembered, the oldest first.
#[derive(Default)]
pub(crate) struct Operations {
    list: Mutex<VecDeque<Arc<Operation>>>,
    last: AtomicU64,
}

impl Operations {
    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<Operation>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: too many are open.
    pub(crate) fn add(&self, new: NewOperation) -> Option<Arc<Operation>> {
        let mut list = self.list();
        if list.iter().filter(|operation| operation.lock().state.is_open()).count() >= OPEN_MAX {
            return None;
        }
        if list.len() >= KEPT_MAX {
            let ended = list.iter().position(|operation| !operation.lock().state.is_open());
            ended.and_then(|at| list.remove(at));
        }
        let progress = Progress { state: State::Waiting, done: 0, refused: 0, ended_at: None, message: None };
        let operation = Arc::new(Operation {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            tenant: new.tenant,
            token: new.token,
            action: new.action,
            filter: new.filter,
            queue: new.queue,
            starts_at: new.starts_at,
            progress: Mutex::new(progress),
            stop: watch::Sender::new(false),
        });
        list.push_back(operation.clone());
        Some(operation)
    }

    /// Those of a tenant, the newest first.
    pub(crate) fn of(&self, tenant: &Name) -> Vec<Arc<Operation>> {
        self.list().iter().rev().filter(|operation| operation.tenant == *tenant).cloned().collect()
    }

    pub(crate) fn find(&self, tenant: &Name, id: u64) -> Option<Arc<Operation>> {
        self.list().iter().find(|operation| operation.tenant == *tenant && operation.id == id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_open_and_those_that_ended_are_forgotten_first() {
        let operations = Operations::default();
        let add = || {
            operations.add(NewOperation {
                tenant: "t".into(),
                token: None,
                action: "cancel",
                filter: serde_json::Value::Null,
                queue: None,
                starts_at: 0.0,
            })
        };
        let first = add().unwrap();
        for _ in 1..OPEN_MAX {
            add().unwrap();
        }
        assert!(add().is_none());
        for _ in 0..KEPT_MAX {
            let open = operations.of(&"t".into()).into_iter().find(|it| it.id != first.id).unwrap();
            open.ended(State::Done, None, 1.0);
            assert!(add().is_some());
        }
        assert!(operations.find(&"t".into(), first.id).is_some());
        assert!(operations.find(&"other".into(), first.id).is_none());
        assert!(operations.of(&"t".into()).len() <= KEPT_MAX);
    }
}
