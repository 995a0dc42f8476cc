//! Which locks the worker holds and when each must be renewed. Decides; does not send anything or read a clock.

use crate::job::Job;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A lock, as far as the worker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Held, and not to be relied on from then on unless renewed.
    Held { until: Instant },
    /// Somebody else may have the job.
    Lost,
}

/// A lock and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) jid: String,
    pub(crate) attempt: u64,
}

#[derive(Debug)]
struct Entry {
    attempt: u64,
    /// From then on it may be renewed along with another one.
    early_at: Instant,
    renew_at: Instant,
    state: watch::Sender<Lock>,
}

/// Every lock the worker holds.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    entries: Mutex<HashMap<String, Entry>>,
    /// Something must be renewed sooner than was known.
    pub(crate) sooner: Notify,
}

impl Locks {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job was popped. If an earlier attempt of it is still running here, that one has lost its lock.
    pub(crate) fn hold(&self, job: &Job, now: Instant, lasts: Duration) -> watch::Receiver<Lock> {
        let (state, watched) = watch::channel(Lock::Held { until: now + lasts });
        let entry =
            Entry { attempt: job.attempt, early_at: now + lasts / 4, renew_at: now + lasts / 3, state };
        if let Some(earlier) = self.entries().insert(job.jid.clone(), entry) {
            earlier.state.send_replace(Lock::Lost);
        }
        self.sooner.notify_one();
        watched
    }

    /// An attempt has ended.
    pub(crate) fn drop_hold(&self, jid: &str, attempt: u64) {
        let mut entries = self.entries();
        if entries.get(jid).is_some_and(|entry| entry.attempt == attempt) {
            entries.remove(jid);
        }
    }

    /// Which attempt of a job is running here.
    pub(crate) fn attempt_of(&self, jid: &str) -> Option<u64> {
        self.entries().get(jid).map(|entry| entry.attempt)
    }

    /// The locks to be renewed now; or when there will be any. Those due a little later go along, so that jobs popped one
    /// by one are soon renewed together.
    pub(crate) fn due(&self, now: Instant) -> Result<Vec<Hold>, Option<Instant>> {
        let entries = self.entries();
        let first_at = entries.values().map(|entry| entry.renew_at).min();
        if first_at.is_none_or(|first_at| first_at > now) {
            return Err(first_at);
        }
        let due = entries.iter().filter(|(_, entry)| entry.early_at <= now);
        Ok(due.map(|(jid, entry)| Hold { jid: jid.clone(), attempt: entry.attempt }).collect())
    }

    /// The server renewed a lock that was asked for at `asked_at`.
    pub(crate) fn renewed(&self, hold: &Hold, asked_at: Instant, lasts: Duration) {
        self.update(hold, |entry| {
            entry.early_at = asked_at + lasts / 4;
            entry.renew_at = asked_at + lasts / 3;
            entry.state.send_replace(Lock::Held { until: asked_at + lasts });
        });
        self.sooner.notify_one();
    }

    /// Renewing did not work; to be tried again then.
    pub(crate) fn postponed(&self, hold: &Hold, renew_at: Instant) {
        self.update(hold, |entry| (entry.early_at, entry.renew_at) = (renew_at, renew_at));
    }

    /// The lock is gone.
    pub(crate) fn lost(&self, hold: &Hold) {
        let mut entries = self.entries();
        if entries.get(&hold.jid).is_some_and(|entry| entry.attempt == hold.attempt)
            && let Some(entry) = entries.remove(&hold.jid)
        {
            entry.state.send_replace(Lock::Lost);
        }
    }

    fn update(&self, hold: &Hold, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries().get_mut(&hold.jid).filter(|entry| entry.attempt == hold.attempt) {
            change(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn job(jid: &str, attempt: u64) -> Job {
        let text = format!(r#"{{"jid":"{jid}","klass":"k","state":"running","attempt":{attempt}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn hold(jid: &str, attempt: u64) -> Hold {
        Hold { jid: jid.to_owned(), attempt }
    }

    #[test]
    fn a_lock_is_due_at_a_third_of_its_length() {
        let (locks, now) = (Locks::default(), Instant::now());
        assert_eq!(locks.due(now), Err(None));
        let watched = locks.hold(&job("a", 1), now, SECOND * 60);
        assert_eq!(*watched.borrow(), Lock::Held { until: now + SECOND * 60 });
        assert_eq!(locks.due(now + SECOND * 19), Err(Some(now + SECOND * 20)));
        assert_eq!(locks.due(now + SECOND * 20), Ok(vec![hold("a", 1)]));
        // The server may grant less than was asked for; then it is due sooner.
        locks.renewed(&hold("a", 1), now + SECOND * 20, SECOND * 9);
        assert_eq!(locks.due(now + SECOND * 20), Err(Some(now + SECOND * 23)));
        assert_eq!(*watched.borrow(), Lock::Held { until: now + SECOND * 29 });
        locks.postponed(&hold("a", 1), now + SECOND * 24);
        assert_eq!(locks.due(now + SECOND * 23), Err(Some(now + SECOND * 24)));
    }

    #[test]
    fn a_lock_due_soon_goes_along_with_one_due_now() {
        let (locks, now) = (Locks::default(), Instant::now());
        locks.hold(&job("a", 1), now, SECOND * 60);
        locks.hold(&job("b", 1), now + SECOND * 5, SECOND * 60);
        locks.hold(&job("c", 1), now + SECOND * 6, SECOND * 60);
        let mut due = locks.due(now + SECOND * 20).unwrap();
        due.sort_by(|one, other| one.jid.cmp(&other.jid));
        assert_eq!(due, [hold("a", 1), hold("b", 1)]);
    }

    #[test]
    fn an_attempt_taken_again_here_takes_the_lock_from_the_earlier_one() {
        let (locks, now) = (Locks::default(), Instant::now());
        let first = locks.hold(&job("a", 1), now, SECOND);
        let second = locks.hold(&job("a", 2), now, SECOND);
        assert_eq!(*first.borrow(), Lock::Lost);
        // What concerns the first attempt no longer concerns the second.
        locks.drop_hold("a", 1);
        locks.lost(&hold("a", 1));
        assert_eq!(locks.attempt_of("a"), Some(2));
        assert_ne!(*second.borrow(), Lock::Lost);
        locks.lost(&hold("a", 2));
        assert_eq!(*second.borrow(), Lock::Lost);
        assert_eq!(locks.due(now + SECOND * 9), Err(None));
    }
}
