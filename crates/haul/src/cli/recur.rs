//! `haul recur`: jobs that put themselves again and again.

use std::time::Duration;

use haul_client::{Put, Range, Recur as RecurCall};
use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::moment::span;
use super::output::{Table, fields};
use super::session::Session;
use super::value;

/// Recurring jobs listed of one queue, at most.
const LIST_COUNT_MAX: u64 = 10_000;

/// Put jobs again and again, at an interval or as cron says
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur add reports daily '{\"for\":\"boss\"}' --every 1d --jid daily-report
  haul recur add reports daily --cron '30 9 * * mon-fri' --timezone Europe/Berlin
  haul recur list
  haul recur show daily-report
  haul recur run daily-report
  haul recur pause daily-report
  haul recur remove daily-report")]
pub(super) struct Recur {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Add(Box<Add>),
    List(List),
    Show(Show),
    Run(Run),
    Pause(Pause),
    Resume(Resume),
    Remove(Remove),
}

impl Recur {
    pub(super) async fn run(self, session: &Session) -> Done {
        match self.verb {
            Verb::Add(add) => add.run(session).await,
            Verb::List(list) => list.run(session).await,
            Verb::Show(show) => show.run(session).await,
            Verb::Run(run) => run.run(session).await,
            Verb::Pause(pause) => pause.run(session).await,
            Verb::Resume(resume) => resume.run(session).await,
            Verb::Remove(remove) => remove.run(session).await,
        }
    }
}

/// Add a recurring job, or redefine one; prints its id
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur add reports daily --every 1d --jid daily-report
  haul recur add mail poll '{\"box\":1}' --every 30s --offset 10s --backlog 3
  haul recur add reports daily --cron '30 9 * * mon-fri' --timezone Europe/Berlin --jid weekday-report

A cron pattern is: minute, hour, day of month, month, day of week; with seconds in front if there are six parts; or a
word: @hourly, @daily, @weekly, @monthly, @yearly.")]
struct Add {
    /// The queue the jobs are put into
    queue: String,
    /// The kind of job
    klass: String,
    /// JSON; - reads standard input, @FILE a file
    #[arg(default_value = "null", allow_negative_numbers = true)]
    data: String,
    /// One job every so often: 90s, 5m, 2h, 1d
    #[arg(long, value_name = "DURATION", value_parser = value::interval, required_unless_present = "cron")]
    every: Option<Duration>,
    /// One job whenever this pattern says so: '30 9 * * mon-fri'
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["every", "offset"])]
    cron: Option<String>,
    /// The time zone of the pattern [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    timezone: Option<String>,
    /// Its id; the jobs it makes are called ID-1, ID-2, ...
    #[arg(long)]
    jid: Option<String>,
    /// The first one this long from now
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    offset: Option<Duration>,
    /// A larger one runs sooner
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// How often each may be tried again [default: 5]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// How many missed ones are made up for; 0: all of them [default: 0; with --cron 1]
    #[arg(long, value_name = "N")]
    backlog: Option<u32>,
    /// A tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// A throttle they are subject to; may be repeated
    #[arg(long = "throttle", value_name = "ID")]
    throttles: Vec<String>,
}

impl Add {
    async fn run(self, session: &Session) -> Done {
        let mut put = Put::new(self.queue, self.klass, &value::json(&self.data)?);
        put = self.jid.into_iter().fold(put, Put::jid);
        put = self.priority.into_iter().fold(put, Put::priority);
        put = self.retries.into_iter().fold(put, Put::retries);
        put = self.tags.into_iter().fold(put, Put::tag);
        put = self.throttles.into_iter().fold(put, Put::throttle);
        let mut recur = match (self.cron, self.every) {
            (Some(pattern), _) => RecurCall::cron(put, pattern),
            (None, every) => RecurCall::new(put, every.unwrap_or_default()),
        };
        recur = self.timezone.into_iter().fold(recur, RecurCall::timezone);
        recur = self.offset.into_iter().fold(recur, RecurCall::offset);
        recur = self.backlog.into_iter().fold(recur, RecurCall::backlog);
        let jid = session.client.recur(&recur).await?;
        session.out.say(&json!({"jid": jid}), &jid)
    }
}

/// List recurring jobs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur list
  haul recur list --queue reports --json")]
struct List {
    /// Only those of this queue
    #[arg(long)]
    queue: Option<String>,
}

