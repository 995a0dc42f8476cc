//! `haul job` and `haul result`: one job, told so that nobody has to ask further.

use haul_client::resp::Frame;
use haul_client::{HistoryEntry, Job as Known, QueueCounts, State};
use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::moment::{relative, span};
use super::output::{counted, fields, printable};
use super::session::Session;

/// Characters of data, results and messages shown; --json shows all.
const TEXT_CHARS_MAX: usize = 4000;

/// Show a job: where it stands and why, its data, its history
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul job job-1
  haul job job-1 --json | jq .history")]
pub(super) struct Job {
    /// The job
    jid: String,
}

impl Job {
    pub(super) async fn run(self, session: &Session) -> Done {
        let job = session.job(&self.jid).await?;
        if session.out.json {
            return session.out.value(&job);
        }
        let facts = Facts::gather(session, &job).await?;
        session.out.text(&told(&job, &facts, session.now))
    }
}

/// A job as `haul job` tells it.
pub(super) async fn describe(session: &Session, jid: &str, now: f64) -> Result<String, Failure> {
    let job = session.job(jid).await?;
    let facts = Facts::gather(session, &job).await?;
    Ok(told(&job, &facts, now))
}

/// What explains a job's state beside the job itself.
#[derive(Debug, Default)]
struct Facts {
    queue: Option<QueueCounts>,
    /// When a scheduled job is due.
    due_at: Option<f64>,
    /// A throttled job is still held back: released ones keep the state until they are popped.
    held_back: bool,
    /// Id, maximum (0: none), jobs that run under it.
    throttles: Vec<(String, u64, usize)>,
}

impl Facts {
    async fn gather(session: &Session, job: &Known) -> Result<Facts, Failure> {
        let mut facts = Facts::default();
        let Some(queue) = &job.queue else { return Ok(facts) };
        match job.state {
            State::Waiting | State::Stalled => facts.queue = Some(session.client.queue(queue).await?),
            State::Scheduled => {
                facts.due_at = score(session, &format!("ql:q:{queue}-scheduled"), &job.jid).await?
            }
            State::Throttled => {
                facts.queue = Some(session.client.queue(queue).await?);
                facts.held_back =
                    score(session, &format!("ql:q:{queue}-throttled"), &job.jid).await?.is_some();
                let own = format!("ql:q:{queue}");
                for id in job.throttles.iter().chain([&own]) {
                    let throttle = session.client.throttle_get(id).await?;
                    let maximum =
                        throttle.and_then(|throttle| throttle.get("maximum")?.as_u64()).unwrap_or(0);
                    let running = session.client.throttle_locks(id).await?.len();
                    facts.throttles.push((id.clone(), maximum, running));
                }
            }
            _ => {}
        }
        Ok(facts)
    }
}

/// Where in one of the queue's indexes a job stands, through the read-only view of the keys.
async fn score(session: &Session, key: &str, jid: &str) -> Result<Option<f64>, Failure> {
    Ok(match session.client.call_idempotent(&["ZSCORE", key, jid]).await? {
        Frame::Double(score) => Some(score),
        Frame::Bulk(text) => std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()),
        _ => None,
    })
}

fn told(job: &Known, facts: &Facts, now: f64) -> String {
    let mut pairs = vec![
        ("klass", job.klass.clone()),
        ("queue", job.queue.clone().unwrap_or_else(|| "-".to_owned())),
        ("state", job.state.to_string()),
        ("why", why(job, facts, now)),
        ("priority", job.priority.to_string()),
        ("retries", format!("{} of {} left", job.remaining, job.retries)),
        ("attempt", job.attempt.to_string()),
    ];
    let lists = [
        ("tags", &job.tags),
        ("waits for", &job.dependencies),
        ("waited for by", &job.dependents),
        ("throttles", &job.throttles),
    ];
    pairs.extend(
        lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(label, list)| (label, list.join(", "))),
    );
    if let Some(origin) = &job.spawned_from {
        pairs.push(("made by", format!("recurring job {origin}")));
    }
    if job.tracked {
        pairs.push(("tracked", "yes".to_owned()));
    }
    pairs.push(("data", cut(&indented(job.data.text()))));
    pairs.extend(job.result.as_ref().map(|result| ("result", cut(result))));
    if let Some(failure) = &job.failure {
        let label = if job.state == State::Failed { "failure" } else { "last failure" };
        let by = failure.worker.as_ref().map_or_else(String::new, |worker| format!(" by {worker}"));
        let when = relative(now, failure.when);
        pairs.push((label, format!("{}, {when}{by}\n{}", failure.group, cut(&failure.message))));
    }
    let history = job.history.iter().map(|entry| line(entry, now)).collect::<Vec<_>>().join("\n");
    pairs.push(("history", history));
    format!("{}\n{}", printable(&job.jid), fields(&pairs))
}

