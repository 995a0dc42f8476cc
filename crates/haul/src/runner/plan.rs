//! How jobs are to be run: everything a guardian is told, once, before its first job.

use std::path::PathBuf;
use std::time::Duration;

use haul_client::{Client, Error, Options, Tls};
use serde::{Deserialize, Serialize};

/// Where the server is.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) address: String,
    pub(crate) database: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) is_tls: bool,
    pub(crate) ca: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) server_name: Option<String>,
}

impl std::fmt::Debug for Connection {
    /// Does not show the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects at the first call.
    pub(super) fn client(&self, request_timeout: Duration) -> Result<Client, Error> {
        let tls = self.is_tls.then(|| Tls {
            ca: self.ca.clone(),
            identity: self.identity.clone(),
            server_name: self.server_name.clone(),
        });
        let options = Options {
            tls,
            database: self.database.clone(),
            token: self.token.clone(),
            request_timeout,
            connect_timeout: request_timeout.min(Duration::from_secs(5)),
            backoff_max: Duration::from_secs(1),
            ..Options::default()
        };
        Client::lazy(&self.address, options)
    }
}

/// How a job is run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) connection: Connection,
    pub(crate) worker: String,
    pub(crate) state: PathBuf,
    /// None: the job brings its own.
    pub(crate) command: Option<Vec<String>>,
    /// How long a lock lasts.
    pub(crate) lock: Duration,
    /// Between the polite signal and the one that cannot be refused.
    pub(crate) grace: Duration,
    pub(crate) limits: Limits,
    pub(crate) retry: RetryRule,
    pub(crate) classes: Classes,
    /// Whether lines of standard error that begin with `::haul ` are understood.
    pub(crate) lines: bool,
}

/// What a task may use. None: as much as there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) time: Option<Duration>,
    /// Of all its processes together.
    pub(crate) memory_bytes: Option<u64>,
    /// Of each process.
    pub(crate) address_bytes: Option<u64>,
    pub(crate) cpu_seconds: Option<u64>,
    /// Of one file.
    pub(crate) file_bytes: Option<u64>,
    /// Of its private folder.
    pub(crate) disk_bytes: Option<u64>,
    pub(crate) files: Option<u64>,
    pub(crate) processes: Option<usize>,
    /// Both streams together; more ends the task.
    pub(crate) output_bytes: Option<u64>,
    /// Of standard output kept as the result.
    pub(crate) result_bytes: usize,
}

/// When a job that did not succeed is tried again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RetryRule {
    /// Exit statuses.
    pub(crate) statuses: Vec<i32>,
    /// Every other status but 0.
    pub(crate) any_status: bool,
    pub(crate) signals: bool,
    pub(crate) limits: bool,
    /// The first delay; doubled with every retry used.
    pub(crate) backoff: Duration,
    pub(crate) backoff_max: Duration,
}

/// What exit statuses mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Classes {
    /// 0 is done, everything else is not
    #[default]
    Plain,
    /// 0 and 200-255 done, 100-199 and 75 again, 64 and 65 failed, all others again
    Serverless,
}
