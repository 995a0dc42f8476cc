//! Workers: who there is and what they hold.

use serde_json::{Value, json};

use super::failure::Done;
use super::output::Table;
use super::session::Session;

/// List the workers, or the jobs of one
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul workers
  haul workers host-1 --json

alive: heard of within 30 s; draining: alive, and takes no more jobs; silent: not heard of for up to 5 min; gone: longer.")]
pub(super) struct Workers {
    /// Only this worker, with its jobs
    worker: Option<String>,
}

impl Workers {
    pub(super) async fn run(self, session: &Session) -> Done {
        match &self.worker {
            Some(worker) => one(session, worker).await,
            None => all(session).await,
        }
    }
}

async fn all(session: &Session) -> Done {
    let workers = session.client.workers().await?;
    let mut table = Table::new(&[
        "WORKER", "STATE", "RUNNING", "STALLED", "CAPACITY", "HOST", "PID", "VERSION", "QUEUES", "SEEN",
    ]);
    for worker in workers.as_array().into_iter().flatten() {
        let count = |key: &str| worker.get(key).and_then(Value::as_u64).unwrap_or(0).to_string();
        let name = worker.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let seen =
            worker.get("seen_at").and_then(Value::as_f64).map_or_else(String::new, |at| session.ago(at));
        let state = worker.get("state").and_then(Value::as_str).unwrap_or_default().to_owned();
        let fact = |key: &str| match worker.get("facts").and_then(|facts| facts.get(key)) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            Some(Value::Number(number)) => number.to_string(),
            _ => "-".to_owned(),
        };
        let [capacity, host, pid] = ["capacity", "host", "pid"].map(fact);
        let [version, queues] = ["version", "queues"].map(fact);
        let (jobs, stalled) = (count("jobs"), count("stalled"));
        table.row([name, state, jobs, stalled, capacity, host, pid, version, queues, seen]);
    }
    session.out.say(&workers, &table.text_or("no worker has been seen lately"))
}

async fn one(session: &Session, name: &str) -> Done {
    let worker = session.client.worker(name).await?;
    let jids = |key: &str| -> Vec<String> {
        let list = worker.get(key).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|jid| Some(jid.as_str()?.to_owned())).collect()
    };
    let jobs = session.jobs(&[jids("jobs"), jids("stalled")].concat()).await?;
    session.out.say(&worker, &session.job_table(&jobs).text_or(&format!("{name} holds no job")))
}

/// Take workers off the list of workers
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul deregister host-1
  haul deregister host-1 host-2

The jobs they hold stay theirs until the locks run out; `haul release` takes them away.")]
pub(super) struct Deregister {
    /// The workers
    #[arg(required = true)]
    workers: Vec<String>,
}

impl Deregister {
    pub(super) async fn run(self, session: &Session) -> Done {
        session.client.deregister(&self.workers).await?;
        session.out.say(
            &json!({"deregistered": self.workers}),
            &format!("deregistered: {}", self.workers.join(", ")),
        )
    }
}
