//! What the end of a task means, and telling the server. The meaning is pure; telling is repeated until the server has
//! answered, and an attempt is never finished twice.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use haul_client::{Client, Complete, Error, Fail, Job, Retry, State};
use serde::{Deserialize, Serialize};

use crate::output::Said;
use crate::plan::{Classes, Plan, RetryRule};

/// The klass of jobs that bring their own command.
pub const EXEC_KLASS: &str = "haul.exec";
/// Retry, says a task (`EX_TEMPFAIL`).
const TEMPORARY: i32 = 75;
/// Of the log, in a failure's message.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// What is to be told about a job's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Complete {
        result: String,
    },
    Fail {
        group: String,
        message: String,
    },
    Retry {
        delay: Duration,
        group: String,
        message: String,
    },
    /// The job is no longer ours.
    Nothing,
}

/// Why a guardian ended a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Cancelled, or its lock went to somebody else.
    Lost,
    /// Its lock could not be renewed in time.
    NotRenewed,
    /// The worker was told to stop.
    Interrupted,
    Time,
    Memory,
    Disk,
    Processes,
    OutputBytes,
}

impl Stop {
    /// The group such jobs fail into.
    fn group(self) -> &'static str {
        match self {
            Stop::Lost => "lost",
            Stop::NotRenewed => "lock-not-renewed",
            Stop::Interrupted => "interrupted",
            Stop::Time => "time-limit",
            Stop::Memory => "memory-limit",
            Stop::Disk => "disk-limit",
            Stop::Processes => "process-limit",
            Stop::OutputBytes => "output-limit",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Stop::Lost => "the job was cancelled or given to another worker",
            Stop::NotRenewed => {
                "its lock could not be renewed, so it was stopped before another worker could begin"
            }
            Stop::Interrupted => "its worker was told to stop",
            Stop::Time => "it ran longer than its time limit",
            Stop::Memory => "it used more memory than its limit",
            Stop::Disk => "its folder grew beyond its limit",
            Stop::Processes => "it had more processes than its limit",
            Stop::OutputBytes => "it printed more than its limit",
        }
    }
}

/// How a task ended.
#[derive(Debug)]
pub struct End {
    pub status: ExitStatus,
    pub stop: Option<Stop>,
    /// The last class it named itself.
    pub said: Option<(u16, String)>,
    pub result: String,
    /// The last part of its log.
    pub log: String,
    /// Retries used up before this attempt.
    pub retries_used: u32,
    /// From 0 to 1.
    pub jitter: f64,
}

/// The verdict, before the log is added.
enum Verdict {
    Complete,
    Fail(String, String),
    Retry(String, String),
}

/// What an end means.
pub fn judge(plan: &Plan, end: End) -> Outcome {
    let verdict = match (end.stop, &end.said) {
        (Some(Stop::Lost), _) => return Outcome::Nothing,
        (Some(stop @ (Stop::NotRenewed | Stop::Interrupted)), _) => {
            Verdict::Retry(stop.group().to_owned(), stop.words().to_owned())
        }
        (Some(stop), _) => limited(&plan.retry, stop.group(), stop.words()),
        (None, Some((code, message))) => class(*code, message),
        (None, None) => by_status(plan, end.status),
    };
    let told = |message: String| {
        let from = end.log.len().saturating_sub(MESSAGE_BYTES_MAX);
        let from = (from..end.log.len()).find(|at| end.log.is_char_boundary(*at)).unwrap_or(end.log.len());
        let log = end.log.get(from..).unwrap_or_default().trim_end();
        if log.is_empty() { message } else { format!("{message}\n{log}") }
    };
    match verdict {
        Verdict::Complete => Outcome::Complete { result: end.result },
        Verdict::Fail(group, message) => Outcome::Fail { group, message: told(message) },
        Verdict::Retry(group, message) => {
            let delay = backoff(&plan.retry, end.retries_used, end.jitter);
            Outcome::Retry { delay, group, message: told(message) }
        }
    }
}

fn limited(rule: &RetryRule, group: &str, words: &str) -> Verdict {
    let (group, words) = (group.to_owned(), words.to_owned());
    if rule.limits { Verdict::Retry(group, words) } else { Verdict::Fail(group, words) }
}

/// The serverless classes: 2xx done, 4xx failed for good, everything else again.
fn class(code: u16, message: &str) -> Verdict {
    let words = if message.is_empty() { format!("it ended with outcome {code}") } else { message.to_owned() };
    match code {
        200..=299 => Verdict::Complete,
        400..=499 => Verdict::Fail(format!("outcome-{code}"), words),
        _ => Verdict::Retry(format!("outcome-{code}"), words),
    }
}

