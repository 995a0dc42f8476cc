//! What every subcommand that talks to a server is given: the connection, where the answer goes, what time it is.

use std::path::PathBuf;

use haul_client::{Client, Job, Options, Tls};

use super::failure::Failure;
use super::moment;
use super::output::{DATA_CHARS_MAX, Output, Table, shortened};
use crate::clock;

/// Ids asked about in one call.
const LOOK_COUNT_MAX: usize = 500;

/// Options of every subcommand that talks to a server.
#[derive(clap::Args)]
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
    /// The tenant, by its number or name
    #[arg(long, global = true, env = "HAUL_TENANT", value_name = "TENANT", help_heading = "Server")]
    pub(super) tenant: Option<String>,
    /// The token; other users of this machine can see it here, so prefer HAUL_TOKEN or --token-file
    #[arg(
        long,
        global = true,
        env = "HAUL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Server"
    )]
    token: Option<String>,
    /// A file that holds the token
    #[arg(long, global = true, env = "HAUL_TOKEN_FILE", value_name = "FILE", help_heading = "Server")]
    token_file: Option<PathBuf>,
    /// Talk TLS to the server
    #[arg(long, global = true, env = "HAUL_TLS", help_heading = "Server")]
    tls: bool,
    /// Who may have signed the server's certificate, PEM [default: whom the system trusts]
    #[arg(long, global = true, env = "HAUL_TLS_CA", value_name = "FILE", help_heading = "Server")]
    tls_ca: Option<PathBuf>,
    /// Our certificate, PEM, for a server that asks for one
    #[arg(long, global = true, env = "HAUL_CLIENT_CERT", value_name = "FILE", help_heading = "Server")]
    client_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, global = true, env = "HAUL_CLIENT_KEY", value_name = "FILE", help_heading = "Server")]
    client_key: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long, global = true, help_heading = "Server")]
    pub(super) json: bool,
}

impl std::fmt::Debug for Global {
    /// Does not show the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Global")
            .field("server", &self.server)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl Global {
    /// The token, if there is one.
    pub(super) fn secret(&self) -> Result<Option<String>, Failure> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::Usage(format!("the token file {} cannot be read: {error}", path.display()))
                })?;
                Ok(Some(text.trim().to_owned()))
            }
            (None, None) => Ok(None),
        }
    }

    pub(super) fn options(&self) -> Result<Options, Failure> {
        let token = self.secret()?;
        let identity = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(Failure::Usage("--client-cert and --client-key go together".to_owned())),
        };
        let is_tls = self.tls || self.tls_ca.is_some() || identity.is_some();
        let tls = is_tls.then(|| Tls { ca: self.tls_ca.clone(), identity, server_name: None });
        Ok(Options { database: self.tenant.clone(), token, tls, ..Options::default() })
    }
}

pub(super) struct Session {
    pub(super) client: Client,
    pub(super) address: String,
    /// How the connection was made, for processes that make their own.
    pub(super) options: Options,
    pub(super) out: Output,
    /// Seconds since 1970, when the subcommand began.
    pub(super) now: f64,
}

impl Session {
    /// `is_patient`: the server may be started later.
    pub(super) async fn open(global: &Global, is_patient: bool) -> Result<Self, Failure> {
        let options = global.options()?;
        let client = match is_patient {
            true => Client::lazy(&global.server, options.clone())?,
            false => Client::connect(&global.server, options.clone()).await?,
        };
        let out = Output { json: global.json };
        Ok(Session { client, address: global.server.clone(), options, out, now: clock::now() })
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
