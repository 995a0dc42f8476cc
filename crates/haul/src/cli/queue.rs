//! Queues: counts, length, statistics, pausing, forgetting.

use haul_client::QueueCounts;
use serde_json::{Value, json};

use super::failure::Done;
use super::moment::span;
use super::output::{Table, counted};
use super::session::Session;
use super::value;

/// Count the jobs of every queue by state
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul queues
  haul queues mail --json")]
pub(super) struct Queues {
    /// Only this queue
    queue: Option<String>,
}

impl Queues {
    pub(super) async fn run(self, session: &Session) -> Done {
        match &self.queue {
            Some(queue) => {
                let counts = session.client.queue(queue).await?;
                session.out.say(&counts, &table(std::slice::from_ref(&counts)).text())
            }
            None => {
                let all = session.client.queues().await?;
                session.out.say(&all, &table(&all).text_or("there is no queue yet; `haul put` makes one"))
            }
        }
    }
}

fn table(queues: &[QueueCounts]) -> Table {
    let heading = [
        "QUEUE",
        "WAITING",
        "RUNNING",
        "STALLED",
        "SCHEDULED",
        "DEPENDS",
        "THROTTLED",
        "RECURRING",
        "PAUSED",
    ];
    let mut table = Table::new(&heading);
    for queue in queues {
        let counts = [
            queue.waiting,
            queue.running,
            queue.stalled,
            queue.scheduled,
            queue.depends,
            queue.throttled,
            queue.recurring,
        ];
        let paused = if queue.paused { "yes" } else { "no" };
        let cells = counts.iter().map(u64::to_string);
        table.row(std::iter::once(queue.name.clone()).chain(cells).chain([paused.to_owned()]));
    }
    table
}

/// Count all jobs of a queue
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul length mail
  while [ $(haul length mail) -gt 0 ]; do sleep 1; done")]
pub(super) struct Length {
    /// The queue
    queue: String,
}

impl Length {
    pub(super) async fn run(self, session: &Session) -> Done {
        let length = session.client.length(&self.queue).await?;
        session.out.say(&json!({"queue": self.queue, "length": length}), &length.to_string())
    }
}

/// Show how long a queue's jobs waited and ran on one day, and how many failed
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul stats mail
  haul stats mail --date 2024-05-31 --json")]
pub(super) struct Stats {
    /// The queue
    queue: String,
    /// The day (UTC), as 2024-05-31 [default: today]
    #[arg(long, value_name = "DAY", value_parser = value::date)]
    date: Option<u64>,
}

impl Stats {
    pub(super) async fn run(self, session: &Session) -> Done {
        let stats = session.client.stats(&self.queue, self.date).await?;
        let mut series = Table::new(&["", "JOBS", "MEAN", "STD"]);
        for (key, label) in [("wait", "waited"), ("run", "ran")] {
            let number = |name: &str| {
                stats.get(key).and_then(|part| part.get(name)).and_then(Value::as_f64).unwrap_or(0.0)
            };
            series.row([
                label.to_owned(),
                number("count").to_string(),
                span(number("mean")),
                span(number("std")),
            ]);
        }
        let count = |name: &str| stats.get(name).and_then(Value::as_u64).unwrap_or(0);
        let text = format!(
            "{}{}, {}; {} of the day still failed\n",
            series.text(),
            counted(count("failures"), "failure"),
            if count("retries") == 1 {
                "1 retry".to_owned()
            } else {
                format!("{} retries", count("retries"))
            },
            counted(count("failed"), "job"),
        );
        session.out.say(&stats, &text)
    }
}

/// Stop handing out the jobs of queues
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul pause mail
  haul pause mail reports

Jobs that run go on; puts are still taken.")]
pub(super) struct Pause {
    /// The queues
    #[arg(required = true)]
    queues: Vec<String>,
}

impl Pause {
    pub(super) async fn run(self, session: &Session) -> Done {
        session.client.pause(&self.queues).await?;
        let text = format!("paused: {}; `haul unpause` goes on", self.queues.join(", "));
        session.out.say(&json!({"paused": self.queues}), &text)
    }
}

/// Hand out the jobs of paused queues again
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul unpause mail
  haul unpause mail reports")]
pub(super) struct Unpause {
    /// The queues
    #[arg(required = true)]
    queues: Vec<String>,
}

impl Unpause {
    pub(super) async fn run(self, session: &Session) -> Done {
        session.client.unpause(&self.queues).await?;
        session.out.say(&json!({"unpaused": self.queues}), &format!("unpaused: {}", self.queues.join(", ")))
    }
}

/// Take queues off the list of queues; their jobs stay
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul forget old-queue
  haul forget old-queue older-queue")]
pub(super) struct Forget {
    /// The queues
    #[arg(required = true)]
    queues: Vec<String>,
}

impl Forget {
    pub(super) async fn run(self, session: &Session) -> Done {
        session.client.forget(&self.queues).await?;
        session.out.say(&json!({"forgotten": self.queues}), &format!("forgotten: {}", self.queues.join(", ")))
    }
}
