//! How jobs are to be run: everything a guardian is told, once, before its first job.

use std::path::PathBuf;
use std::time::Duration;

use haul_client::{Client, Error, Options, Tls};
use serde::{Deserialize, Serialize};

/// Where the server is.
#[derive(Clone, Serialize, Deserialize)]
pub struct Connection {
    pub address: String,
    pub database: Option<String>,
    pub token: Option<String>,
    pub is_tls: bool,
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Connection {
    /// Does not show the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects at the first call.
    pub fn client(&self, request_timeout: Duration) -> Result<Client, Error> {
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
pub struct Plan {
    pub connection: Connection,
    pub worker: String,
    pub state: PathBuf,
    /// None: the job brings its own.
    pub command: Option<Vec<String>>,
    /// How long a lock lasts.
    pub lock: Duration,
    /// Between the polite signal and the one that cannot be refused.
    pub grace: Duration,
    pub limits: Limits,
    pub retry: RetryRule,
    pub classes: Classes,
    /// Whether lines of standard error that begin with `::haul ` are understood.
    pub lines: bool,
}

/// What a task may use. None: as much as there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    pub time: Option<Duration>,
    /// Of all its processes together.
    pub memory_bytes: Option<u64>,
    /// Of each process.
    pub address_bytes: Option<u64>,
    pub cpu_seconds: Option<u64>,
    /// Of one file.
    pub file_bytes: Option<u64>,
    /// Of its private folder.
    pub disk_bytes: Option<u64>,
    pub files: Option<u64>,
    pub processes: Option<usize>,
    /// Both streams together; more ends the task.
    pub output_bytes: Option<u64>,
    /// Of standard output kept as the result.
    pub result_bytes: usize,
}

/// When a job that did not succeed is tried again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RetryRule {
    /// Exit statuses.
    pub statuses: Vec<i32>,
    /// Every other status but 0.
    pub any_status: bool,
    pub signals: bool,
    pub limits: bool,
    /// The first delay; doubled with every retry used.
    pub backoff: Duration,
    pub backoff_max: Duration,
}

/// What exit statuses mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Classes {
    /// 0 is done, everything else is not
    #[default]
    Plain,
    /// 0 and 200-255 done, 100-199 and 75 again, 64 and 65 failed, all others again
    Serverless,
}
