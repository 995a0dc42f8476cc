//! What is done to many jobs at once, on the server's side: it begins after a while in which it can be called back, tells
//! how far it is, and can be stopped. A file remembers them, so that one which a restart cut off is told as such.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::path::{Path, PathBuf};

use haul_engine::Name;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Operations remembered, those that have ended included.
const KEPT_MAX: usize = 100;
/// Operations of all tenants that have not ended.
const OPEN_MAX: usize = 16;

/// How far it is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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

#[derive(Clone, Debug, Deserialize, Serialize)]
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
    pub(crate) what: NewOperation,
    progress: Mutex<Progress>,
    stop: watch::Sender<bool>,
}

/// What an operation is made of.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct NewOperation {
    #[serde(with = "as_text")]
    pub(crate) tenant: Name,
    pub(crate) token: Option<String>,
    /// retry, move or cancel.
    pub(crate) action: String,
    /// What it is done to, as it was asked for.
    pub(crate) filter: serde_json::Value,
    pub(crate) queue: Option<String>,
    pub(crate) starts_at: f64,
}

/// A tenant's name in the file.
mod as_text {
    use haul_engine::Name;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::dialect::plain;

    pub(super) fn serialize<S: Serializer>(name: &Name, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&plain::to_text(name.bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Name, D::Error> {
        String::deserialize(input).map(|text| Name::new(&plain::to_bytes(&text)))
    }
}

/// An operation as the file has it.
#[derive(Deserialize, Serialize)]
struct Kept {
    id: u64,
    what: NewOperation,
    progress: Progress,
}

/// The file in the data folder.
const FILE: &str = "operations.json";

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
    /// None: nothing is kept.
    file: Option<PathBuf>,
}

impl Operations {
    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<Operation>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an earlier server of this data remembered; what it had not finished was cut off.
    pub(crate) fn open(data: &Path, now: f64) -> Self {
        let file = data.join(FILE);
        let text = std::fs::read(&file).unwrap_or_default();
        let kept: Vec<Kept> = serde_json::from_slice(&text).unwrap_or_default();
        let last = kept.iter().map(|kept| kept.id).max().unwrap_or(0);
        let list = kept.into_iter().map(|kept| {
            let mut progress = kept.progress;
            if progress.state.is_open() {
                let cut_off = match progress.state {
                    State::Waiting => "the server was stopped before it began: nothing was changed",
                    _ => "the server was stopped meanwhile: what was done stays done, begin it again for the rest",
                };
                (progress.state, progress.ended_at) = (State::Broken, Some(now));
                progress.message = Some(cut_off.to_owned());
            }
            let (progress, stop) = (Mutex::new(progress), watch::Sender::new(false));
            Arc::new(Operation { id: kept.id, what: kept.what, progress, stop })
        });
        let list = Mutex::new(list.collect());
        let operations = Operations { list, last: AtomicU64::new(last), file: Some(file) };
        if !text.is_empty() {
            operations.save();
        }
        operations
    }

    /// Writes the file anew. It is small, and what cannot be written is only not remembered.
    pub(crate) fn save(&self) {
        let Some(file) = &self.file else { return };
        let kept: Vec<Kept> = self
            .list()
            .iter()
            .map(|operation| Kept {
                id: operation.id,
                what: operation.what.clone(),
                progress: operation.progress(),
            })
            .collect();
        let new = file.with_extension("new");
        let written = serde_json::to_vec(&kept).map_err(std::io::Error::other).and_then(|text| {
            std::fs::write(&new, text)?;
            std::fs::rename(&new, file)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "the operations could not be written to the data folder");
        }
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
            what: new,
            progress: Mutex::new(progress),
            stop: watch::Sender::new(false),
        });
        list.push_back(operation.clone());
        drop(list);
        self.save();
        Some(operation)
    }

    /// Those of a tenant, the newest first.
    pub(crate) fn of(&self, tenant: &Name) -> Vec<Arc<Operation>> {
        self.list().iter().rev().filter(|operation| operation.what.tenant == *tenant).cloned().collect()
    }

    pub(crate) fn find(&self, tenant: &Name, id: u64) -> Option<Arc<Operation>> {
        self.list().iter().find(|operation| operation.what.tenant == *tenant && operation.id == id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(action: &str) -> NewOperation {
        NewOperation {
            tenant: Name::new(b"t\xff"),
            token: Some("op".to_owned()),
            action: action.to_owned(),
            filter: serde_json::json!({"group": "g"}),
            queue: None,
            starts_at: 5.0,
        }
    }

    #[test]
    fn what_a_restart_cut_off_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let first = Operations::open(folder.path(), 1.0);
        let ended = first.add(new("retry")).unwrap();
        let begun = first.add(new("cancel")).unwrap();
        first.add(new("move")).unwrap();
        ended.count(3, 1);
        ended.ended(State::Done, None, 6.0);
        begun.began();
        begun.count(2, 0);
        first.save();
        let again = Operations::open(folder.path(), 9.0);
        let told: Vec<(u64, State, u64, bool)> = again
            .of(&Name::new(b"t\xff"))
            .iter()
            .map(|one| (one.id, one.progress(), one.progress().message.is_some()))
            .map(|(id, progress, why)| (id, progress.state, progress.done, why))
            .collect();
        let wanted = [(3, State::Broken, 0, true), (2, State::Broken, 2, true), (1, State::Done, 3, false)];
        assert_eq!(told, wanted);
        assert_eq!(again.add(new("retry")).unwrap().id, 4);
        std::fs::write(folder.path().join(FILE), "rubbish").unwrap();
        assert!(Operations::open(folder.path(), 9.0).of(&Name::new(b"t\xff")).is_empty());
    }

    #[test]
    fn few_are_open_and_those_that_ended_are_forgotten_first() {
        let operations = Operations::default();
        let add = || {
            operations.add(NewOperation {
                tenant: "t".into(),
                token: None,
                action: "cancel".to_owned(),
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
