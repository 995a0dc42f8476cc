//! `haul throttle`: how many jobs of a kind may run at once.

use std::time::Duration;

use haul_client::Throttle as Limit;
use serde_json::{Value, json};

use super::failure::Done;
use super::moment::span;
use super::output::fields;
use super::session::Session;
use super::value;

/// Limit how many jobs run at once
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul throttle set smtp 3          at most three jobs put with --throttle smtp run at once
  haul throttle set ql:q:mail 10    at most ten jobs of the queue mail
  haul throttle get smtp
  haul throttle pending smtp
  haul throttle delete smtp")]
pub(super) struct Throttle {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make or change a throttle
    #[command(after_help = "Examples:\n  haul throttle set smtp 3\n  haul throttle set smtp 1 --ttl 1h")]
    Set {
        /// The throttle
        id: String,
        /// How many jobs may run at once; 0: any number
        maximum: u64,
        /// Forget it after this long
        #[arg(long, value_name = "DURATION", value_parser = value::interval)]
        ttl: Option<Duration>,
    },
    /// Show a throttle
    #[command(after_help = "Examples:\n  haul throttle get smtp\n  haul throttle get smtp --json")]
    Get {
        /// The throttle
        id: String,
    },
    /// Remove a throttle: its jobs are held back no longer
    #[command(after_help = "Examples:\n  haul throttle delete smtp\n  haul throttle delete smtp --json")]
    Delete {
        /// The throttle
        id: String,
    },
    /// List the jobs that run under a throttle
    #[command(after_help = "Examples:\n  haul throttle locks smtp\n  haul throttle locks smtp --json")]
    Locks {
        /// The throttle
        id: String,
    },
    /// List the jobs that wait for a throttle
    #[command(after_help = "Examples:\n  haul throttle pending smtp\n  haul throttle pending smtp --json")]
    Pending {
        /// The throttle
        id: String,
    },
    /// Take jobs out of a throttle's count
    #[command(
        after_help = "Examples:\n  haul throttle release smtp job-1\n  haul throttle release smtp job-1 job-2"
    )]
    Release {
        /// The throttle
        id: String,
        /// The jobs
        #[arg(required = true, value_name = "JID")]
        jids: Vec<String>,
    },
}

impl Throttle {
    pub(super) async fn run(self, session: &Session) -> Done {
        let client = &session.client;
        match self.verb {
            Verb::Set { id, maximum, ttl } => {
                client.throttle_set(&Limit { id: id.clone(), max: maximum, ttl }).await?;
                show(session, &id).await
            }
            Verb::Get { id } => show(session, &id).await,
            Verb::Delete { id } => {
                client.throttle_delete(&id).await?;
                session.out.say(&json!({"id": id, "deleted": true}), &format!("throttle {id} is gone"))
            }
            Verb::Locks { id } => {
                let jids = client.throttle_locks(&id).await?;
                session.out.say(&jids, &listed(&jids, &format!("no job runs under {id}")))
            }
            Verb::Pending { id } => {
                let jids = client.throttle_pending(&id).await?;
                session.out.say(&jids, &listed(&jids, &format!("no job waits for {id}")))
            }
            Verb::Release { id, jids } => {
                client.throttle_release(&id, &jids).await?;
                session.out.say(
                    &json!({"id": id, "released": jids}),
                    &format!("{} no longer count", jids.join(", ")),
                )
            }
        }
    }
}

fn listed(jids: &[String], nothing: &str) -> String {
    if jids.is_empty() { nothing.to_owned() } else { jids.join("\n") }
}

/// With how many run and wait, which is what one wants to know next.
async fn show(session: &Session, id: &str) -> Done {
    let throttle = session.client.throttle_get(id).await?.unwrap_or(Value::Null);
    if session.out.json {
        return session.out.value(&throttle);
    }
    let number = |key: &str| throttle.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let (running, waiting) =
        (session.client.throttle_locks(id).await?, session.client.throttle_pending(id).await?);
    let maximum = match number("maximum") {
        0.0 => "any number".to_owned(),
        maximum => maximum.to_string(),
    };
    // Redis's way: -1 without an end, -2 not there.
    let ends = match number("ttl") {
        -2.0 => "not set".to_owned(),
        ttl if ttl < 0.0 => "never".to_owned(),
        ttl => format!("in {}", span(ttl)),
    };
    let pairs = [
        ("maximum", maximum),
        ("running", running.len().to_string()),
        ("waiting", waiting.len().to_string()),
        ("ends", ends),
    ];
    session.out.text(&format!("{id}\n{}", fields(&pairs)))
}
