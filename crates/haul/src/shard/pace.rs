//! How large a round may be. A round should be large, for each costs a commit. But if it takes in everybody who asks, then
//! all of them wait for the shard and after that the shard waits for all of them: two smaller rounds in turn keep both busy.

use std::time::Duration;

/// Rounds are not made smaller than this.
const CALLS_MIN: usize = 32;

/// What a round was like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: usize,
    /// How long the shard had nothing to do before it.
    pub(super) waited: Duration,
    pub(super) applied: Duration,
    pub(super) committed: Duration,
    /// It was full, and more may have been there.
    pub(super) left: bool,
}

/// Learns the size from the rounds so far.
#[derive(Debug)]
pub(super) struct Pace {
    calls: usize,
    calls_max: usize,
}

impl Pace {
    pub(super) fn new(calls_max: usize) -> Self {
        Pace { calls: calls_max, calls_max }
    }

    /// Commands that the next round may have.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn learn(&mut self, round: Seen) {
        if round.waited > round.committed {
            // One commit more would have cost less than the wait.
            self.calls = self.calls.min((round.calls / 2).max(CALLS_MIN)).min(self.calls_max);
        } else if round.left && round.committed > 2 * round.applied {
            // The commit is what takes the time: more should share it.
            self.calls = self.calls_max.min(2 * self.calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A round in which nothing is remarkable.
    fn plain(calls: usize) -> Seen {
        Seen { calls, waited: ms(0), applied: ms(5), committed: ms(5), left: false }
    }

    #[test]
    fn a_shard_that_waits_for_everybody_makes_smaller_rounds() {
        let mut pace = Pace::new(4096);
        pace.learn(Seen { waited: ms(5), ..plain(256) });
        assert_eq!(pace.calls(), 4096, "a commit takes as long");
        pace.learn(Seen { waited: ms(6), ..plain(256) });
        assert_eq!(pace.calls(), 128);
        pace.learn(Seen { waited: ms(6), ..plain(2000) });
        assert_eq!(pace.calls(), 128, "a smaller round never allows larger ones");
        for _ in 0..9 {
            pace.learn(Seen { waited: ms(6), ..plain(1) });
        }
        assert_eq!(pace.calls(), CALLS_MIN);
    }

    #[test]
    fn a_slow_commit_is_shared_by_more() {
        let mut pace = Pace::new(100);
        pace.learn(Seen { waited: ms(6), ..plain(64) });
        assert_eq!(pace.calls(), 32);
        pace.learn(Seen { committed: ms(11), ..plain(32) });
        assert_eq!(pace.calls(), 32, "nobody was left");
        pace.learn(Seen { committed: ms(10), left: true, ..plain(32) });
        assert_eq!(pace.calls(), 32, "the commit is not what takes the time");
        pace.learn(Seen { committed: ms(11), left: true, ..plain(32) });
        assert_eq!(pace.calls(), 64);
        pace.learn(Seen { committed: ms(11), left: true, ..plain(64) });
        assert_eq!(pace.calls(), 100, "the bound");
        assert_eq!(Pace::new(8).calls(), 8);
    }
}
