//! How large a round may be. Each costs a sync, so it should be large. But if it takes in everybody who asks, all of them
//! wait for the shard and after that the shard waits for all of them: smaller ones in turn keep both busy. So a round is to
//! take a few times as long as its sync, and no longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a round may take, in syncs.
const SYNCS: f64 = 4.0;
/// Rounds are not made smaller than this many commands.
const CALLS_MIN: usize = 64;
/// How much the last round or sync changes what is known, as a share.
const WEIGHT: f64 = 1.0 / 16.0;
/// What takes less found everything durable: it says nothing about the disk.
const SYNC_NONE: Duration = Duration::from_micros(10);
/// A sync that takes longer is left to another thread: the way there and back costs about a tenth of this.
const SYNC_SLOW_MICROS: f64 = 500.0;

/// What rounds and syncs took so far. Syncs are told of by two threads.
#[derive(Default)]
pub(super) struct Pace {
    /// Microseconds, as the bits of a number; 0: not known.
    sync: AtomicU64,
    call: AtomicU64,
}

fn learn(known: &AtomicU64, micros: f64) {
    let before = f64::from_bits(known.load(Ordering::Relaxed));
    let after = if before == 0.0 { micros } else { before + (micros - before) * WEIGHT };
    known.store(after.to_bits(), Ordering::Relaxed);
}

impl Pace {
    /// A sync took so long.
    pub(super) fn synced(&self, took: Duration) {
        if took > SYNC_NONE {
            learn(&self.sync, took.as_secs_f64() * 1e6);
        }
    }

    /// So many commands were applied in this time.
    pub(super) fn applied(&self, calls: usize, took: Duration) {
        if calls > 0 {
            learn(&self.call, took.as_secs_f64() * 1e6 / calls as f64);
        }
    }

    /// Commands that the next round may have. A store that nobody has to sync has all that are allowed.
    pub(super) fn calls(&self, calls_max: usize) -> usize {
        let (sync, call) = (self.sync_micros(), f64::from_bits(self.call.load(Ordering::Relaxed)));
        if sync == 0.0 || call == 0.0 {
            return calls_max;
        }
        ((SYNCS * sync / call) as usize).max(CALLS_MIN).min(calls_max)
    }

    pub(super) fn is_slow(&self) -> bool {
        self.sync_micros() > SYNC_SLOW_MICROS
    }

    fn sync_micros(&self) -> f64 {
        f64::from_bits(self.sync.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn a_round_takes_a_few_syncs() {
        let pace = Pace::default();
        pace.applied(100, micros(400));
        assert_eq!(pace.calls(4096), 4096, "nothing was synced yet");
        pace.synced(micros(150));
        assert_eq!(pace.calls(4096), 150);
        assert_eq!(pace.calls(100), 100, "the bound");
        pace.synced(micros(9));
        assert_eq!(pace.calls(4096), 150, "that was no sync");
        (0..200).for_each(|_| pace.synced(micros(20)));
        assert_eq!(pace.calls(4096), CALLS_MIN);
        assert!(!pace.is_slow());
        (0..200).for_each(|_| pace.synced(micros(2000)));
        assert!((1900..=2000).contains(&pace.calls(4096)), "{}", pace.calls(4096));
        assert!(pace.is_slow());
        pace.applied(0, micros(1));
        (0..200).for_each(|_| pace.applied(10, micros(10)));
        assert_eq!(pace.calls(4096), 4096, "commands that cost less");
    }
}
