//! Latencies in buckets: linear within each power of two, so that every figure is within two percent.

use std::time::Duration;

/// Buckets within a power of two, as a power of two.
const FINE_BITS: u32 = 6;
const FINE: usize = 1 << FINE_BITS;

/// Counts of latencies, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub(super) fn record(&mut self, latency: Duration, times: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket_of(nanos);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += times;
        }
        self.total += times;
        self.max = self.max.max(nanos);
    }

    pub(super) fn add(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.total
    }

    pub(super) fn max_ms(&self) -> f64 {
        self.max as f64 / 1e6
    }

    /// The latency that this share of all stays within, in milliseconds.
    pub(super) fn percentile_ms(&self, share: f64) -> f64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return (highest_of(bucket).min(self.max)) as f64 / 1e6;
            }
        }
        0.0
    }
}

fn bucket_of(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(FINE_BITS + 1);
    shift as usize * FINE + (nanos >> shift) as usize
}

/// The largest value in a bucket.
fn highest_of(bucket: usize) -> u64 {
    let shift = (bucket / FINE).saturating_sub(1);
    let fine = (bucket - shift * FINE) as u128;
    u64::try_from(((fine + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_within_two_percent() {
        for nanos in (0..2_000).chain([1 << 20, (1 << 20) - 1, 123_456_789, u64::MAX / 3, u64::MAX]) {
            let highest = highest_of(bucket_of(nanos));
            assert!(
                highest >= nanos && (highest - nanos) as f64 <= nanos as f64 / 50.0,
                "{nanos}: {highest}"
            );
        }
    }

    #[test]
    fn percentiles_are_of_what_was_recorded() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ms| histogram.record(Duration::from_millis(ms), 1));
        assert!((histogram.percentile_ms(0.5) / 500.0 - 1.0).abs() < 0.02);
        assert!((histogram.percentile_ms(0.99) / 990.0 - 1.0).abs() < 0.02);
        assert_eq!((histogram.percentile_ms(1.0), histogram.max_ms()), (1000.0, 1000.0));
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!(twice.count(), 2000);
        assert_eq!(Histogram::default().percentile_ms(0.5), 0.0);
    }
}