/// What keeps a job from running, or what runs it.
fn why(job: &Known, facts: &Facts, now: f64) -> String {
    let queue = job.queue.as_deref().unwrap_or_default();
    let paused = facts.queue.as_ref().is_some_and(|queue| queue.paused);
    match job.state {
        State::Waiting | State::Stalled | State::Throttled if paused && !facts.held_back => {
            format!("the queue is paused; `haul unpause {queue}` goes on")
        }
        State::Stalled => "its lock was taken away; the next pop takes it".to_owned(),
        State::Waiting => {
            let waiting = facts.queue.as_ref().map_or(1, |queue| queue.waiting);
            format!("ready; no worker has taken it yet ({} waiting in {queue})", counted(waiting, "job"))
        }
        State::Scheduled => match facts.due_at {
            Some(due_at) if due_at > now => format!("due {}", relative(now, due_at)),
            _ => "due; no worker has taken it yet".to_owned(),
        },
        State::Depends => format!("it waits for {}", counted(job.dependencies.len() as u64, "other job")),
        State::Throttled if facts.held_back => held_back(facts),
        State::Throttled => "let through by its throttle; no worker has taken it yet".to_owned(),
        State::Running => {
            let worker = job.worker.as_deref().unwrap_or("somebody");
            match job.expires {
                Some(expires) if expires > now => {
                    format!("held by {worker} for another {}", span(expires - now))
                }
                Some(expires) => {
                    format!(
                        "{worker} lost it: the lock ran out {}; the next pop takes it",
                        relative(now, expires)
                    )
                }
                None => format!("held by {worker}"),
            }
        }
        State::Failed => format!("given up; `haul retry {}` puts it back", job.jid),
        State::Complete => "done".to_owned(),
        _ => String::new(),
    }
}

fn held_back(facts: &Facts) -> String {
    let full = |(_, maximum, running): &&(String, u64, usize)| *maximum > 0 && *running as u64 >= *maximum;
    match facts.throttles.iter().find(full) {
        Some((id, maximum, running)) => {
            format!(
                "throttle {id} is full: {running} of {maximum} run; `haul throttle locks {id}` lists them"
            )
        }
        None => "held back by a throttle".to_owned(),
    }
}

/// One line of the history.
fn line(entry: &HistoryEntry, now: f64) -> String {
    let mut parts = vec![format!("{:>10}  {}", relative(now, entry.when), entry.what)];
    parts.extend(entry.queue.iter().map(|queue| format!("queue {queue}")));
    parts.extend(entry.worker.iter().map(|worker| format!("worker {worker}")));
    parts.extend(entry.more.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    }));
    parts.join("  ")
}

/// JSON on several lines, unless it is short.
fn indented(text: &str) -> String {
    const SHORT: usize = 72;
    if text.len() <= SHORT {
        return text.to_owned();
    }
    let value = serde_json::from_str::<Value>(text);
    value.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| text.to_owned())
}

fn cut(text: &str) -> String {
    match text.chars().count() {
        chars if chars > TEXT_CHARS_MAX => {
            format!(
                "{}\n({chars} characters; --json shows all)",
                super::output::shortened(text, TEXT_CHARS_MAX)
            )
        }
        _ => text.to_owned(),
    }
}

/// Print what a finished job left as its result
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul result job-1
  haul result job-1 > report.txt

Without a result the exit code is 4.")]
pub(super) struct Outcome {
    /// The job
    jid: String,
}

impl Outcome {
    pub(super) async fn run(self, session: &Session) -> Done {
        let jid = &self.jid;
        if let Some(result) = session.client.result(jid).await? {
            return session.out.say(&json!({"jid": jid, "result": result}), &result);
        }
        let state = session.job(jid).await?.state;
        if session.out.json {
            session.out.value(&json!({"jid": jid, "result": null}))?;
        }
        Err(Failure::Nothing(format!("job {jid} has left no result: it is {state}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str) -> Known {
        let text = format!(
            r#"{{"jid":"j","klass":"k","queue":"q","state":"{state}","worker":"w","expires":110,"dependencies":["a","b"],
               "history":[{{"when":40,"what":"put","q":"q"}},{{"when":100,"what":"hi","n":1}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn counts(paused: bool) -> Option<QueueCounts> {
        serde_json::from_value(json!({"name": "q", "waiting": 2, "paused": paused})).unwrap()
    }

    #[test]
    fn every_state_is_explained() {
        let none = Facts::default;
        let cases = [
            ("waiting", Facts { queue: counts(true), ..none() }, 100.0, "paused; `haul unpause q`"),
            (
                "waiting",
                Facts { queue: counts(false), ..none() },
                100.0,
                "ready; no worker has taken it yet (2 jobs",
            ),
            ("scheduled", Facts { due_at: Some(160.0), ..none() }, 100.0, "due in 1m"),
            ("scheduled", Facts { due_at: Some(90.0), ..none() }, 100.0, "due; no worker"),
            ("depends", none(), 100.0, "waits for 2 other jobs"),
            (
                "throttled",
                Facts { held_back: true, throttles: vec![("t".into(), 3, 3)], ..none() },
                100.0,
                "t is full: 3 of 3",
            ),
            ("throttled", none(), 100.0, "let through"),
            ("running", none(), 100.0, "held by w for another 10s"),
            ("running", none(), 120.0, "w lost it: the lock ran out 10s ago"),
            ("stalled", none(), 100.0, "lock was taken away"),
            ("failed", none(), 100.0, "`haul retry j`"),
            ("complete", none(), 100.0, "done"),
        ];
        for (state, facts, now, words) in cases {
            let text = why(&job(state), &facts, now);
            assert!(text.contains(words), "{state}: {text}");
        }
    }

    #[test]
    fn the_history_is_a_timeline() {
        let text = told(&job("waiting"), &Facts::default(), 100.0);
        assert!(text.contains("history        1m ago  put  queue q\n"), "{text}");
        assert!(text.contains("now  hi  n 1\n"), "{text}");
    }
}
