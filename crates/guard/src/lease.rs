//! How long a lock may be relied on. Pure: time comes in, decisions go out.
//!
//! The server gives a lock away when its end is past. What we know of that end is the moment **before** the last renewal
//! that succeeded was sent, plus the lock's length: the server cannot have counted from earlier.

use std::time::{Duration, Instant};

/// Kept free before the end of a lock, besides the grace.
const MARGIN: Duration = Duration::from_secs(1);

/// A lock we hold.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    length: Duration,
    grace: Duration,
    /// Just before the last renewal that succeeded was sent.
    renewed_at: Instant,
}

impl Lease {
    pub fn new(length: Duration, grace: Duration, renewed_at: Instant) -> Self {
        Lease { length, grace, renewed_at }
    }

    pub fn renewed(&mut self, sent_at: Instant) {
        self.renewed_at = self.renewed_at.max(sent_at);
    }

    pub fn renewed_at(&self) -> Instant {
        self.renewed_at
    }

    /// When to renew: a third of the lock is used. `asked_at` is the last try, if it did not succeed.
    pub fn beat_at(&self, asked_at: Option<Instant>) -> Instant {
        let due = self.renewed_at + self.length / 3;
        let again = asked_at.map(|at| at + (self.length / 20).min(Duration::from_secs(1)));
        again.map_or(due, |again| again.max(due))
    }

    /// When a task whose lock could not be renewed is asked to stop, so that it is gone before the lock is.
    pub fn stop_at(&self) -> Instant {
        self.renewed_at + self.length - (self.grace + MARGIN).min(self.length / 2)
    }

    /// When it is stopped by force at the latest.
    pub fn kill_at(&self) -> Instant {
        self.renewed_at + self.length - MARGIN.min(self.length / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_gone_before_its_lock_is() {
        let start = crate::clock::instant();
        let seconds = Duration::from_secs;
        for (length, grace) in [(60, 10), (60, 600), (5, 10), (1, 0)] {
            let lease = Lease::new(seconds(length), seconds(grace), start);
            assert!(lease.beat_at(None) < lease.stop_at(), "{length} {grace}");
            assert!(lease.stop_at() < lease.kill_at() || length == 1, "{length} {grace}");
            assert!(lease.kill_at() < start + seconds(length), "{length} {grace}");
        }
        let mut lease = Lease::new(seconds(60), seconds(10), start);
        assert_eq!(lease.stop_at(), start + seconds(49));
        lease.renewed(start + seconds(20));
        assert_eq!((lease.beat_at(None), lease.stop_at()), (start + seconds(40), start + seconds(69)));
        assert_eq!(lease.beat_at(Some(start + seconds(40))), start + seconds(41));
    }
}
