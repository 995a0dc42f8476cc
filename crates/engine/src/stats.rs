//! Statistics of a queue on a day: how long jobs waited and ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values in the histogram of the unified API.
pub const HISTOGRAM_UNIFIED: usize = 148;
/// Values in the histogram of the older API.
pub const HISTOGRAM_FINE: usize = 263;

const MINUTE: i64 = 60;
const QUARTER: i64 = 900;
const HOUR: i64 = 3600;
const DAY: i64 = 86_400;

/// Start of the day of `now`.
pub(crate) fn day_of(now: f64) -> f64 {
    now - now.rem_euclid(DAY as f64)
}

/// Whether `day_of(at)` is this day.
pub(crate) fn is_on_day(day: f64, at: f64) -> bool {
    day <= at && at < day + DAY as f64
}

/// One series of samples: moments and a histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Samples.
    pub total: f64,
    /// Their mean.
    pub mean: f64,
    /// Sum of squared distances from the mean, kept running.
    pub vk: f64,
    /// Count by the bin's first second. Bins are the finest any API shows: seconds, minutes from 1 m, quarters from 1 h,
    /// hours from 1 d, days from 3 d.
    bins: BTreeMap<i64, u64>,
}

impl Series {
    /// Adds a sample.
    pub(crate) fn add(&mut self, value: f64) {
        if self.total == 0.0 {
            (self.total, self.mean, self.vk) = (1.0, value, 0.0);
        } else {
            self.total += 1.0;
            let old = self.mean;
            self.mean += (value - old) / self.total;
            self.vk += (value - self.mean) * (value - old);
        }
        *self.bins.entry(bin_of(value)).or_default() += 1;
    }

    /// The sample variance.
    pub fn variance(&self) -> f64 {
        if self.total > 1.0 { self.vk / (self.total - 1.0) } else { 0.0 }
    }

    /// How many samples are less than `bound` seconds, which must be where a bin begins.
    pub(crate) fn below(&self, bound: i64) -> u64 {
        self.bins.range(..bound).map(|(_, count)| count).sum()
    }

    /// s0..s59, m1..m59, h1..h23, d1..d6.
    pub fn unified(&self) -> Vec<u64> {
        let mut values = vec![0; HISTOGRAM_UNIFIED];
        for (&second, &count) in &self.bins {
            let index = match second {
                0..MINUTE => second,
                MINUTE..HOUR => 59 + second / MINUTE,
                HOUR..DAY => 118 + second / HOUR,
                DAY.. => 141 + second / DAY,
                _ => continue,
            };
            add_at(&mut values, index, count);
        }
        values
    }

    /// s0..s59, m1..m59, quarter hours 4..95, hours 24..71, days 3..6.
    pub fn fine(&self) -> Vec<u64> {
        let mut values = vec![0; HISTOGRAM_FINE];
        for (&second, &count) in &self.bins {
            let index = match second {
                0..MINUTE => second,
                MINUTE..HOUR => 59 + second / MINUTE,
                HOUR..DAY => 119 + second / QUARTER - 4,
                DAY..259_200 => 211 + second / HOUR - 24,
                259_200.. => 259 + second / DAY - 3,
                _ => continue,
            };
            add_at(&mut values, index, count);
        }
        values
    }

    /// The sparse bins as qless names them: `s5`, `m2`, `h1`, `d3`; negative ones `s-5`.
    pub fn sparse(&self) -> Vec<(String, u64)> {
        let mut named: Vec<(String, u64)> = Vec::new();
        for (&second, &count) in &self.bins {
            let name = match second {
                ..MINUTE => format!("s{second}"),
                MINUTE..HOUR => format!("m{}", second / MINUTE),
                HOUR..DAY => format!("h{}", second / HOUR),
                DAY.. => format!("d{}", second / DAY),
            };
            match named.last_mut() {
                Some((last, sum)) if *last == name => *sum += count,
                _ => named.push((name, count)),
            }
        }
        named
    }
}

fn add_at(values: &mut [u64], index: i64, count: u64) {
    if let Some(value) = usize::try_from(index).ok().and_then(|index| values.get_mut(index)) {
        *value += count;
    }
}

/// The first second of the finest bin that holds `value`.
fn bin_of(value: f64) -> i64 {
    let second = value.floor().clamp(i64::MIN as f64, i64::MAX as f64) as i64;
    let width = match second {
        ..MINUTE => 1,
        MINUTE..HOUR => MINUTE,
        HOUR..DAY => QUARTER,
        DAY..259_200 => HOUR,
        259_200.. => DAY,
    };
    second - second.rem_euclid(width)
}

/// What is kept of one queue on one day. The counters are none until first touched, as in qless's hashes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DayStats {
    pub(crate) wait: Series,
    pub(crate) run: Series,
    pub(crate) failures: Option<i64>,
    pub(crate) failed: Option<i64>,
    pub(crate) retries: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_waits_0_to_19_are_as_captured() {
        let mut series = Series::default();
        (0..20).for_each(|value| series.add(f64::from(value)));
        assert_eq!(series.mean, 9.5);
        assert!((series.variance().sqrt() - 5.916_079_783_099_6).abs() < 1e-12);
    }

    #[test]
    fn bins_fall_where_both_histograms_want_them() {
        let mut series = Series::default();
        for value in [
            0.5, 59.9, 60.0, 3599.0, 3600.0, 86_399.0, 86_400.0, 259_199.0, 259_200.0, 604_799.0, 604_800.0,
            -5.0,
        ] {
            series.add(value);
        }
        let unified = series.unified();
        for index in [0, 59, 60, 118, 119, 141, 142, 143, 144, 147] {
            assert_eq!(unified[index], 1, "unified {index}");
        }
        let fine = series.fine();
        for index in [0, 59, 60, 118, 119, 210, 211, 258, 259, 262] {
            assert_eq!(fine[index], 1, "fine {index}");
        }
        assert_eq!(unified.iter().sum::<u64>(), 10);
        assert_eq!(series.sparse().first(), Some(&("s-5".to_owned(), 1)));
    }
}
