//! What a worker does, by hand or from a script: pop, heartbeat, complete, fail, release.

use std::time::Duration;

use haul_client::{Error, Heartbeat as Beat, Pop as PopCall};
use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::moment::span;
use super::output::{DATA_CHARS_MAX, Table, shortened};
use super::session::{Session, worker_name};
use super::value;

/// Take jobs from queues; they are yours until their locks run out
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul pop mail
  haul pop urgent mail --count 10 --worker w1 --lock 5m
  haul pop mail --wait 1h --json | jq -r '.[0].jid'

Queues are asked in the order given until there are enough jobs. Without a job the exit code is 4.")]
pub(super) struct Pop {
    /// The queues
    #[arg(required = true)]
    queues: Vec<String>,
    #[command(flatten)]
    worker: Worker,
    /// The most jobs to take
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
    /// Wait up to this long for the first job
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    wait: Option<Duration>,
    /// Hold the jobs this long, instead of the queue's own interval
    #[arg(long, value_name = "DURATION", value_parser = value::interval)]
    lock: Option<Duration>,
    /// One from each queue in turn, instead of emptying the first one first
    #[arg(long)]
    round_robin: bool,
}

/// Who works.
#[derive(clap::Args)]
struct Worker {
    /// The worker's name [default: cli@ and the machine's name]
    #[arg(long, env = "HAUL_WORKER", value_name = "NAME")]
    worker: Option<String>,
}

impl Worker {
    fn name(&self) -> String {
        worker_name(self.worker.as_deref())
    }
}

impl Pop {
    pub(super) async fn run(self, session: &Session) -> Done {
        let mut pop = PopCall::new(self.worker.name(), &self.queues).count(self.count);
        pop = self.wait.into_iter().fold(pop, PopCall::wait);
        pop = self.lock.into_iter().fold(pop, PopCall::lock);
        pop = if self.round_robin { pop.round_robin() } else { pop };
        let jobs = session.client.pop(&pop).await?;
        let mut table = Table::new(&["JID", "KLASS", "QUEUE", "PRIORITY", "ATTEMPT", "LOCK", "DATA"]);
        for job in &jobs {
            let lock =
                job.expires.map_or_else(|| "-".to_owned(), |expires| span(expires - crate::clock::now()));
            table.row([
                job.jid.clone(),
                job.klass.clone(),
                job.queue.clone().unwrap_or_default(),
                job.priority.to_string(),
                job.attempt.to_string(),
                lock,
                shortened(job.data.text(), DATA_CHARS_MAX),
            ]);
        }
        session.out.say(&jobs, &table.text_or(""))?;
        if jobs.is_empty() {
            return Err(Failure::Nothing(format!("no job to take in {}", self.queues.join(", "))));
        }
        Ok(())
    }
}

/// Say that jobs are still being worked on: renew their locks
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul heartbeat job-1
  haul heartbeat job-1 --worker w1 --lock 10m --data '{\"progress\":40}'
  haul heartbeat job-1 job-2 job-3 --worker w1")]
pub(super) struct Heartbeat {
    /// The jobs
    #[arg(required = true, value_name = "JID")]
    jids: Vec<String>,
    #[command(flatten)]
    worker: Worker,
    /// For this long, instead of the queue's own interval (one job only)
    #[arg(long, value_name = "DURATION", value_parser = value::interval)]
    lock: Option<Duration>,
    /// New data, JSON, for a later attempt to begin with (one job only)
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Only if it is still this attempt (one job only)
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
}

impl Heartbeat {
    pub(super) async fn run(self, session: &Session) -> Done {
        let worker = self.worker.name();
        let has_options = self.lock.is_some() || self.data.is_some() || self.attempt.is_some();
        let [jid] = self.jids.as_slice() else {
            one_job_only(has_options, "--lock, --data and --attempt")?;
            let outcomes = session.client.heartbeat_many(&worker, &self.jids).await?;
            let told = |lasts: &Duration| {
                (json!({"seconds": lasts.as_secs()}), format!("held for {}", span(lasts.as_secs_f64())))
            };
            return tell_each(session, &self.jids, &outcomes, told);
        };
        let mut beat = Beat::new(worker, jid);
        beat = self.lock.into_iter().fold(beat, Beat::lock);
        beat = self.attempt.into_iter().fold(beat, Beat::attempt);
        let data = value::optional_json(self.data.as_deref())?;
        beat = data.iter().fold(beat, Beat::data);
        let lasts = session.client.heartbeat(&beat).await?;
        let text = format!("{jid} is held for another {}", span(lasts.as_secs_f64()));
        session.out.say(&json!({"jid": jid, "seconds": lasts.as_secs()}), &text)
    }
}

/// Say that jobs are done
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul complete job-1 --result sent
  haul complete job-1 --worker w1 --result @report.txt
  haul complete job-1 --next archive --delay 1h
  haul complete job-1 job-2 job-3 --worker w1")]
pub(super) struct Complete {
    /// The jobs
    #[arg(required = true, value_name = "JID")]
    jids: Vec<String>,
    #[command(flatten)]
    worker: Worker,
    /// What came of it, any text; - reads standard input, @FILE a file (one job only)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    result: Option<String>,
    /// New data, JSON (one job only)
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Go on in this queue, instead of being done (one job only)
    #[arg(long, value_name = "QUEUE")]
    next: Option<String>,
    /// In the next queue, not before this long from now
    #[arg(long, value_name = "DURATION", value_parser = value::duration, requires = "next")]
    delay: Option<Duration>,
    /// In the next queue, not before this job is complete; may be repeated
    #[arg(long, value_name = "JID", requires = "next")]
    depends: Vec<String>,
    /// Only if it is still this attempt (one job only)
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
}

