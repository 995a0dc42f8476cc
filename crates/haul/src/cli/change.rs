//! Changing jobs from outside: cancel, move, priority, log, depends.

use std::time::Duration;

use serde_json::json;

use super::failure::{Done, Failure};
use super::output::counted;
use super::session::Session;
use super::value;

/// Remove jobs, running ones too; all or none
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul cancel job-1
  haul cancel job-1 job-2      a job and the one that waits for it

A finished job is history, not cancelled: it is purged by age (the options jobs-history and jobs-history-count).")]
pub(super) struct Cancel {
    /// The jobs
    #[arg(required = true, value_name = "JID")]
    jids: Vec<String>,
}

impl Cancel {
    pub(super) async fn run(self, session: &Session) -> Done {
        let cancelled = session.client.cancel(&self.jids).await?;
        let asked = self.jids.len() as u64;
        if cancelled == 0 {
            let message = format!("there is nothing to cancel: {} gone or complete", self.jids.join(", "));
            return Err(Failure::Refused {
                code: "NOJOB",
                message,
                next: "`haul job` shows one that is complete".to_owned(),
            });
        }
        let text = match asked - cancelled {
            0 => format!("{} cancelled", counted(cancelled, "job")),
            rest => format!(
                "{} cancelled; {rest} of those named were gone or complete",
                counted(cancelled, "job")
            ),
        };
        session.out.say(&json!({"cancelled": cancelled}), &text)
    }
}

/// Put a job into another queue, or into the same again; takes its lock away
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul move job-1 slow
  haul move job-1 mail --delay 1h --priority -5 --retries 3
  haul move job-1 mail --depends job-0

What is not named stays as it is.")]
pub(super) struct Move {
    /// The job
    jid: String,
    /// The queue
    queue: String,
    /// A larger one runs sooner
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Not before this long from now
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    delay: Option<Duration>,
    /// How often it may be tried again
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Its tags, instead of those it has; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Not before this job is complete; may be repeated
    #[arg(long, value_name = "JID")]
    depends: Vec<String>,
}

impl Move {
    pub(super) async fn run(self, session: &Session) -> Done {
        let mut to = haul_client::Move::new(&self.jid, &self.queue);
        to = self.priority.into_iter().fold(to, haul_client::Move::priority);
        to = self.delay.into_iter().fold(to, haul_client::Move::delay);
        to = self.retries.into_iter().fold(to, haul_client::Move::retries);
        to = self.tags.into_iter().fold(to, haul_client::Move::tag);
        to = self.depends.into_iter().fold(to, haul_client::Move::depends);
        session.client.move_job(&to).await?;
        let text = format!("{} is in {}", self.jid, self.queue);
        session.out.say(&json!({"jid": self.jid, "queue": self.queue}), &text)
    }
}

/// Change how soon a job runs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul priority job-1 10
  haul priority job-1 -5")]
pub(super) struct Priority {
    /// The job
    jid: String,
    /// A larger one runs sooner
    #[arg(allow_negative_numbers = true)]
    priority: i64,
}

impl Priority {
    pub(super) async fn run(self, session: &Session) -> Done {
        session.client.priority(&self.jid, self.priority).await?;
        let text = format!("{} has priority {}", self.jid, self.priority);
        session.out.say(&json!({"jid": self.jid, "priority": self.priority}), &text)
    }
}

/// Add a line to a job's history
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul log job-1 'half of it is done'
  haul log job-1 uploaded --data '{\"bytes\":1024}'")]
pub(super) struct Log {
    /// The job
    jid: String,
    /// The line
    message: String,
    /// A JSON object or array to keep with it; - reads standard input, @FILE a file
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
}

impl Log {
    pub(super) async fn run(self, session: &Session) -> Done {
        match value::optional_json(self.data.as_deref())? {
            None => session.client.log(&self.jid, &self.message).await?,
            Some(data) => session.client.log_with(&self.jid, &self.message, &data).await?,
        }
        session.out.say(
            &json!({"jid": self.jid, "logged": self.message}),
            &format!("noted in the history of {}", self.jid),
        )
    }
}

/// Change which jobs a waiting job waits for
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul depends job-2 --on job-0 job-1
  haul depends job-2 --off job-0
  haul depends job-2 --off-all

Only a job that waits for others can be changed; `haul move JID QUEUE --depends OTHER` makes one wait.")]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(super) struct Depends {
    /// The job
    jid: String,
    /// Wait for these too
    #[arg(long, value_name = "JID", num_args = 1.., group = "which")]
    on: Vec<String>,
    /// No longer wait for these
    #[arg(long, value_name = "JID", num_args = 1.., group = "which")]
    off: Vec<String>,
    /// No longer wait for any
    #[arg(long, group = "which")]
    off_all: bool,
}

impl Depends {
    pub(super) async fn run(self, session: &Session) -> Done {
        if self.off_all {
            session.client.depends_off_all(&self.jid).await?;
        } else if self.on.is_empty() {
            session.client.depends_off(&self.jid, &self.off).await?;
        } else {
            session.client.depends_on(&self.jid, &self.on).await?;
        }
        let job = session.job(&self.jid).await?;
        let text = match job.dependencies.as_slice() {
            [] => format!("{} waits for no other job: it is {}", job.jid, job.state),
            some => format!("{} waits for {}", job.jid, some.join(", ")),
        };
        session.out.say(&json!({"jid": job.jid, "state": job.state, "dependencies": job.dependencies}), &text)
    }
}
