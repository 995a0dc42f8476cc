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

/// Put jobs again and again, at an interval
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur add reports daily '{\"for\":\"boss\"}' --every 1d --jid daily-report
  haul recur list
  haul recur show daily-report
  haul recur remove daily-report")]
pub(super) struct Recur {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Add(Add),
    List(List),
    Show(Show),
    Remove(Remove),
}

impl Recur {
    pub(super) async fn run(self, session: &Session) -> Done {
        match self.verb {
            Verb::Add(add) => add.run(session).await,
            Verb::List(list) => list.run(session).await,
            Verb::Show(show) => show.run(session).await,
            Verb::Remove(remove) => remove.run(session).await,
        }
    }
}

/// Add a recurring job, or redefine one; prints its id
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul recur add reports daily --every 1d --jid daily-report
  haul recur add mail poll '{\"box\":1}' --every 30s --offset 10s --backlog 3")]
struct Add {
    /// The queue the jobs are put into
    queue: String,
    /// The kind of job
    klass: String,
    /// JSON; - reads standard input, @FILE a file
    #[arg(default_value = "null", allow_negative_numbers = true)]
    data: String,
    /// One job every so often: 90s, 5m, 2h, 1d
    #[arg(long, value_name = "DURATION", value_parser = value::interval)]
    every: Duration,
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
    /// How many missed ones are made up for [default: 0, all of them]
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
        let mut recur = RecurCall::new(put, self.every);
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
                span(number(recur, "interval")),
                session.ago(number(recur, "next")),
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
            ("every", span(number(&recur, "interval"))),
            ("next", session.ago(number(&recur, "next"))),
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
