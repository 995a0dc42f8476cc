//! What the server tells about jobs and queues, as types.

use crate::error::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// JSON text kept exactly as it was written: numbers, order of keys and all.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The JSON text of a value.
    ///
    /// # Errors
    /// [`Error::Encode`] if the value cannot be written as JSON.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        serde_json::value::to_raw_value(value).map(Self).map_err(|error| Error::Encode(error.to_string()))
    }

    /// A text that already is JSON.
    ///
    /// # Errors
    /// [`Error::Encode`] if it is not.
    pub fn from_text(text: impl Into<String>) -> Result<Self, Error> {
        RawValue::from_string(text.into()).map(Self).map_err(|error| Error::Encode(error.to_string()))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Reads it as a value of a type.
    ///
    /// # Errors
    /// [`Error::Decode`] if the text is of another form.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.text()).map_err(|error| Error::Decode(error.to_string()))
    }
}

impl Default for Json {
    /// `null`.
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// Ready to be popped.
    Waiting,
    /// Ready at a later time.
    Scheduled,
    /// Waiting for other jobs to complete.
    Depends,
    /// Waiting for a throttle.
    Throttled,
    /// Held by a worker.
    Running,
    /// Held by a worker whose lock ran out.
    Stalled,
    /// Given up, until somebody puts it back.
    Failed,
    /// Done.
    Complete,
    /// A state this version of the client does not know.
    #[serde(other)]
    Unknown,
}

impl State {
    /// The word used on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Depends => "depends",
            Self::Throttled => "throttled",
            Self::Running => "running",
            Self::Stalled => "stalled",
            Self::Failed => "failed",
            Self::Complete => "complete",
            Self::Unknown => "unknown",
        }
    }

    /// From the word used on the wire.
    pub(crate) fn from_text(text: &str) -> Self {
        const ALL: [State; 8] = [
            State::Waiting,
            State::Scheduled,
            State::Depends,
            State::Throttled,
            State::Running,
            State::Stalled,
            State::Failed,
            State::Complete,
        ];
        ALL.into_iter().find(|state| state.as_str() == text).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A job as the server describes it. Times are seconds since 1970 on the server's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub jid: String,
    /// Its type: which code handles it.
    pub klass: String,
    /// Its queue; none once complete.
    #[serde(default)]
    pub queue: Option<String>,
    /// Where it stands.
    pub state: State,
    /// What it is about.
    #[serde(default)]
    pub data: Json,
    /// What its completion left.
    #[serde(default, deserialize_with = "text_or_json")]
    pub result: Option<String>,
    /// A larger one runs sooner. Clients of other dialects may give it a fraction.
    #[serde(default, serialize_with = "number")]
    pub priority: f64,
    /// How many retries it was put with.
    #[serde(default, deserialize_with = "whole")]
    pub retries: i64,
    /// How many retries are left.
    #[serde(default, deserialize_with = "whole")]
    pub remaining: i64,
    /// How often it was handed out.
    #[serde(default)]
    pub attempt: u64,
    /// Who holds it.
    #[serde(default)]
    pub worker: Option<String>,
    /// When its lock runs out.
    #[serde(default)]
    pub expires: Option<f64>,
    /// Its tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Whether somebody asked to be told about it.
    #[serde(default)]
    pub tracked: bool,
    /// Why it failed.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// The jobs it waits for.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// The jobs that wait for it.
    #[serde(default)]
    pub dependents: Vec<String>,
    /// The throttles it is subject to.
    #[serde(default)]
    pub throttles: Vec<String>,
    /// The recurring job that made it.
    #[serde(default)]
    pub spawned_from: Option<String>,
    /// How far it says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The last part of what it wrote to its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How long that log was in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// What the next attempt begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Json>,
    /// What happened to it, oldest first.
    #[serde(default)]
    pub history: Vec<HistoryEntry>,
    /// The W3C trace context it was put with, if it was: the parent for spans about running it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// How far a running job says it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 100.
    #[serde(default)]
    pub percent: Option<f64>,
    /// What it is doing.
    #[serde(default)]
    pub message: Option<String>,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure; failures are counted by it.
    pub group: String,
    /// What happened this time.
    pub message: String,
    /// When, in seconds since 1970.
    #[serde(default, serialize_with = "number")]
    pub when: f64,
    /// Who held the job then.
    #[serde(default)]
    pub worker: Option<String>,
}

