//! Tags and tracking.

use haul_client::Job;
use serde_json::json;

use super::failure::Done;
use super::list::Part;
use super::output::counted;
use super::session::Session;

/// Add tags to a job
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul tag job-1 urgent
  haul tag job-1 urgent customer-7")]
pub(super) struct Tag {
    /// The job
    jid: String,
    /// The tags
    #[arg(required = true)]
    tags: Vec<String>,
}

/// Take tags from a job
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul untag job-1 urgent
  haul untag job-1 urgent customer-7")]
pub(super) struct Untag {
    /// The job
    jid: String,
    /// The tags
    #[arg(required = true)]
    tags: Vec<String>,
}

impl Tag {
    pub(super) async fn run(self, session: &Session) -> Done {
        let tags = session.client.tag(&self.jid, &self.tags).await?;
        tell(session, &self.jid, &tags)
    }
}

impl Untag {
    pub(super) async fn run(self, session: &Session) -> Done {
        let tags = session.client.untag(&self.jid, &self.tags).await?;
        tell(session, &self.jid, &tags)
    }
}

fn tell(session: &Session, jid: &str, tags: &[String]) -> Done {
    let text = match tags {
        [] => format!("{jid} has no tags"),
        some => format!("{jid} has the tags {}", some.join(", ")),
    };
    session.out.say(&json!({"jid": jid, "tags": tags}), &text)
}

/// List the tags most used, or the jobs with one tag
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul tags
  haul tags urgent --count 100")]
pub(super) struct Tags {
    /// List the jobs with this tag
    tag: Option<String>,
    #[command(flatten)]
    part: Part,
}

impl Tags {
    pub(super) async fn run(self, session: &Session) -> Done {
        let Some(tag) = &self.tag else {
            let tags = session.client.tags(self.part.range()).await?;
            let text =
                if tags.is_empty() { "no tag is on more than one job".to_owned() } else { tags.join("\n") };
            return session.out.say(&tags, &text);
        };
        let listing = session.client.tagged(tag, self.part.range()).await?;
        let jobs = session.jobs(&listing.jobs).await?;
        let table = session.job_table(&jobs).text_or(&format!("no job is tagged {tag}"));
        let text = match jobs.len() as u64 {
            shown if shown < listing.total => format!("{table}{shown} of {}", counted(listing.total, "job")),
            _ => table,
        };
        session.out.say(&json!({"total": listing.total, "jobs": jobs}), &text)
    }
}

/// Publish every step of a job, for `haul events` and other listeners
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul track job-1
  haul track job-1 --json")]
pub(super) struct Track {
    /// The job
    jid: String,
}

/// No longer publish the steps of a job
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul untrack job-1
  haul untrack job-1 --json")]
pub(super) struct Untrack {
    /// The job
    jid: String,
}

impl Track {
    pub(super) async fn run(self, session: &Session) -> Done {
        let changed = session.client.track(&self.jid).await?;
        let text = format!("{} is tracked{}", self.jid, if changed { "" } else { " already" });
        session.out.say(&json!({"jid": self.jid, "tracked": true, "changed": changed}), &text)
    }
}

impl Untrack {
    pub(super) async fn run(self, session: &Session) -> Done {
        let changed = session.client.untrack(&self.jid).await?;
        let text =
            format!("{} {}", self.jid, if changed { "is no longer tracked" } else { "was not tracked" });
        session.out.say(&json!({"jid": self.jid, "tracked": false, "changed": changed}), &text)
    }
}

/// List the jobs that are tracked
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul tracked
  haul tracked --json")]
pub(super) struct Tracked {}

impl Tracked {
    pub(super) async fn run(self, session: &Session) -> Done {
        let tracked = session.client.tracked().await?;
        let jobs: &[Job] = &tracked.jobs;
        let text = match (jobs, tracked.expired.as_slice()) {
            ([], []) => "no job is tracked".to_owned(),
            (_, []) => session.job_table(jobs).text(),
            (_, gone) => format!("{}gone: {}", session.job_table(jobs).text_or(""), gone.join(", ")),
        };
        session.out.say(&tracked, &text)
    }
}
