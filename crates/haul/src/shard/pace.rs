//! How large a round may be, and who syncs it. Each costs a sync, so it should be large. But if it takes in everybody who asks, all of them
//! wait for the shard and after that the shard waits for all of them: smaller ones in turn keep both busy. So a round is to
//! take about as long as its sync, and no longer.

use std::time::Duration;

/// What it may take to apply a round, in syncs. To write it and to answer takes about as long again.
const SYNCS: f64 = 1.0;
/// What the next round must have to do while this one is synced by another thread, in syncs: to wake that thread, and to be
/// woken by it, takes time too. And a disk that takes longer than all who ask is better asked once for all of them.
const SYNCS_WORTH_A_THREAD: f64 = 0.5;
/// Rounds are not made smaller than this many commands.
pub(super) const CALLS_MIN: usize = 96;
/// How much the last round or sync changes what is known, as a share.
const WEIGHT: f64 = 1.0 / 16.0;
/// The most that one of them counts for, as a multiple of what was known: now and then a disk takes very long.
const STRAY: f64 = 4.0;

/// What rounds and syncs took so far.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Microseconds; 0: not known.
    sync: f64,
    call: f64,
    /// Commands that come during a sync.
    comes: f64,
}

fn learn(known: &mut f64, micros: f64) {
    match *known == 0.0 {
        true => *known = micros,
        false => *known += (micros.min(STRAY * *known) - *known) * WEIGHT,
    }
}

impl Pace {
    /// A sync took so long, and so many commands came meanwhile.
    pub(super) fn synced(&mut self, took: Duration, came: usize) {
        learn(&mut self.sync, took.as_secs_f64() * 1e6);
        self.comes += (came as f64 - self.comes) * WEIGHT;
    }

    /// So many commands were applied in this time.
    pub(super) fn applied(&mut self, calls: usize, took: Duration) {
        if calls > 0 {
            learn(&mut self.call, took.as_secs_f64() * 1e6 / calls as f64);
        }
    }

    /// Whether to apply what waits, or is likely to come, takes long enough to have another thread do the sync meanwhile.
    pub(super) fn is_worth_a_thread(&self, waiting: usize) -> bool {
        self.sync > 0.0 && self.comes.max(waiting as f64) * self.call > SYNCS_WORTH_A_THREAD * self.sync
    }

    /// Commands that the next round may have; all that are allowed where nobody has to sync.
    pub(super) fn calls(&self, calls_max: usize) -> usize {
        if self.sync == 0.0 || self.call == 0.0 {
            return calls_max;
        }
        ((SYNCS * self.sync / self.call) as usize).max(CALLS_MIN).min(calls_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn a_round_takes_about_a_sync() {
        let mut pace = Pace::default();
        pace.applied(100, micros(100));
        assert_eq!(pace.calls(4096), 4096, "nothing was synced yet");
        pace.synced(micros(150), 0);
        assert_eq!(pace.calls(4096), 150);
        assert_eq!(pace.calls(100), 100, "the bound");
        pace.synced(micros(1_000_000), 0);
        assert_eq!(pace.calls(4096), 178, "a stray one counts as four");
        (0..200).for_each(|_| pace.synced(micros(20), 0));
        assert_eq!(pace.calls(4096), CALLS_MIN);
        (0..200).for_each(|_| pace.synced(micros(2000), 0));
        assert!((1900..=2000).contains(&pace.calls(4096)), "{}", pace.calls(4096));
        pace.applied(0, micros(1));
        (0..200).for_each(|_| pace.applied(100, micros(25)));
        assert_eq!(pace.calls(4096), 4096, "commands that cost less");
    }

    #[test]
    fn a_thread_is_worth_it_if_as_much_waits_as_a_sync_takes() {
        let mut pace = Pace::default();
        assert!(!pace.is_worth_a_thread(usize::MAX), "nothing is known");
        pace.applied(100, micros(400));
        pace.synced(micros(200), 0);
        assert!(!pace.is_worth_a_thread(0) && !pace.is_worth_a_thread(25) && pace.is_worth_a_thread(26));
        (0..200).for_each(|_| pace.synced(micros(200), 26));
        assert!(pace.is_worth_a_thread(0), "they are likely to come");
        (0..200).for_each(|_| pace.synced(micros(2000), 200));
        assert!(!pace.is_worth_a_thread(200), "a slow disk");
    }
}
