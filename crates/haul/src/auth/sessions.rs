//! Sessions of people who logged in on the page: a random id, kept in a cookie that scripts cannot read, stands for the
//! access a token gave. They live in memory: after a restart people log in again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use super::Access;
use crate::clock;

/// A session that is not used for so long ends.
pub(crate) const IDLE_SECONDS: f64 = 12.0 * 3600.0;
/// Sessions at once; beyond, the one that was not used for longest ends.
const SESSIONS_MAX: usize = 10_000;

struct Session {
    access: Access,
    ends_at: f64,
}

/// All that are open.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one; answers its id.
    pub(crate) fn begin(&self, access: Access, now: f64) -> anyhow::Result<String> {
        let id: String = clock::entropy()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut open = self.open();
        if open.len() >= SESSIONS_MAX {
            open.retain(|_, session| session.ends_at > now);
        }
        if open.len() >= SESSIONS_MAX {
            let oldest = open.iter().min_by(|a, b| a.1.ends_at.total_cmp(&b.1.ends_at));
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                open.remove(&oldest);
            }
        }
        open.insert(id.clone(), Session { access, ends_at: now + IDLE_SECONDS });
        Ok(id)
    }

    /// What the session of this id was given, if it is open. Whether the token still stands is the gate's to say.
    pub(crate) fn access(&self, id: &str, now: f64) -> Option<Access> {
        let mut open = self.open();
        let session = open.get_mut(id).filter(|session| session.ends_at > now)?;
        session.ends_at = now + IDLE_SECONDS;
        Some(session.access.clone())
    }

    pub(crate) fn end(&self, id: &str) {
        self.open().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Gate;

    fn access() -> Access {
        let folder = tempfile::tempdir().unwrap();
        Gate::open(folder.path()).unwrap().enter_unnamed().unwrap()
    }

    #[test]
    fn a_session_lasts_while_it_is_used() {
        let sessions = Sessions::default();
        let id = sessions.begin(access(), 0.0).unwrap();
        assert_eq!(id.len(), 64);
        assert!(sessions.access(&id, IDLE_SECONDS - 1.0).is_some());
        assert!(sessions.access(&id, 2.0 * IDLE_SECONDS - 2.0).is_some());
        assert!(sessions.access(&id, 4.0 * IDLE_SECONDS).is_none());
        assert!(sessions.access("x", 0.0).is_none());
        sessions.end(&id);
        assert!(sessions.access(&id, 0.0).is_none());
    }

    #[test]
    fn there_are_only_so_many() {
        let sessions = Sessions::default();
        let first = sessions.begin(access(), 0.0).unwrap();
        for _ in 0..SESSIONS_MAX {
            sessions.begin(access(), 1.0).unwrap();
        }
        assert!(sessions.access(&first, 1.0).is_none());
        assert_eq!(sessions.open().len(), SESSIONS_MAX);
    }
}
