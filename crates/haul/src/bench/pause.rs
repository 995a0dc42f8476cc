//! Pauses that end when they are meant to. The runtime's own timers tick once a millisecond: what is due within one would be
//! sent in a burst, and the burst would be measured, not the server.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock;

const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A timer of the system, for one pause after the other.
pub(super) struct Pause(AsyncFd<OwnedFd>);

impl Pause {
    /// Called in a runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for descriptors that somebody else may close; this one is owned"
    )]
    pub(super) fn new() -> std::io::Result<Pause> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Pause(AsyncFd::with_interest(timer, Interest::READABLE)?))
    }

    /// Returns at that moment, at once if it has passed; whether it had not.
    pub(super) async fn until(&self, moment: Instant) -> std::io::Result<bool> {
        let left = moment.saturating_duration_since(clock::instant());
        let Ok(left) = Timespec::try_from(left) else { return Ok(false) };
        if left == ZERO {
            return Ok(false);
        }
        let once = Itimerspec { it_interval: ZERO, it_value: left };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
            if let Ok(read) = read {
                read?;
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_ends_at_its_moment_and_one_that_has_passed_is_none() {
        let pause = Pause::new().unwrap();
        for _ in 0..3 {
            let moment = clock::instant() + Duration::from_micros(300);
            assert!(pause.until(moment).await.unwrap());
            assert!(clock::instant() >= moment);
            assert!(!pause.until(moment).await.unwrap());
        }
    }
}