fn by_status(plan: &Plan, status: ExitStatus) -> Verdict {
    let rule = &plan.retry;
    if let Some(signal) = status.signal() {
        return match signal {
            24 => limited(rule, "cpu-limit", "it used more processor time than its limit"),
            25 => limited(rule, "file-size-limit", "it wrote a larger file than its limit"),
            _ => {
                let name = signal_name(signal);
                let (group, words) = (format!("signal-{name}"), format!("it was ended by signal {name}"));
                if rule.signals { Verdict::Retry(group, words) } else { Verdict::Fail(group, words) }
            }
        };
    }
    let code = status.code().unwrap_or(1);
    let (group, words) = (format!("exit-{code}"), format!("it ended with exit status {code}"));
    if code == 0 {
        return Verdict::Complete;
    }
    if rule.statuses.contains(&code) || rule.any_status || code == TEMPORARY {
        return Verdict::Retry(group, words);
    }
    match (plan.classes, code) {
        (Classes::Plain, _) | (Classes::Serverless, 64 | 65) => Verdict::Fail(group, words),
        (Classes::Serverless, 200..=255) => Verdict::Complete,
        (Classes::Serverless, _) => Verdict::Retry(group, words),
    }
}

/// Doubled with every retry used, up to the longest, less up to half of it by chance.
fn backoff(rule: &RetryRule, retries_used: u32, jitter: f64) -> Duration {
    let doubled = 1_u32.checked_shl(retries_used).unwrap_or(u32::MAX);
    let whole = rule.backoff.saturating_mul(doubled).min(rule.backoff_max);
    whole.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

const SIGNALS: [(i32, &str); 14] = [
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (11, "SEGV"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (31, "SYS"),
];

fn signal_name(signal: i32) -> String {
    let known = SIGNALS.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| signal.to_string(), |(_, name)| (*name).to_owned())
}

/// The status a shell would show for a job that failed into this group.
pub fn exit_code(group: &str) -> u8 {
    if let Some(code) = group.strip_prefix("exit-").and_then(|code| code.parse().ok()) {
        return code;
    }
    if let Some(name) = group.strip_prefix("signal-") {
        let known = SIGNALS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
        let number = known.or_else(|| name.parse().ok()).unwrap_or(0);
        return u8::try_from(128 + number).unwrap_or(1);
    }
    if group == "time-limit" { 124 } else { 1 }
}

/// The class a task named last.
pub(crate) fn last_class(said: &[Said]) -> Option<(u16, String)> {
    let class = |said: &Said| match said {
        Said::Outcome { code, message } => Some((*code, message.clone())),
        _ => None,
    };
    said.iter().rev().find_map(class)
}

/// Who tells.
#[derive(Clone, Debug)]
pub struct Teller {
    pub worker: String,
    pub jid: String,
    pub attempt: u64,
}

impl Teller {
    pub fn of(worker: &str, job: &Job) -> Self {
        Teller { worker: worker.to_owned(), jid: job.jid.clone(), attempt: job.attempt }
    }

    /// Tells once. Ok: the server has it, or the job is no longer ours; how it went, in a word.
    ///
    /// A repeated telling whose first copy arrived is refused; that the job was finished by exactly this attempt shows
    /// that it did.
    pub async fn tell(&self, client: &Client, outcome: &Outcome) -> Result<&'static str, Error> {
        let Teller { worker, jid, attempt } = self;
        let told = match outcome {
            Outcome::Nothing => return Ok("nothing"),
            Outcome::Complete { result } => {
                let complete = Complete::new(worker, jid).attempt(*attempt);
                let complete = if result.is_empty() { complete } else { complete.result(result) };
                client.complete(&complete).await.map(|_| "complete")
            }
            Outcome::Fail { group, message } => client
                .fail(&Fail::new(worker, jid, group, message).attempt(*attempt))
                .await
                .map(|()| "failed"),
            Outcome::Retry { delay, group, message } => {
                let retry = Retry::new(worker, jid).attempt(*attempt).failure(group, message);
                let retry = if delay.is_zero() { retry } else { retry.delay(*delay) };
                client.retry(&retry).await.map(|_| "retry")
            }
        };
        match told {
            Err(error) if error.is_lock_lost() => self.was_told(client, outcome).await,
            // The result is not to the server's taste (too long, say): the job has failed, and says why.
            Err(Error::Refused { code, message }) if code == "BADARG" => {
                let fail = Fail::new(worker, jid, "refused-outcome", message).attempt(*attempt);
                client.fail(&fail).await.map(|()| "failed")
            }
            other => other,
        }
    }

    async fn was_told(&self, client: &Client, outcome: &Outcome) -> Result<&'static str, Error> {
        let job = client.get(&self.jid).await?;
        let ours = job.is_some_and(|job| {
            let state = match outcome {
                Outcome::Complete { .. } => job.state == State::Complete,
                Outcome::Fail { .. } => job.state == State::Failed,
                _ => true,
            };
            job.attempt == self.attempt && state
        });
        Ok(if ours { "told before" } else { "lost" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Connection, Limits};

    fn plan(classes: Classes, retry: RetryRule) -> Plan {
        Plan {
            connection: Connection {
                address: String::new(),
                database: None,
                token: None,
                is_tls: false,
                ca: None,
                identity: None,
                server_name: None,
            },
            worker: "w".into(),
            state: Default::default(),
            command: None,
            lock: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            limits: Limits::default(),
            retry,
            classes,
            lines: true,
        }
    }

    /// As a shell would write it: status, or signal with a minus.
    fn end(status: i32, stop: Option<Stop>) -> End {
        let raw = if status < 0 { -status } else { status << 8 };
        let (said, result, log) = (None, "r".to_owned(), String::new());
        End { status: ExitStatus::from_raw(raw), stop, said, result, log, retries_used: 0, jitter: 0.0 }
    }

    fn word(outcome: Outcome) -> String {
        match outcome {
            Outcome::Complete { .. } => "complete".into(),
            Outcome::Fail { group, .. } => format!("fail {group}"),
            Outcome::Retry { group, .. } => format!("retry {group}"),
            Outcome::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn every_end_has_its_meaning() {
        let plain = plan(Classes::Plain, RetryRule::default());
        let serverless = plan(Classes::Serverless, RetryRule::default());
        let eager = plan(
            Classes::Plain,
            RetryRule { statuses: vec![3], signals: true, limits: true, ..RetryRule::default() },
        );
        for (plan, status, stop, wanted) in [
            (&plain, 0, None, "complete"),
            (&plain, 3, None, "fail exit-3"),
            (&plain, 75, None, "retry exit-75"),
            (&plain, -9, None, "fail signal-KILL"),
            (&plain, -25, None, "fail file-size-limit"),
            (&plain, -24, None, "fail cpu-limit"),
            (&plain, -15, Some(Stop::Time), "fail time-limit"),
            (&plain, 0, Some(Stop::Lost), "nothing"),
            (&plain, -9, Some(Stop::Interrupted), "retry interrupted"),
            (&eager, 3, None, "retry exit-3"),
            (&eager, 4, None, "fail exit-4"),
            (&eager, -9, None, "retry signal-KILL"),
            (&eager, -9, Some(Stop::Memory), "retry memory-limit"),
            (&serverless, 101, None, "retry exit-101"),
            (&serverless, 204, None, "complete"),
            (&serverless, 65, None, "fail exit-65"),
            (&serverless, 1, None, "retry exit-1"),
        ] {
            assert_eq!(word(judge(plan, end(status, stop))), wanted, "{status} {stop:?}");
        }
        for (code, wanted) in [
            (101, "retry outcome-101"),
            (200, "complete"),
            (404, "fail outcome-404"),
            (503, "retry outcome-503"),
            (302, "retry outcome-302"),
        ] {
            let end = End { said: Some((code, String::new())), ..end(1, None) };
            assert_eq!(word(judge(&plain, end)), wanted);
        }
    }

    #[test]
    fn delays_double_and_are_spread() {
        let seconds = Duration::from_secs;
        let rule = RetryRule { backoff: seconds(2), backoff_max: seconds(60), ..RetryRule::default() };
        assert_eq!(backoff(&rule, 0, 0.0), seconds(2));
        assert_eq!(backoff(&rule, 3, 0.0), seconds(16));
        assert_eq!(backoff(&rule, 3, 1.0), seconds(8));
        assert_eq!(backoff(&rule, 99, 0.0), seconds(60));
    }

    #[test]
    fn a_group_tells_the_exit_code() {
        for (group, code) in
            [("exit-3", 3), ("signal-KILL", 137), ("signal-40", 168), ("time-limit", 124), ("x", 1)]
        {
            assert_eq!(exit_code(group), code, "{group}");
        }
    }
}
