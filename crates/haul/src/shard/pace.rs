//! How large a round may be, and who syncs it. Each costs a sync, so it should be large.
//!
//! A shard with a thread of its own: if a round takes in everybody who asks, all of them wait for the shard and after that the
//! shard waits for all of them; smaller ones in turn keep both busy. So a round is to take about as long as its sync, and no
//! longer, and another thread does the sync if there is enough to do meanwhile.
//!
//! A shard on a lane has nobody to take turns with. It takes in who comes while somebody comes, for a while.

use std::time::Duration;

/// What it may take to work on a round, in syncs.
const SYNCS: f64 = 1.0;
/// What there must be to do while a round is synced by another thread, in syncs: to wake that thread, and to be
/// woken by it, takes time too. And a disk that takes longer than all who ask is better asked once for all of them.
const SYNCS_WORTH_A_THREAD: f64 = 0.5;
/// Rounds are not made smaller than this many commands.
pub(super) const CALLS_MIN: usize = 96;
/// How long a lane goes on to take in who comes, in syncs.
const SYNCS_GATHERED: f64 = 2.0;
/// How much the last round or sync changes what is known, as a share.
const WEIGHT: f64 = 1.0 / 16.0;
/// The most that one of them counts for, as a multiple of what was known: now and then a disk takes very long.
const STRAY: f64 = 4.0;

/// What rounds and syncs took so far.
#[derive(Debug)]
pub(super) struct Pace {
    /// On a thread of its own.
    alone: bool,
    /// Microseconds; 0: not known.
    sync: f64,
    /// Processor time of the shard's thread for a command, with all else that the thread does; the same.
    call: f64,
    /// Commands of a round.
    calls: f64,
}

fn learn(known: &mut f64, micros: f64) {
    match *known == 0.0 {
        true => *known = micros,
        false => *known += (micros.min(STRAY * *known) - *known) * WEIGHT,
    }
}

impl Pace {
    /// Nothing is known yet of a shard that has a thread of its own, or lives on a lane.
    pub(super) fn new(alone: bool) -> Self {
        Pace { alone, sync: 0.0, call: 0.0, calls: 0.0 }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// A sync took so long.
    pub(super) fn synced(&mut self, took: Duration) {
        learn(&mut self.sync, took.as_secs_f64() * 1e6);
    }

    /// A round had so many commands, and so much work.
    pub(super) fn worked(&mut self, calls: usize, took: Duration) {
        if calls > 0 {
            learn(&mut self.call, took.as_secs_f64() * 1e6 / calls as f64);
            learn(&mut self.calls, calls as f64);
        }
    }

    /// Whether there is likely to be enough to do while another thread does the sync.
    pub(super) fn is_worth_a_thread(&self) -> bool {
        self.alone && self.sync > 0.0 && self.calls * self.call > SYNCS_WORTH_A_THREAD * self.sync
    }

    /// How long a round may take in who comes, while somebody does.
    pub(super) fn gathering_max(&self) -> Duration {
        Duration::from_secs_f64(if self.alone { 0.0 } else { SYNCS_GATHERED * self.sync / 1e6 })
    }

    /// Commands that the next round may have; all that are allowed where nobody has to sync.
    pub(super) fn calls(&self, calls_max: usize) -> usize {
        if !self.alone || self.sync == 0.0 || self.call == 0.0 {
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
        let mut pace = Pace::new(true);
        pace.worked(100, micros(100));
        assert_eq!(pace.calls(4096), 4096, "nothing was synced yet");
        pace.synced(micros(150));
        assert_eq!(pace.calls(4096), 150);
        assert_eq!(pace.calls(100), 100, "the bound");
        pace.synced(micros(1_000_000));
        assert_eq!(pace.calls(4096), 178, "a stray one counts as four");
        (0..200).for_each(|_| pace.synced(micros(20)));
        assert_eq!(pace.calls(4096), CALLS_MIN);
        (0..200).for_each(|_| pace.synced(micros(2000)));
        assert!((1900..=2000).contains(&pace.calls(4096)), "{}", pace.calls(4096));
        pace.worked(0, micros(1));
        (0..200).for_each(|_| pace.worked(100, micros(25)));
        assert_eq!(pace.calls(4096), 4096, "commands that cost less");
    }

    #[test]
    fn a_thread_is_worth_it_if_there_is_half_as_much_to_do_as_a_sync_takes() {
        let mut pace = Pace::new(true);
        assert!(!pace.is_worth_a_thread(), "nothing is known");
        (0..200).for_each(|_| pace.worked(25, micros(100)));
        pace.synced(micros(201));
        assert!(!pace.is_worth_a_thread());
        (0..200).for_each(|_| pace.worked(26, micros(104)));
        assert!(pace.is_worth_a_thread());
        (0..200).for_each(|_| pace.synced(micros(2000)));
        assert!(!pace.is_worth_a_thread(), "a slow disk");
        (0..200).for_each(|_| pace.worked(26, micros(2600)));
        assert!(pace.is_worth_a_thread(), "commands that cost more");
    }

    #[test]
    fn a_lane_takes_in_who_comes_for_some_syncs_and_syncs_itself() {
        let mut pace = Pace::new(false);
        assert_eq!(pace.gathering_max(), micros(0), "nothing was synced yet");
        pace.synced(micros(200));
        (0..200).for_each(|_| pace.worked(1000, micros(4000)));
        assert_eq!((pace.gathering_max(), pace.calls(4096)), (micros(400), 4096));
        assert!(!pace.is_worth_a_thread());
    }
}
