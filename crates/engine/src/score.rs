//! Scores: doubles with a total order, and what is asked of an index by score.

use serde::{Deserialize, Serialize};

use crate::Name;
use crate::index::Index;

/// A double that is never NaN; `-0` equals `0`, as in a Redis sorted set.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Score(f64);

impl Score {
    /// The score of a number. NaN cannot come from a checked command; it would sort as 0.
    pub fn new(value: f64) -> Self {
        Score(if value.is_nan() || value == 0.0 { 0.0 } else { value })
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The names of an index with a score up to `max`, from the lowest, at most `count`.
pub(crate) fn up_to(index: &Index, min: f64, max: f64, count: usize) -> Vec<(f64, Name)> {
    // Mostly nothing is due: the lowest tells.
    if index.first().is_none_or(|(lowest, _)| lowest.get() > max) {
        return Vec::new();
    }
    index
        .range((Score::new(min), Name::new(b""))..)
        .take_while(|(score, _)| score.get() <= max)
        .take(count)
        .map(|(score, name)| (score.get(), name.clone()))
        .collect()
}

/// How many have a score in `min..=max`.
pub(crate) fn count_between(index: &Index, min: f64, max: f64) -> usize {
    index.range((Score::new(min), Name::new(b""))..).take_while(|(score, _)| score.get() <= max).count()
}