impl List {
    async fn run(self, session: &Session) -> Done {
        let queues = match self.queue {
            Some(queue) => vec![queue],
            None => {
                let all = session.client.queues().await?;
                all.into_iter().filter(|queue| queue.recurring > 0).map(|queue| queue.name).collect()
            }
        };
        let mut found = Vec::new();
        for queue in &queues {
            let range = Range { offset: 0, count: LIST_COUNT_MAX };
            for jid in session.client.recurring(queue, range).await? {
                found.extend(session.client.get_recur(&jid).await?);
            }
        }
        let mut table = Table::new(&["JID", "KLASS", "QUEUE", "EVERY", "NEXT", "MADE"]);
        for recur in &found {
            table.row([
                text(recur, "jid"),
                text(recur, "klass"),
                text(recur, "queue"),
                how_often(recur),
                next(session, recur),
                text(recur, "count"),
            ]);
        }
        session.out.say(&found, &table.text_or("there is no recurring job; `haul recur add` makes one"))
    }
}

/// Show a recurring job
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur show daily-report
  haul recur show daily-report --json")]
struct Show {
    /// The recurring job
    jid: String,
}

impl Show {
    async fn run(self, session: &Session) -> Done {
        let recur = session.client.get_recur(&self.jid).await?.ok_or_else(|| Failure::no_recur(&self.jid))?;
        let pairs = [
            ("klass", text(&recur, "klass")),
            ("queue", text(&recur, "queue")),
            ("runs", how_often(&recur)),
            ("next", next(session, &recur)),
            ("then", later(session, &recur)),
            ("made", text(&recur, "count")),
            ("backlog", text(&recur, "backlog")),
            ("priority", text(&recur, "priority")),
            ("retries", text(&recur, "retries")),
            ("tags", text(&recur, "tags")),
            ("throttles", text(&recur, "throttles")),
            ("data", text(&recur, "data")),
        ];
        session.out.say(&recur, &format!("{}\n{}", self.jid, fields(&pairs)))
    }
}

/// Make one of a recurring job's jobs now; prints its id
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur run daily-report

When the next one comes by itself stays as it is.")]
struct Run {
    /// The recurring job
    jid: String,
}

impl Run {
    async fn run(self, session: &Session) -> Done {
        let jid = session.client.run_recur(&self.jid).await?;
        session.out.say(&json!({"jid": jid}), &jid)
    }
}

/// Have a recurring job make no jobs until it is resumed
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur pause daily-report
  haul recur resume daily-report")]
struct Pause {
    /// The recurring job
    jid: String,
}

impl Pause {
    async fn run(self, session: &Session) -> Done {
        session.client.pause_recur(&self.jid, true).await?;
        let words = format!("{} is paused; `haul recur resume {}` lets it go on", self.jid, self.jid);
        session.out.say(&json!({"jid": self.jid, "paused": true}), &words)
    }
}

/// Let a paused recurring job go on; what was missed is not made up for
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur resume daily-report")]
struct Resume {
    /// The recurring job
    jid: String,
}

impl Resume {
    async fn run(self, session: &Session) -> Done {
        session.client.pause_recur(&self.jid, false).await?;
        session.out.say(&json!({"jid": self.jid, "paused": false}), &format!("{} goes on", self.jid))
    }
}

/// End a recurring job; the jobs it has made stay
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur remove daily-report
  haul recur remove daily-report --json")]
struct Remove {
    /// The recurring job
    jid: String,
}

impl Remove {
    async fn run(self, session: &Session) -> Done {
        if !session.client.unrecur(&self.jid).await? {
            return Err(Failure::no_recur(&self.jid));
        }
        session.out.say(&json!({"jid": self.jid, "removed": true}), &format!("{} recurs no more", self.jid))
    }
}

/// The interval, or the schedule in words.
fn how_often(recur: &Value) -> String {
    match recur.get("words").and_then(Value::as_str) {
        Some(words) => words.to_owned(),
        None => format!("every {}", span(number(recur, "interval"))),
    }
}

fn next(session: &Session, recur: &Value) -> String {
    if recur.get("paused") == Some(&Value::Bool(true)) {
        return "paused".to_owned();
    }
    recur.get("next").and_then(Value::as_f64).map_or_else(|| "never".to_owned(), |at| session.ago(at))
}

/// When it comes after the next time.
fn later(session: &Session, recur: &Value) -> String {
    let upcoming = recur.get("upcoming").and_then(Value::as_array).into_iter().flatten().skip(1);
    upcoming.filter_map(Value::as_f64).map(|at| session.ago(at)).collect::<Vec<_>>().join(", ")
}

fn number(recur: &Value, key: &str) -> f64 {
    recur.get(key).and_then(Value::as_f64).unwrap_or(0.0)
}

fn text(recur: &Value, key: &str) -> String {
    match recur.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if key != "data" => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
