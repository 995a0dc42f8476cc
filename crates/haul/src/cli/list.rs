//! Lists of jobs: by state, next in line, failed.

use haul_client::{Jobs as JobsCall, QueueCounts, Range, State};
use serde_json::json;

use super::failure::{Done, Failure};
use super::output::{Table, counted};
use super::session::Session;

/// Which part of a list.
#[derive(clap::Args, Clone, Copy)]
pub(super) struct Part {
    /// How many to skip
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// How many to list at most
    #[arg(long, value_name = "N", default_value_t = 25)]
    count: u64,
}

impl Part {
    pub(super) fn range(self) -> Range {
        Range { offset: self.offset, count: self.count }
    }
}

/// List jobs by their state
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul jobs running
  haul jobs waiting --queue mail --count 100
  haul jobs complete --json

States: waiting, scheduled, depends, throttled, running, stalled, complete. Failed jobs are listed by `haul failed`,
recurring ones by `haul recur list`.")]
pub(super) struct Jobs {
    /// The state
    #[arg(value_parser = listed_state)]
    state: State,
    /// Only those of this queue
    #[arg(long)]
    queue: Option<String>,
    #[command(flatten)]
    part: Part,
}

fn listed_state(text: &str) -> Result<State, String> {
    let states = [
        State::Waiting,
        State::Scheduled,
        State::Depends,
        State::Throttled,
        State::Running,
        State::Stalled,
        State::Complete,
    ];
    match (text, states.into_iter().find(|state| state.as_str() == text)) {
        (_, Some(state)) => Ok(state),
        ("failed", None) => Err("failed jobs are listed by their group: haul failed".to_owned()),
        ("recurring", None) => Err("recurring jobs are listed by: haul recur list".to_owned()),
        _ => Err(format!("one of {}", states.map(State::as_str).join(", "))),
    }
}

impl Jobs {
    pub(super) async fn run(self, session: &Session) -> Done {
        let jids = match &self.queue {
            None if self.state != State::Complete => self.of_all_queues(session).await?,
            _ => {
                let call = JobsCall::new(self.state).range(self.part.range());
                session.client.jobs(&self.queue.iter().fold(call, JobsCall::queue)).await?
            }
        };
        let jobs = session.jobs(&jids).await?;
        let nothing = format!("no job is {}", self.state);
        session.out.say(&jobs, &session.job_table(&jobs).text_or(&nothing))
    }

    /// The server lists one queue at a time: the offset skips whole queues by their counts.
    async fn of_all_queues(&self, session: &Session) -> Result<Vec<String>, Failure> {
        let Range { mut offset, mut count } = self.part.range();
        let mut jids = Vec::new();
        for queue in session.client.queues().await? {
            let there = count_in(&queue, self.state);
            if offset >= there {
                offset -= there;
            } else if count > 0 {
                let call = JobsCall::new(self.state).queue(&queue.name).range(Range { offset, count });
                let some = session.client.jobs(&call).await?;
                (offset, count) = (0, count.saturating_sub(some.len() as u64));
                jids.extend(some);
            }
        }
        Ok(jids)
    }
}

fn count_in(queue: &QueueCounts, state: State) -> u64 {
    match state {
        State::Waiting => queue.waiting,
        State::Scheduled => queue.scheduled,
        State::Depends => queue.depends,
        State::Throttled => queue.throttled,
        State::Running => queue.running,
        State::Stalled => queue.stalled,
        _ => 0,
    }
}

/// Show which jobs a queue would hand out next, without taking them
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul peek mail
  haul peek mail --count 10 --json")]
pub(super) struct Peek {
    /// The queue
    queue: String,
    /// The most jobs to show
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
}

impl Peek {
    pub(super) async fn run(self, session: &Session) -> Done {
        let jobs = session.client.peek(&self.queue, self.count).await?;
        session.out.say(&jobs, &session.job_table(&jobs).text_or(""))?;
        if jobs.is_empty() {
            return Err(Failure::Nothing(format!("no job is next in {}", self.queue)));
        }
        Ok(())
    }
}

/// Count failed jobs by group, or list those of one group
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul failed
  haul failed smtp-down --count 100

`haul retry JID` or `haul retry --group GROUP --queue QUEUE` puts them back.")]
pub(super) struct Failed {
    /// The group
    group: Option<String>,
    #[command(flatten)]
    part: Part,
}

impl Failed {
    pub(super) async fn run(self, session: &Session) -> Done {
        let Some(group) = &self.group else {
            let groups = session.client.failed_groups().await?;
            let mut table = Table::new(&["GROUP", "JOBS"]);
            for (group, count) in &groups {
                table.row([group.clone(), count.to_string()]);
            }
            return session.out.say(&groups, &table.text_or("no job has failed"));
        };
        let listing = session.client.failed(group, self.part.range()).await?;
        let jobs = session.jobs(&listing.jobs).await?;
        let mut table = Table::new(&["JID", "KLASS", "QUEUE", "FAILED", "WORKER", "MESSAGE"]);
        for job in &jobs {
            let failure = job.failure.as_ref();
            let first_line = failure.and_then(|failure| failure.message.lines().next()).unwrap_or_default();
            table.row([
                job.jid.clone(),
                job.klass.clone(),
                job.queue.clone().unwrap_or_default(),
                failure.map_or_else(String::new, |failure| session.ago(failure.when)),
                failure.and_then(|failure| failure.worker.clone()).unwrap_or_else(|| "-".to_owned()),
                super::output::shortened(first_line, 60),
            ]);
        }
        let text = match jobs.len() as u64 {
            shown if shown < listing.total => {
                format!("{}{shown} of {}\n", table.text_or(""), counted(listing.total, "job"))
            }
            _ => table.text_or(&format!("no job has failed with {group}")),
        };
        session.out.say(&json!({"total": listing.total, "jobs": jobs}), &text)
    }
}
