//! How long to wait before trying again: longer each time, and never at the same moment as everybody else.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Doubling delays with jitter.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
    /// Differs in every process, so clients that lost one server do not return to it in step.
    seed: RandomState,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0, seed: RandomState::new() }
    }

    /// Notes a failure.
    pub(crate) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait now: nothing unless something failed.
    pub(crate) fn delay(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            failures => self.delay_after(failures),
        }
    }

    /// The wait after this many failures: between half and all of the doubled minimum.
    pub(crate) fn delay_after(&self, failures: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.min.saturating_mul(doubled).min(self.max);
        let share = self.seed.hash_one(failures) % 1024;
        whole / 2 + whole.mul_f64(share as f64 / 2048.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_with_jitter_below() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        assert_eq!(backoff.delay(), Duration::ZERO);
        for whole in [100, 200, 400, 800, 1000, 1000] {
            backoff.fail();
            let delay = backoff.delay();
            assert!(
                delay >= Duration::from_millis(whole / 2) && delay <= Duration::from_millis(whole),
                "{delay:?}"
            );
        }
        assert!(backoff.delay_after(u32::MAX) <= Duration::from_secs(1));
        backoff.reset();
        assert_eq!(backoff.delay(), Duration::ZERO);
    }
}