/// One line of a job's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When, in seconds since 1970.
    #[serde(serialize_with = "number")]
    pub when: f64,
    /// What happened, for example `put`, `popped`, `done`.
    pub what: String,
    /// The queue, where one is involved.
    #[serde(
        rename = "q",
        default,
        deserialize_with = "text_or_json",
        skip_serializing_if = "Option::is_none"
    )]
    pub queue: Option<String>,
    /// The worker, where one is involved.
    #[serde(default, deserialize_with = "text_or_json", skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Whatever else was noted.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// How many jobs a queue has, by state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// The queue.
    pub name: String,
    /// Ready to be popped.
    #[serde(default)]
    pub waiting: u64,
    /// Held by workers.
    #[serde(default)]
    pub running: u64,
    /// Held by workers whose locks ran out.
    #[serde(default)]
    pub stalled: u64,
    /// Ready at a later time.
    #[serde(default)]
    pub scheduled: u64,
    /// Waiting for other jobs.
    #[serde(default)]
    pub depends: u64,
    /// Recurring jobs that put into it.
    #[serde(default)]
    pub recurring: u64,
    /// Waiting for throttles.
    #[serde(default)]
    pub throttled: u64,
    /// Whether pops get nothing from it.
    #[serde(default)]
    pub paused: bool,
}

/// A part of a longer list of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// How many there are in all.
    pub total: u64,
    /// The ids of those asked for.
    pub jobs: Vec<String>,
}

/// The jobs somebody asked to be told about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tracked {
    /// Those that exist.
    pub jobs: Vec<Job>,
    /// The ids of those that no longer do.
    pub expired: Vec<String>,
}

/// A number is written as the server writes it: without a fraction where it has none.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

/// A whole number, also where it is so large that it is written with an exponent.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    f64::deserialize(deserializer).map(|value| value as i64)
}

/// Text; what stands there as other JSON (in a log line anybody may write anything) is taken by its text.
fn text_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of docs/reference/commands.md.
    const JOB: &str = r#"{"jid":"8f3c","klass":"email","queue":"mail","state":"running","data":{"to":"a@b.c","n":1.0},
        "result":null,"priority":0,"retries":5,"remaining":5,"attempt":1,"worker":"host-1","expires":1700000061.5,
        "tags":["newsletter"],"tracked":false,"failure":null,"dependencies":[],"dependents":[],"throttles":[],
        "spawned_from":null,"history":[{"when":1700000000,"what":"put","q":"mail","by":"x"}]}"#;

    #[test]
    fn the_documented_job_is_read() {
        let job: Job = serde_json::from_str(JOB).unwrap();
        assert_eq!((job.state, job.attempt, job.worker.as_deref()), (State::Running, 1, Some("host-1")));
        assert_eq!(job.data.text(), r#"{"to":"a@b.c","n":1.0}"#);
        assert_eq!(job.history[0].queue.as_deref(), Some("mail"));
        assert_eq!(job.history[0].more["by"], "x");
        let again: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
        assert_eq!(again, job);
    }

    #[test]
    fn an_unknown_state_and_missing_fields_do_not_break_reading() {
        let job: Job =
            serde_json::from_str(r#"{"jid":"j","klass":"k","state":"resting","result":{"a":1}}"#).unwrap();
        assert_eq!(job.state, State::Unknown);
        assert_eq!(job.data.text(), "null");
        assert_eq!(job.result.as_deref(), Some(r#"{"a":1}"#));
    }

    #[test]
    fn numbers_of_other_dialects_are_read_and_written_back() {
        // A priority with a fraction, or retries of 1e15, made every answer about the job unreadable.
        let text =
            r#"{"jid":"j","klass":"k","state":"waiting","priority":1.5,"retries":1e+15,"remaining":-1}"#;
        let job: Job = serde_json::from_str(text).unwrap();
        assert_eq!((job.priority, job.retries, job.remaining), (1.5, 1_000_000_000_000_000, -1));
        let whole = Job { priority: 3.0, ..job.clone() };
        assert!(serde_json::to_string(&whole).unwrap().contains(r#""priority":3,"#));
        assert!(serde_json::to_string(&job).unwrap().contains(r#""priority":1.5,"#));
    }

    #[test]
    fn a_log_line_cannot_make_a_job_unreadable() {
        // The members of a log line's data stand beside the entry's own: {"worker":1} made the job unreadable for ever.
        let text = r#"{"jid":"j","klass":"k","state":"waiting","history":[{"when":1,"what":"hi","worker":1,"q":[2]}]}"#;
        let job: Job = serde_json::from_str(text).unwrap();
        assert_eq!(
            (job.history[0].worker.as_deref(), job.history[0].queue.as_deref()),
            (Some("1"), Some("[2]"))
        );
    }

    #[test]
    fn states_read_back_from_their_words() {
        for word in
            ["waiting", "scheduled", "depends", "throttled", "running", "stalled", "failed", "complete"]
        {
            assert_eq!(State::from_text(word).as_str(), word);
        }
    }
}
