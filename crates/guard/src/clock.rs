//! The only reader of time and entropy.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Instant;

/// A moment to measure from.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// From 0 to 1, another one each time.
pub(crate) fn jitter() -> f64 {
    // The keys of a new hasher are random.
    let number = RandomState::new().build_hasher().finish() % 1000;
    f64::from(u32::try_from(number).unwrap_or(0)) / 1000.0
}
