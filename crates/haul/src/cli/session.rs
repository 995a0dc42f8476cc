//! What every subcommand that talks to a server is given: the connection, where the answer goes, what time it is.

use haul_client::{Client, Error, Job, Options};

use super::failure::Failure;
use super::moment;
use super::output::{DATA_CHARS_MAX, Output, Table, shortened};
use crate::clock;

/// Ids asked about in one call.
const LOOK_COUNT_MAX: usize = 500;

/// Options of every subcommand that talks to a server.
#[derive(clap::Args, Debug)]
pub(super) struct Global {
    /// The server's Redis-protocol address
    #[arg(
        long,
        global = true,
        env = "HAUL_SERVER",
        value_name = "ADDR",
        default_value = "127.0.0.1:4286",
        help_heading = "Server"
    )]
    pub(super) server: String,
    /// The tenant, by its number
    #[arg(long, global = true, env = "HAUL_TENANT", value_name = "N", help_heading = "Server")]
    pub(super) tenant: Option<u32>,
    /// Print JSON, for scripts
    #[arg(long, global = true, help_heading = "Server")]
    pub(super) json: bool,
}

pub(super) struct Session {
    pub(super) client: Client,
    pub(super) address: String,
    pub(super) database: Option<String>,
    pub(super) out: Output,
    /// Seconds since 1970, when the subcommand began.
    pub(super) now: f64,
}

impl Session {
    pub(super) async fn open(global: &Global) -> Result<Self, Error> {
        let database = global.tenant.map(|tenant| tenant.to_string());
        let client = Client::connect(&global.server, Options { database: database.clone(), ..Options::default() }).await?;
        let out = Output { json: global.json };
        Ok(Session { client, address: global.server.clone(), database, out, now: clock::now() })
    }

    /// "3m ago".
    pub(super) fn ago(&self, when: f64) -> String {
        moment::relative(self.now, when)
    }

    /// The jobs of these ids, those that have gone meanwhile left out.
    pub(super) async fn jobs(&self, jids: &[String]) -> Result<Vec<Job>, Failure> {
        let mut jobs = Vec::with_capacity(jids.len());
        for some in jids.chunks(LOOK_COUNT_MAX) {
            jobs.extend(self.client.get_many(some).await?.into_iter().flatten());
        }
        Ok(jobs)
    }

    pub(super) async fn job(&self, jid: &str) -> Result<Job, Failure> {
        self.client.get(jid).await?.ok_or_else(|| Failure::no_job(jid))
    }

    /// A line for each job.
    pub(super) fn job_table(&self, jobs: &[Job]) -> Table {
        let mut table =
            Table::new(&["JID", "KLASS", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "SINCE", "DATA"]);
        for job in jobs {
            let since = job.history.last().map_or_else(|| "-".to_owned(), |entry| self.ago(entry.when));
            table.row([
                job.jid.clone(),
                job.klass.clone(),
                job.queue.clone().unwrap_or_else(|| "-".to_owned()),
                job.state.to_string(),
                job.priority.to_string(),
                job.attempt.to_string(),
                since,
                shortened(job.data.text(), DATA_CHARS_MAX),
            ]);
        }
        table
    }
}

/// The name this command line works under unless it is told another.
pub(super) fn worker_name(given: Option<&str>) -> String {
    let machine = rustix::system::uname();
    given.map_or_else(|| format!("cli@{}", machine.nodename().to_string_lossy()), str::to_owned)
}
