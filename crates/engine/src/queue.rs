//! A queue: its indexes, whether it is known and whether it is paused.

use serde::{Deserialize, Serialize};

use crate::index::Index;
use crate::job::Place;

/// One queue. The indexes hold jids and are rebuilt from the jobs; only the first two fields are stored.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// When it was first seen; none: not listed among the known queues.
    pub(crate) seen_at: Option<f64>,
    pub(crate) paused: bool,
    #[serde(skip)]
    pub(crate) work: Index,
    #[serde(skip)]
    pub(crate) locks: Index,
    #[serde(skip)]
    pub(crate) scheduled: Index,
    #[serde(skip)]
    pub(crate) depends: Index,
    #[serde(skip)]
    pub(crate) throttled: Index,
    #[serde(skip)]
    pub(crate) recurring: Index,
    /// Changes of each of the first three indexes, for watching.
    #[serde(skip)]
    pub(crate) versions: [u64; 3],
    /// Running jobs whose lock on the queue's throttle was released by hand.
    #[serde(skip)]
    pub(crate) unthrottled: usize,
}

/// Which indexes of a queue have something whose time has come.
pub(crate) struct Due {
    pub(crate) locks: bool,
    pub(crate) scheduled: bool,
    pub(crate) recurring: bool,
}

impl Queue {
    pub(crate) fn due(&self, now: f64) -> Due {
        let due = |index: &Index| index.first().is_some_and(|(score, _)| score.get() <= now);
        Due { locks: due(&self.locks), scheduled: due(&self.scheduled), recurring: due(&self.recurring) }
    }

    /// The index of a place that belongs to a queue.
    pub(crate) fn index(&mut self, place: Place) -> Option<&mut Index> {
        if let Some(version) = self.versions.get_mut(place as usize) {
            *version += 1;
        }
        match place {
            Place::Work => Some(&mut self.work),
            Place::Locks => Some(&mut self.locks),
            Place::Scheduled => Some(&mut self.scheduled),
            Place::Depends => Some(&mut self.depends),
            Place::Throttled => Some(&mut self.throttled),
            Place::Failed | Place::Completed | Place::Draft => None,
        }
    }

    /// Whether anything needs storing or keeping.
    pub(crate) fn is_blank(&self) -> bool {
        self.seen_at.is_none() && !self.paused
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.is_blank()
            && [&self.work, &self.locks, &self.scheduled, &self.depends, &self.throttled, &self.recurring]
                .iter()
                .all(|index| index.is_empty())
    }

    /// The next moment at which waiting for this queue may bear fruit by itself.
    pub(crate) fn next_due(&self) -> Option<f64> {
        [&self.locks, &self.scheduled, &self.recurring]
            .iter()
            .filter_map(|index| index.first().map(|(score, _)| score.get()))
            .filter(|score| score.is_finite())
            .min_by(f64::total_cmp)
    }
}
