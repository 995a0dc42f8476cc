//! Cron schedules: a pattern and the time zone its hours are read in. The zones come with the binary, not from the machine,
//! so that the same calls give the same state everywhere.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};

/// Bytes of a pattern, and of a time zone's name, at most.
pub const CRON_BYTES_MAX: usize = 256;
/// Missed moments of a cron schedule that are made up for at most, where not all are.
pub const CRON_BACKLOG_MAX: f64 = 1000.0;

/// When to do something, as cron says it. Cloning shares it.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
#[serde(into = "(String, String)", try_from = "(String, String)")]
pub struct Cron(Arc<Inner>);

struct Inner {
    text: String,
    zone: String,
    pattern: croner::Cron,
    place: TimeZone,
}

impl From<Cron> for (String, String) {
    fn from(cron: Cron) -> Self {
        (cron.0.text.clone(), cron.0.zone.clone())
    }
}

impl TryFrom<(String, String)> for Cron {
    type Error = String;

    fn try_from((text, zone): (String, String)) -> Result<Self, String> {
        Cron::parse(&text, &zone)
    }
}

impl Cron {
    /// Understands a pattern: minute, hour, day of month, month, day of week, with seconds in front if there are six
    /// parts, or a word such as `@daily`. An empty zone is UTC.
    pub fn parse(text: &str, zone: &str) -> Result<Self, String> {
        if text.len() > CRON_BYTES_MAX || zone.len() > CRON_BYTES_MAX {
            return Err(format!(
                "a cron pattern or time zone is longer than the limit cron-bytes-max, {CRON_BYTES_MAX}"
            ));
        }
        let pattern = croner::Cron::from_str(text).map_err(|error| {
            format!("{text:?} is no cron pattern: {error}; such as \"30 9 * * mon-fri\" or \"@daily\"")
        })?;
        let place = match zone {
            "" | "UTC" => TimeZone::UTC,
            name => TimeZoneDatabase::bundled()
                .get(name)
                .map_err(|_| format!("there is no time zone {name:?}; such as Europe/Berlin or UTC"))?,
        };
        let zone = if zone.is_empty() { "UTC" } else { zone }.to_owned();
        Ok(Cron(Arc::new(Inner { text: text.to_owned(), zone, pattern, place })))
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The time zone's name.
    pub fn zone(&self) -> &str {
        &self.0.zone
    }

    /// In plain words.
    pub fn words(&self) -> String {
        let told = self.0.pattern.describe();
        let told = told.trim_end_matches('.');
        format!("{told} ({})", self.0.zone)
    }

    fn at(&self, seconds: f64) -> Option<Zoned> {
        Some(Timestamp::from_second(seconds.floor() as i64).ok()?.to_zoned(self.0.place.clone()))
    }

    /// The first moment after this one; none: there is none.
    pub fn after(&self, moment: f64) -> Option<f64> {
        let next = self.0.pattern.find_next_occurrence(&self.at(moment)?, false).ok()?;
        Some(next.timestamp().as_second() as f64)
    }

    /// The earliest of the last `count` moments up to now.
    pub(crate) fn last(&self, now: f64, count: f64) -> Option<f64> {
        let mut found: Option<Zoned> = None;
        for _ in 0..count.min(CRON_BACKLOG_MAX) as usize {
            let (from, inclusive) = match &found {
                Some(later) => (later.clone(), false),
                None => (self.at(now)?, true),
            };
            match self.0.pattern.find_previous_occurrence(&from, inclusive) {
                Ok(earlier) => found = Some(earlier),
                Err(_) => break,
            }
        }
        Some(found?.timestamp().as_second() as f64)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        (&self.0.text, &self.0.zone) == (&other.0.text, &other.0.zone)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.text, self.0.zone)
    }
}
