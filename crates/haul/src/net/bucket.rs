//! A rate, kept by a bucket that fills by itself. Time is an argument.

use std::time::Instant;

/// Holds at most `most`, and gets `a_second` each second.
#[derive(Debug)]
pub(crate) struct Bucket {
    level: f64,
    most: f64,
    a_second: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(most: f64, a_second: f64, now: Instant) -> Self {
        Bucket { level: most, most, a_second, at: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * self.a_second).min(self.most);
        self.at = self.at.max(now);
    }

    /// Takes one; if there is none, says in how many seconds there will be.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), f64> {
        self.fill(now);
        if self.level >= 1.0 {
            self.level -= 1.0;
            return Ok(());
        }
        Err((1.0 - self.level) / self.a_second)
    }

    /// Nothing is lost by forgetting it.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.level >= self.most
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_gives_what_it_holds_and_then_what_it_gets() {
        let start = crate::clock::instant();
        let mut bucket = Bucket::new(3.0, 2.0, start);
        for _ in 0..3 {
            assert_eq!(bucket.take(start), Ok(()));
        }
        assert_eq!(bucket.take(start), Err(0.5));
        let later = start + Duration::from_millis(500);
        assert_eq!(bucket.take(later), Ok(()));
        assert!(bucket.take(later).is_err() && bucket.take(start).is_err());
        assert!(!bucket.is_full(later) && bucket.is_full(later + Duration::from_secs(2)));
    }
}
