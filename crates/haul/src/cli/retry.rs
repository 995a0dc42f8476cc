//! `haul retry` and `haul unfail`: work that gets another try.
//!
//! A failed job is put back by its id or by its failure's group. A running one is given back only in the name of the
//! worker that holds it: taking it away from somebody is `haul release`.

use std::time::Duration;

use haul_client::{Move, Range, State};
use serde_json::json;

use super::failure::{Done, Failure};
use super::output::counted;
use super::session::Session;
use super::value;

/// Jobs put back by one call.
const UNFAIL_COUNT: u64 = 1000;

/// Put a failed job back into its queue, or give back a running one
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul retry job-1                          put a failed job back into its queue
  haul retry job-1 --delay 10m              not before ten minutes from now
  haul retry --group smtp-down --queue mail put back all that failed with smtp-down
  haul retry job-1 --worker w1              w1 gives back a job it is running, using up one retry

To take a running job away from its worker use `haul release`.")]
pub(super) struct Retry {
    /// The job
    #[arg(required_unless_present = "group", conflicts_with = "group")]
    jid: Option<String>,
    /// Put back every job that failed with this group
    #[arg(long, requires = "queue")]
    group: Option<String>,
    /// The queue they go to [default: the job's own]
    #[arg(long, conflicts_with = "worker")]
    queue: Option<String>,
    /// With --group: the most jobs to put back, oldest first [default: all]
    #[arg(long, value_name = "N", requires = "group")]
    count: Option<u64>,
    /// Not before this long from now
    #[arg(long, value_name = "DURATION", value_parser = value::duration, conflicts_with = "group")]
    delay: Option<Duration>,
    /// Give back the job this worker is running
    #[arg(long, value_name = "NAME", conflicts_with = "group")]
    worker: Option<String>,
    /// With --worker: only if it is still this attempt
    #[arg(long, value_name = "N", requires = "worker")]
    attempt: Option<u64>,
}

/// Put failed jobs of a group back into a queue; the same as retry --group
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul unfail smtp-down mail
  haul unfail smtp-down mail --count 10")]
pub(super) struct Unfail {
    /// The failure's group; `haul failed` lists them
    group: String,
    /// The queue they go to
    queue: String,
    /// The most jobs to put back, oldest first [default: all]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl Retry {
    pub(super) async fn run(self, session: &Session) -> Done {
        match (&self.jid, &self.group, &self.queue) {
            (_, Some(group), Some(queue)) => unfail(session, group, queue, self.count).await,
            (Some(jid), _, _) if self.worker.is_some() => self.give_back(session, jid).await,
            (Some(jid), _, _) => self.put_back(session, jid).await,
            _ => Err(Failure::Usage("name a job, or a --group and a --queue".to_owned())),
        }
    }

    /// Two calls: a job that somebody else puts back between them is put back twice, which takes it from a worker that
    /// was faster than this. The second attempt cannot overlap unnoticed: the first one's lock is gone.
    async fn put_back(&self, session: &Session, jid: &str) -> Done {
        let job = session.job(jid).await?;
        if job.state != State::Failed {
            return Err(Failure::Refused {
                code: "NOTFAILED",
                message: format!("job {jid} has not failed: it is {}", job.state),
                next: advice(job.state, jid),
            });
        }
        let queue = self.queue.clone().or(job.queue).unwrap_or_default();
        let mut to = Move::new(jid, &queue);
        to = self.delay.into_iter().fold(to, Move::delay);
        session.client.move_job(&to).await?;
        session.out.say(&json!({"jid": jid, "queue": queue}), &format!("{jid} is back in {queue}"))
    }

    async fn give_back(&self, session: &Session, jid: &str) -> Done {
        let mut retry = haul_client::Retry::new(self.worker.clone().unwrap_or_default(), jid);
        retry = self.delay.into_iter().fold(retry, haul_client::Retry::delay);
        retry = self.attempt.into_iter().fold(retry, haul_client::Retry::attempt);
        let left = session.client.retry(&retry).await?;
        let text = match left {
            Some(left) => {
                format!("{jid} is given back; it can be tried again {}", counted(left, "more time"))
            }
            None => format!("{jid} had no retries left: it has failed"),
        };
        session.out.say(&json!({"jid": jid, "retries_left": left}), &text)
    }
}

/// What to do instead of putting back a job that has not failed.
fn advice(state: State, jid: &str) -> String {
    match state {
        State::Running => format!(
            "`haul release {jid}` takes it from its worker; --worker NAME gives it back as that worker"
        ),
        State::Complete => format!("`haul move {jid} QUEUE` runs a finished job again"),
        _ => format!("it will run without help; `haul job {jid}` says what it waits for"),
    }
}

impl Unfail {
    pub(super) async fn run(self, session: &Session) -> Done {
        unfail(session, &self.group, &self.queue, self.count).await
    }
}

/// No more than there are now: jobs that fail again meanwhile must not keep this going for ever.
async fn unfail(session: &Session, group: &str, queue: &str, count: Option<u64>) -> Done {
    let total = session.client.failed(group, Range { offset: 0, count: 0 }).await?.total;
    let wanted = count.unwrap_or(total).min(total);
    let mut done = 0;
    while done < wanted {
        let some = session.client.unfail(queue, group, UNFAIL_COUNT.min(wanted - done)).await?;
        if some == 0 {
            break;
        }
        done += some;
    }
    let left = total.saturating_sub(done);
    let text = match (done, left) {
        (0, 0) => format!("no job has failed with {group}; `haul failed` lists the groups"),
        (_, 0) => format!("{} put back into {queue}", counted(done, "job")),
        _ => format!("{} put back into {queue}; {left} left", counted(done, "job")),
    };
    session.out.say(&json!({"put_back": done, "left": left}), &text)
}