impl Complete {
    pub(super) async fn run(self, session: &Session) -> Done {
        let worker = self.worker.name();
        let [jid] = self.jids.as_slice() else {
            let has_options =
                self.result.is_some() || self.data.is_some() || self.next.is_some() || self.attempt.is_some();
            one_job_only(has_options, "--result, --data, --next and --attempt")?;
            let outcomes = session.client.complete_many(&worker, &self.jids).await?;
            return tell_each(session, &self.jids, &outcomes, |state| {
                (json!({"state": state}), state.to_string())
            });
        };
        let mut complete = haul_client::Complete::new(worker, jid);
        if let Some(result) = &self.result {
            complete = complete.result(value::text(result)?);
        }
        let data = value::optional_json(self.data.as_deref())?;
        complete = data.iter().fold(complete, haul_client::Complete::data);
        complete = self.next.into_iter().fold(complete, haul_client::Complete::next);
        complete = self.delay.into_iter().fold(complete, haul_client::Complete::delay);
        complete = self.depends.into_iter().fold(complete, haul_client::Complete::depends);
        complete = self.attempt.into_iter().fold(complete, haul_client::Complete::attempt);
        let state = session.client.complete(&complete).await?;
        session.out.say(&json!({"jid": jid, "state": state}), &format!("{jid} is {state}"))
    }
}

/// Say that a job has failed: nobody tries it again until it is put back
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul fail job-1 smtp-down 'connection refused by mx1'
  haul fail job-1 crashed @trace.txt --worker w1

`haul failed` lists failures by their groups; `haul retry job-1` puts the job back.")]
pub(super) struct Fail {
    /// The job
    jid: String,
    /// The kind of failure; failures are counted by it
    group: String,
    /// What happened this time; - reads standard input, @FILE a file
    message: String,
    #[command(flatten)]
    worker: Worker,
    /// New data, JSON
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Only if it is still this attempt
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
}

impl Fail {
    pub(super) async fn run(self, session: &Session) -> Done {
        let message = value::text(&self.message)?;
        let mut fail = haul_client::Fail::new(self.worker.name(), &self.jid, &self.group, message);
        let data = value::optional_json(self.data.as_deref())?;
        fail = data.iter().fold(fail, haul_client::Fail::data);
        fail = self.attempt.into_iter().fold(fail, haul_client::Fail::attempt);
        session.client.fail(&fail).await?;
        let text = format!("{} has failed with {}", self.jid, self.group);
        session.out.say(&json!({"jid": self.jid, "state": "failed", "group": self.group}), &text)
    }
}

/// Take the locks of running jobs away, whoever holds them: they are next in line
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul release job-1
  haul release job-1 job-2")]
pub(super) struct Release {
    /// The jobs
    #[arg(required = true, value_name = "JID")]
    jids: Vec<String>,
}

impl Release {
    /// One by one: the server stops at the first it refuses, with those before it released.
    pub(super) async fn run(self, session: &Session) -> Done {
        let mut outcomes = Vec::new();
        for jid in &self.jids {
            match session.client.release([jid]).await {
                Err(error) if error.code().is_none() => return Err(error.into()),
                outcome => outcomes.push(outcome),
            }
        }
        tell_each(session, &self.jids, &outcomes, |()| (json!({"released": true}), "next in line".to_owned()))
    }
}

fn one_job_only(has_options: bool, options: &str) -> Done {
    if has_options { Err(Failure::Usage(format!("{options} go with a single job"))) } else { Ok(()) }
}

/// What became of each job: a line each for people, an array for scripts; refused if any was. A single refusal is told
/// as what it is.
fn tell_each<T>(
    session: &Session,
    jids: &[String],
    outcomes: &[Result<T, Error>],
    told: impl Fn(&T) -> (Value, String),
) -> Done {
    if let ([Err(error)], 1) = (outcomes, jids.len()) {
        return Err(error.clone().into());
    }
    let mut values = Vec::new();
    let mut table = Table::new(&["JID", "OUTCOME"]);
    for (jid, outcome) in jids.iter().zip(outcomes) {
        let (mut value, text) = match outcome {
            Ok(outcome) => told(outcome),
            Err(error) => {
                let code = error.code().unwrap_or("ERR");
                (json!({"refused": code}), format!("refused: {}", error.to_string().trim()))
            }
        };
        if let Some(members) = value.as_object_mut() {
            members.insert("jid".to_owned(), json!(jid));
        }
        values.push(value);
        table.row([jid.clone(), text]);
    }
    session.out.say(&values, &table.text())?;
    let refusals: Vec<&str> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()?.code()).collect();
    match refusals.first() {
        None => Ok(()),
        Some(_) => Err(Failure::Refused {
            code: "REFUSED",
            message: format!(
                "{} of {} jobs were refused ({})",
                refusals.len(),
                jids.len(),
                refusals.join(", ")
            ),
            next: "`haul job` shows where each of them stands".to_owned(),
        }),
    }
}
