//! Recurring definitions: what to spawn, how often, and when next.

use serde::{Deserialize, Serialize};

use crate::{Cron, Name};

/// A recurring definition. There are few, so their data stays in memory and is copied to each child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recur {
    pub jid: Name,
    pub queue: Name,
    pub klass: Name,
    pub data: Name,
    pub priority: f64,
    pub retries: f64,
    /// Seconds from one child to the next; with a cron schedule, from the first to the second.
    pub interval: f64,
    pub backlog: f64,
    /// Children spawned so far; survives re-definition.
    pub count: u64,
    pub tags: Vec<Name>,
    /// Without the queue's own.
    pub throttles: Vec<Name>,
    /// When the next child is due; infinite: never.
    pub next: f64,
    /// Instead of the interval. Stored as a field of its own, as is what follows.
    #[serde(skip)]
    pub cron: Option<Cron>,
    /// It spawns nothing; survives re-definition.
    #[serde(skip)]
    pub paused: bool,
}

impl Recur {
    /// When it will spawn by itself: its score in the queue's index.
    pub(crate) fn due(&self) -> f64 {
        if self.paused { f64::INFINITY } else { self.next }
    }

    /// Follows a cron schedule, from the first moment after now.
    pub(crate) fn follow(&mut self, cron: Cron, now: f64) {
        self.next = cron.after(now).unwrap_or(f64::INFINITY);
        self.interval = cron.after(self.next).map_or(86_400.0, |second| second - self.next);
        self.cron = Some(cron);
    }

    /// Goes on to the moment after the next one.
    pub(crate) fn advance(&mut self) {
        match &self.cron {
            Some(cron) => self.next = cron.after(self.next).unwrap_or(f64::INFINITY),
            None => self.next += self.interval,
        }
    }

    /// Leaves out what the backlog does not make up for.
    pub(crate) fn skip_missed(&mut self, now: f64) {
        let next = self.next.floor();
        match &self.cron {
            Some(cron) if self.backlog > 0.0 => {
                self.next = cron.last(now, self.backlog).map_or(next, |first| first.max(next));
            }
            Some(_) => {}
            None => {
                let missed = (now - next) / self.interval;
                let left_out = self.backlog != 0.0 && missed > self.backlog;
                self.next =
                    if left_out { next + (missed - self.backlog).ceil() * self.interval } else { next };
            }
        }
    }

    /// Goes on after a pause; what was missed meanwhile stays undone.
    pub(crate) fn resume(&mut self, now: f64) {
        self.paused = false;
        if self.next > now {
            return;
        }
        match &self.cron {
            Some(cron) => self.next = cron.after(now).unwrap_or(f64::INFINITY),
            None => self.next += ((now - self.next) / self.interval).floor() * self.interval + self.interval,
        }
    }
}
