//! Work that nobody waits for, in bites with rests between them. Where processors are few, a thread that works on and on holds up
//! whoever is woken on its processor until the scheduler's next tick, the kernel's own threads that finish a sync included; and a
//! disk that is given much at once makes the log's next sync wait for all of it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time after which it is time to rest.
const BITE: Duration = Duration::from_micros(100);
/// How long to rest, in times of what was done.
const RESTS: u32 = 3;
/// The longest rest: whoever comes to wait meanwhile is seen only after it.
const REST_MAX: Duration = Duration::from_millis(20);
/// Small steps between two looks at the clock.
const STEPS: u32 = 32;

/// One thread's work.
pub(crate) struct Bites<'a> {
    /// Somebody waits by now: no more rests.
    is_urgent: &'a dyn Fn() -> bool,
    since: Duration,
    steps: u32,
}

impl<'a> Bites<'a> {
    pub(crate) fn new(is_urgent: &'a dyn Fn() -> bool) -> Self {
        Bites { is_urgent, since: worked(), steps: 0 }
    }

    /// One small step was done, of a microsecond or so.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        if self.steps >= STEPS {
            self.rest();
        }
    }

    /// Something larger was done: rests if it is time to.
    pub(crate) fn rest(&mut self) {
        self.steps = 0;
        let took = worked().saturating_sub(self.since);
        if took < BITE {
            return;
        }
        self.rest_after(took);
    }

    /// Rests from something that took so long.
    pub(crate) fn rest_after(&mut self, took: Duration) {
        if !(self.is_urgent)() {
            std::thread::sleep(REST_MAX.min(RESTS * took));
        }
        self.since = worked();
    }
}

/// A moment of the clock that runs on.
pub(crate) fn moment() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Processor time of this thread.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_rest_is_due_after_a_bite_and_not_when_somebody_waits() {
        let asked = Cell::new(0);
        let is_urgent = || {
            asked.set(asked.get() + 1);
            true
        };
        let mut bites = Bites::new(&is_urgent);
        bites.rest();
        assert_eq!(asked.get(), 0, "nothing was done");
        while asked.get() < 3 {
            bites.step();
        }
        let idle = || false;
        let mut bites = Bites::new(&idle);
        let began = worked();
        while worked().saturating_sub(began) < 2 * BITE {}
        bites.rest();
        assert!(worked().saturating_sub(bites.since) < BITE, "the next bite begins after the rest");
        // However slow the disk was.
        bites.rest_after(Duration::from_secs(3600));
    }
}
