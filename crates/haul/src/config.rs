//! The one table of settings: each can be a flag, a `HAUL_*` variable or a line of the configuration file, in that order
//! of precedence. Parsed first, resolved once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use haul_store::Access;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::dialect::{DataLimits, ErrorFormat};
use crate::net::TlsFiles;
use crate::resp::Limits;
use crate::trace::Endpoint;

/// A smaller log would be folded into the base at every turn.
const LOG_BYTES_LEAST: u64 = 64 << 10;

/// Queues that metrics show by name, unless set.
const METRICS_QUEUES_MAX: usize = 200;

/// What is logged unless set.
const LOG_FILTER: &str = "info,fjall=warn,lsm_tree=warn,slatedb=off,slatedb_txn_obj=off,object_store=warn";

/// A text that is never shown.
#[derive(Clone, Default, Deserialize)]
pub(crate) struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Secret(text.to_owned()))
    }
}

/// What can be set; none: as the next source says.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Raw {
    /// Folder for the data; made if missing [default: ./haul-data]
    #[arg(long, env = "HAUL_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keep the data in a bucket or a shared folder instead, where many nodes can serve it: s3://bucket/prefix,
    /// gs://bucket/prefix, az://container/prefix or file:///folder; --data is then for the audit log and what handlers need
    #[arg(long, env = "HAUL_STORE", value_name = "URL")]
    pub(crate) store: Option<String>,
    /// How many shards a new --store has; fixed from then on [default: 8]
    #[arg(long, env = "HAUL_SHARDS", value_name = "N")]
    pub(crate) shards: Option<usize>,
    /// Where the store's service is, if not at its usual address, such as http://127.0.0.1:9000
    #[arg(long, env = "HAUL_STORE_ENDPOINT", value_name = "URL")]
    pub(crate) store_endpoint: Option<String>,
    /// Let that address be without TLS
    #[arg(long, env = "HAUL_STORE_ALLOW_HTTP", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) store_allow_http: Option<bool>,
    /// How long one request to the store may take [default: 10s]
    #[arg(long, env = "HAUL_STORE_TIMEOUT", value_name = "INTERVAL")]
    pub(crate) store_timeout: Option<String>,
    /// How often a request to the store that failed is sent again at once [default: 3]
    #[arg(long, env = "HAUL_STORE_RETRIES_MAX", value_name = "N")]
    pub(crate) store_retries_max: Option<usize>,
    /// Milliseconds from one write of a shard's log to the next at least: fewer requests, later answers [default: 25]
    #[arg(long, env = "HAUL_STORE_FLUSH_MS", value_name = "MS")]
    pub(crate) store_flush_ms: Option<usize>,
    /// Memory for each shard's blocks and bodies in bytes [default: 134217728]
    #[arg(long, env = "HAUL_STORE_CACHE_BYTES", value_name = "BYTES")]
    pub(crate) store_cache_bytes: Option<usize>,
    /// A folder of this machine that keeps what was read from the store [default: none]
    #[arg(long, env = "HAUL_STORE_DISK_CACHE", value_name = "DIR")]
    pub(crate) store_disk_cache: Option<PathBuf>,
    /// Bytes that folder may hold for each shard [default: 4294967296]
    #[arg(long, env = "HAUL_STORE_DISK_CACHE_BYTES", value_name = "BYTES")]
    pub(crate) store_disk_cache_bytes: Option<usize>,
    /// Rounds of a shard on their way to the store at once [default: 32]
    #[arg(long, env = "HAUL_ROUNDS_IN_FLIGHT_MAX", value_name = "N")]
    pub(crate) rounds_in_flight_max: Option<usize>,
    /// With --store: address for the other nodes [default: 127.0.0.1:4287]
    #[arg(long, env = "HAUL_NODE", value_name = "ADDR")]
    pub(crate) node: Option<String>,
    /// Where the other nodes find this one, if not at --node, such as node-1.example:4287
    #[arg(long, env = "HAUL_NODE_ADVERTISE", value_name = "ADDR")]
    pub(crate) node_advertise: Option<String>,
    /// Between two signs of life of a node; without one for four times as long its shards are taken over [default: 2s]
    #[arg(long, env = "HAUL_PRESENCE_INTERVAL", value_name = "INTERVAL")]
    pub(crate) presence_interval: Option<String>,
    /// How long a request waits for a shard that is on its way from one node to another [default: 15s]
    #[arg(long, env = "HAUL_HAND_OVER_WAIT", value_name = "INTERVAL")]
    pub(crate) hand_over_wait: Option<String>,
    /// Address of the HTTP side, or "off" [default: 127.0.0.1:4285]
    #[arg(long, env = "HAUL_HTTP", value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Address of the Redis-protocol side [default: 127.0.0.1:4286]
    #[arg(long, env = "HAUL_REDIS", value_name = "ADDR")]
    pub(crate) redis: Option<String>,
    /// When a command counts as done: "always" (after an fsync) or an interval between fsyncs such as 100ms; with an
    /// interval, a power cut may lose what was acknowledged in it [default: always]
    #[arg(long, env = "HAUL_DURABILITY", value_name = "WHEN")]
    pub(crate) durability: Option<String>,
    /// Listen on an address that is not loopback although there is no token
    #[arg(long, env = "HAUL_ALLOW_PUBLIC", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) allow_public: Option<bool>,
    /// Most connections at once [default: 10000]
    #[arg(long, env = "HAUL_CONNECTIONS_MAX", value_name = "N")]
    pub(crate) connections_max: Option<usize>,
    /// Most connections of one machine at once [default: 10000]
    #[arg(long, env = "HAUL_PEER_CONNECTIONS_MAX", value_name = "N")]
    pub(crate) peer_connections_max: Option<usize>,
    /// Most HTTP requests of one machine in a second [default: 100000]
    #[arg(long, env = "HAUL_PEER_REQUESTS_MAX", value_name = "N")]
    pub(crate) peer_requests_max: Option<usize>,
    /// Longest request line and headers of an HTTP request in bytes [default: 65536]
    #[arg(long, env = "HAUL_HEADER_BYTES_MAX", value_name = "BYTES")]
    pub(crate) header_bytes_max: Option<usize>,
    /// Longest path and query of an HTTP request in bytes [default: 16384]
    #[arg(long, env = "HAUL_URL_BYTES_MAX", value_name = "BYTES")]
    pub(crate) url_bytes_max: Option<usize>,
    /// Longest document of an HTTP request in bytes [default: 67108864]
    #[arg(long, env = "HAUL_BODY_BYTES_MAX", value_name = "BYTES")]
    pub(crate) body_bytes_max: Option<usize>,
    /// Seconds for the headers of an HTTP request to arrive, and again for its document [default: 60]
    #[arg(long, env = "HAUL_REQUEST_SECONDS_MAX", value_name = "SECONDS")]
    pub(crate) request_seconds_max: Option<usize>,
    /// A site whose pages may use the HTTP side from a browser, such as https://ops.example.com; may be repeated
    #[arg(long, env = "HAUL_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    #[serde(default)]
    pub(crate) cors_origin: Vec<String>,
    /// TLS on both ports: the certificate, PEM, with those between it and the authority
    #[arg(long, env = "HAUL_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, env = "HAUL_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Clients must have a certificate signed by one of these authorities, PEM
    #[arg(long, env = "HAUL_TLS_CLIENT_CA", value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Longest name (jid, queue, klass, worker, tag, group, option) in bytes [default: 1024]
    #[arg(long, env = "HAUL_NAME_BYTES_MAX", value_name = "BYTES")]
    pub(crate) name_bytes_max: Option<usize>,
    /// Longest data, result or failure message in bytes [default: 16777216]
    #[arg(long, env = "HAUL_DATA_BYTES_MAX", value_name = "BYTES")]
    pub(crate) data_bytes_max: Option<usize>,
    /// Most arguments of one command [default: 1048576]
    #[arg(long, env = "HAUL_ARGUMENTS_MAX", value_name = "N")]
    pub(crate) arguments_max: Option<usize>,
    /// Most bytes waiting for a subscriber that reads too slowly; beyond, it is disconnected [default: 33554432]
    #[arg(long, env = "HAUL_SUBSCRIBER_BYTES_MAX", value_name = "BYTES")]
    pub(crate) subscriber_bytes_max: Option<usize>,
    /// Most bytes of the round log before writers wait for it to be folded into the base [default: 402653184]
    #[arg(long, env = "HAUL_LOG_BYTES_MAX", value_name = "BYTES")]
    pub(crate) log_bytes_max: Option<u64>,
    /// How script errors are worded: clean, redis6 or redis7 [default: clean]
    #[arg(long, env = "HAUL_ERROR_FORMAT", value_name = "FORMAT")]
    pub(crate) error_format: Option<ErrorFormat>,
    /// Store data given to heartbeat and fail as the Lua scripts would re-encode it
    #[arg(long, env = "HAUL_LUA_DATA", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) lua_data: Option<bool>,
    /// Refuse the calls of Blueque's first description that Redis refuses too: LREM without a count, lists for sets
    #[arg(long, env = "HAUL_BLUEQUE_STRICT", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) blueque_strict: Option<bool>,
    /// Most queues that /metrics shows by name; the rest is summed [default: 200]
    #[arg(long, env = "HAUL_METRICS_QUEUES_MAX", value_name = "N")]
    pub(crate) metrics_queues_max: Option<usize>,
    /// Where to send traces, such as http://127.0.0.1:4318 (OTLP over HTTP) [default: nowhere]
    #[arg(long, env = "HAUL_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Headers for that, such as a token: name=value,name=value; better given as HAUL_OTLP_HEADERS than as a flag
    #[arg(long, env = "HAUL_OTLP_HEADERS", hide_env_values = true, value_name = "LIST")]
    pub(crate) otlp_headers: Option<Secret>,
    /// Handlers: "on", "accept" (jobs are taken, none is run here) or "off" [default: on]
    #[arg(long, env = "HAUL_HANDLERS", value_name = "WORD")]
    pub(crate) handlers: Option<String>,
    /// Batches of handlers that run at once [default: twice the processors]
    #[arg(long, env = "HAUL_CONTEXTS_MAX", value_name = "N")]
    pub(crate) contexts_max: Option<usize>,
    /// Jobs after which a handler's context ends [default: 100]
    #[arg(long, env = "HAUL_CONTEXT_JOBS_MAX", value_name = "N")]
    pub(crate) context_jobs_max: Option<usize>,
    /// Until a handler's job that could not finish is tried again: 300s, 5m, 1h; a bare number is milliseconds [default: 5m]
    #[arg(long, env = "HAUL_HANDLER_RETRY_DELAY", value_name = "INTERVAL")]
    pub(crate) handler_retry_delay: Option<String>,
    /// How long a handler's job is tried again [default: 6h]
    #[arg(long, env = "HAUL_HANDLER_RETRY_TIME", value_name = "INTERVAL")]
    pub(crate) handler_retry_time: Option<String>,
    /// How long a handler's job stays with a server that has died; renewed while it runs, 1s to 1d [default: 5m]
    #[arg(long, env = "HAUL_HANDLER_LOCK", value_name = "INTERVAL")]
    pub(crate) handler_lock: Option<String>,
    /// Failed and given-up jobs of handlers are removed after this long; 0: never [default: 14d]
    #[arg(long, env = "HAUL_HANDLER_FAILED_KEEP", value_name = "INTERVAL")]
    pub(crate) handler_failed_keep: Option<String>,
    /// Jobs that no handler ran for this long are removed; 0: never [default: 30d]
    #[arg(long, env = "HAUL_HANDLER_UNRUN_KEEP", value_name = "INTERVAL")]
    pub(crate) handler_unrun_keep: Option<String>,
    /// Bytes of accepted jobs that are not in the store yet, above which more are refused [default: 4294967296]
    #[arg(long, env = "HAUL_JOURNAL_BYTES_MAX", value_name = "BYTES")]
    pub(crate) journal_bytes_max: Option<usize>,
    /// Whose job is run next: fair, first or random [default: fair]
    #[arg(long, env = "HAUL_SCHEDULER", value_name = "WORD")]
    pub(crate) scheduler: Option<String>,
    /// Run no handler where the system cannot confine it fully
    #[arg(long, env = "HAUL_REQUIRE_CONFINEMENT", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) require_confinement: Option<bool>,
    /// What is logged: error, warn, info, debug, trace or off; or a filter such as info,fjall=warn [default: info]
    #[arg(long, env = "HAUL_LOG", value_name = "FILTER")]
    pub(crate) log_level: Option<String>,
    /// How log lines are written: text or json [default: text]
    #[arg(long, env = "HAUL_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// When a command counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Always,
    Interval(Duration),
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Durability::Always => f.write_str("always"),
            Durability::Interval(every) => write!(f, "every {every:?}"),
        }
    }
}

/// A store that many nodes share.
#[derive(Clone, Debug)]
pub(crate) struct SharedStore {
    pub(crate) url: String,
    pub(crate) access: Access,
    pub(crate) shards: Option<u32>,
    pub(crate) flush_interval: Duration,
    pub(crate) cache_bytes: u64,
    pub(crate) disk_cache: Option<(PathBuf, usize)>,
    pub(crate) rounds_in_flight_max: usize,
    pub(crate) cluster: crate::cluster::Settings,
}

/// The settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    /// None: the data is in the folder.
    pub(crate) store: Option<SharedStore>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) redis: SocketAddr,
    pub(crate) durability: Durability,
    pub(crate) limits: Limits,
    pub(crate) net: crate::net::Limits,
    pub(crate) tls: Option<TlsFiles>,
    /// None: serverless is off.
    pub(crate) serverless: Option<crate::serverless::Settings>,
    /// Listen beyond loopback although there is no token.
    pub(crate) allow_public: bool,
    pub(crate) log_bytes_max: Option<u64>,
    pub(crate) error_format: ErrorFormat,
    pub(crate) lua_data: bool,
    pub(crate) blueque_strict: bool,
    pub(crate) metrics_queues_max: usize,
    pub(crate) otlp: Option<Endpoint>,
    pub(crate) log_filter: String,
    pub(crate) json_logs: bool,
}

/// Reads the configuration file.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<Raw> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the configuration file {} could not be read", path.display()))?;
    toml::from_str(&text).with_context(|| {
        format!("the configuration file {} is not as docs/reference/settings.md describes", path.display())
    })
}

/// Reads a setting that is a stretch of time: its name, what was said, what it is otherwise.
type ReadSpan<'a> = dyn Fn(&str, Option<String>, Duration) -> anyhow::Result<Duration> + 'a;

impl Raw {
    /// The limits, flags before the file before the defaults.
    fn limits(&self, file: &Raw) -> anyhow::Result<Limits> {
        let wire = haul_client::resp::Limits::default();
        let defaults = Limits::default();
        let data_bytes_max =
            self.data_bytes_max.or(file.data_bytes_max).unwrap_or(defaults.data.data_bytes_max);
        Ok(Limits {
            data: DataLimits {
                name_bytes_max: in_range(
                    "name-bytes-max",
                    self.name_bytes_max.or(file.name_bytes_max).unwrap_or(defaults.data.name_bytes_max),
                    1..=16_384,
                )?,
                data_bytes_max: in_range("data-bytes-max", data_bytes_max, 64..=200 << 20)?,
            },
            connections_max: in_range(
                "connections-max",
                self.connections_max.or(file.connections_max).unwrap_or(defaults.connections_max),
                1..=1_000_000,
            )?,
            subscriber_bytes_max: in_range(
                "subscriber-bytes-max",
                self.subscriber_bytes_max
                    .or(file.subscriber_bytes_max)
                    .unwrap_or(defaults.subscriber_bytes_max),
                1024..=1 << 40,
            )?,
            wire: haul_client::resp::Limits {
                arguments_max: in_range(
                    "arguments-max",
                    self.arguments_max.or(file.arguments_max).unwrap_or(wire.arguments_max),
                    16..=16 << 20,
                )?,
                argument_bytes_max: data_bytes_max + 1024,
                request_bytes_max: wire.request_bytes_max.max(2 * data_bytes_max),
                ..wire
            },
            ..defaults
        })
    }

    /// The limits of both ports.
    fn net(&self, file: &Raw) -> anyhow::Result<crate::net::Limits> {
        let defaults = crate::net::Limits::default();
        let cors_origins =
            if self.cors_origin.is_empty() { file.cors_origin.clone() } else { self.cors_origin.clone() };
        for origin in &cors_origins {
            let site = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            if site.is_none_or(|site| site.is_empty() || site.contains(['/', '*'])) {
                bail!("cors-origin is a scheme and a host such as https://ops.example.com, not {origin}");
            }
        }
        let choose = |name: &str, flag: Option<usize>, file: Option<usize>, default, range| {
            in_range(name, flag.or(file).unwrap_or(default), range)
        };
        Ok(crate::net::Limits {
            peer_connections_max: choose(
                "peer-connections-max",
                self.peer_connections_max,
                file.peer_connections_max,
                defaults.peer_connections_max,
                1..=1_000_000,
            )?,
            peer_requests_max: choose(
                "peer-requests-max",
                self.peer_requests_max,
                file.peer_requests_max,
                defaults.peer_requests_max,
                1..=10_000_000,
            )?,
            header_bytes_max: choose(
                "header-bytes-max",
                self.header_bytes_max,
                file.header_bytes_max,
                defaults.header_bytes_max,
                8192..=1 << 20,
            )?,
            url_bytes_max: choose(
                "url-bytes-max",
                self.url_bytes_max,
                file.url_bytes_max,
                defaults.url_bytes_max,
                64..=65_000,
            )?,
            body_bytes_max: choose(
                "body-bytes-max",
                self.body_bytes_max,
                file.body_bytes_max,
                defaults.body_bytes_max,
                64..=1 << 30,
            )?,
            request_seconds_max: choose(
                "request-seconds-max",
                self.request_seconds_max,
                file.request_seconds_max,
                defaults.request_seconds_max,
                1..=3600,
            )?,
            cors_origins,
        })
    }

    fn tls(&self, file: &Raw) -> anyhow::Result<Option<TlsFiles>> {
        let path = |flag: &Option<PathBuf>, file: &Option<PathBuf>| flag.clone().or_else(|| file.clone());
        let client_ca = path(&self.tls_client_ca, &file.tls_client_ca);
        match (path(&self.tls_cert, &file.tls_cert), path(&self.tls_key, &file.tls_key)) {
            (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key, client_ca })),
            (None, None) if client_ca.is_none() => Ok(None),
            _ => bail!("TLS needs both tls-cert and tls-key"),
        }
    }

    /// What handlers may use; none: they are off.
    fn serverless(&self, file: &Raw) -> anyhow::Result<Option<crate::serverless::Settings>> {
        let text = |flag: &Option<String>, file: &Option<String>| flag.clone().or_else(|| file.clone());
        let defaults = crate::serverless::Settings::default();
        let run = match text(&self.handlers, &file.handlers).as_deref() {
            None | Some("on") => true,
            Some("accept") => false,
            Some("off") => return Ok(None),
            Some(other) => bail!("handlers is on, accept or off, not {other}"),
        };
        let policy = text(&self.scheduler, &file.scheduler).map_or(Ok(defaults.policy), |word| word.parse());
        let span = |name: &str, given: Option<String>, default| match given {
            None => Ok(default),
            Some(text) => interval(&text).with_context(|| {
                format!("{name} is a number with w, d, h, m or s, or of milliseconds, such as 5m, not {text}")
            }),
        };
        Ok(Some(crate::serverless::Settings {
            run,
            contexts_max: in_range(
                "contexts-max",
                self.contexts_max.or(file.contexts_max).unwrap_or(defaults.contexts_max),
                1..=1000,
            )?,
            context_jobs_max: in_range(
                "context-jobs-max",
                self.context_jobs_max.or(file.context_jobs_max).unwrap_or(defaults.context_jobs_max),
                1..=1_000_000_000,
            )?,
            require_confinement: self.require_confinement.or(file.require_confinement).unwrap_or(false),
            policy: policy.map_err(anyhow::Error::msg)?,
            retry_delay: span(
                "handler-retry-delay",
                text(&self.handler_retry_delay, &file.handler_retry_delay),
                defaults.retry_delay,
            )?,
            retry_time: span(
                "handler-retry-time",
                text(&self.handler_retry_time, &file.handler_retry_time),
                defaults.retry_time,
            )?,
            lock: lock_time(span(
                "handler-lock",
                text(&self.handler_lock, &file.handler_lock),
                defaults.lock,
            )?)?,
            failed_keep: span(
                "handler-failed-keep",
                text(&self.handler_failed_keep, &file.handler_failed_keep),
                defaults.failed_keep,
            )?,
            unrun_keep: span(
                "handler-unrun-keep",
                text(&self.handler_unrun_keep, &file.handler_unrun_keep),
                defaults.unrun_keep,
            )?,
            journal_bytes_max: in_range(
                "journal-bytes-max",
                self.journal_bytes_max.or(file.journal_bytes_max).unwrap_or(defaults.journal_bytes_max),
                1..=usize::MAX,
            )?,
            ..defaults
        }))
    }

    /// The store that nodes share, if one is set.
    fn store(&self, file: &Raw) -> anyhow::Result<Option<SharedStore>> {
        let text = |flag: &Option<String>, file: &Option<String>| flag.clone().or_else(|| file.clone());
        let Some(url) = text(&self.store, &file.store) else {
            if let Some(name) = self.only_with_store(file) {
                bail!("{name} has no meaning without --store");
            }
            return Ok(None);
        };
        let choose = |name: &str, flag: Option<usize>, file: Option<usize>, default, range| {
            in_range(name, flag.or(file).unwrap_or(default), range)
        };
        let span = |name: &str, given: Option<String>, default: Duration| match given {
            None => Ok(default),
            Some(text) => interval(&text)
                .filter(|span| (Duration::from_millis(100)..=Duration::from_secs(600)).contains(span))
                .with_context(|| {
                    format!("{name} is from 100 (milliseconds) to 10m, such as 10s, not {text}")
                }),
        };
        let shards = match self.shards.or(file.shards) {
            None => None,
            Some(shards) => Some(in_range("shards", shards, 1..=crate::cluster::SHARDS_MAX as usize)?),
        };
        let cache_max = choose(
            "store-disk-cache-bytes",
            self.store_disk_cache_bytes,
            file.store_disk_cache_bytes,
            4 << 30,
            64 << 20..=1 << 50,
        )?;
        Ok(Some(SharedStore {
            url,
            access: self.access(file, &span)?,
            shards: shards.and_then(|shards| u32::try_from(shards).ok()),
            flush_interval: Duration::from_millis(choose(
                "store-flush-ms",
                self.store_flush_ms,
                file.store_flush_ms,
                25,
                1..=10_000,
            )? as u64),
            cache_bytes: choose(
                "store-cache-bytes",
                self.store_cache_bytes,
                file.store_cache_bytes,
                128 << 20,
                1 << 20..=1 << 40,
            )? as u64,
            disk_cache: self
                .store_disk_cache
                .clone()
                .or_else(|| file.store_disk_cache.clone())
                .map(|folder| (folder, cache_max)),
            rounds_in_flight_max: choose(
                "rounds-in-flight-max",
                self.rounds_in_flight_max,
                file.rounds_in_flight_max,
                32,
                1..=1000,
            )?,
            cluster: self.cluster(file, &span)?,
        }))
    }

    /// How the bucket is reached.
    fn access(&self, file: &Raw, span: &ReadSpan) -> anyhow::Result<Access> {
        let text = |flag: &Option<String>, file: &Option<String>| flag.clone().or_else(|| file.clone());
        let defaults = Access::default();
        Ok(Access {
            endpoint: text(&self.store_endpoint, &file.store_endpoint),
            allow_http: self.store_allow_http.or(file.store_allow_http).unwrap_or(false),
            request_timeout: span(
                "store-timeout",
                text(&self.store_timeout, &file.store_timeout),
                defaults.request_timeout,
            )?,
            retries_max: in_range(
                "store-retries-max",
                self.store_retries_max.or(file.store_retries_max).unwrap_or(defaults.retries_max),
                0..=100,
            )?,
        })
    }

    fn cluster(&self, file: &Raw, span: &ReadSpan) -> anyhow::Result<crate::cluster::Settings> {
        let text = |flag: &Option<String>, file: &Option<String>| flag.clone().or_else(|| file.clone());
        let listen =
            address("node", &text(&self.node, &file.node).unwrap_or_else(|| "127.0.0.1:4287".to_owned()))?;
        let advertise = text(&self.node_advertise, &file.node_advertise);
        if listen.ip().is_unspecified() && advertise.is_none() {
            bail!(
                "--node {listen} is every address of this machine: say with --node-advertise where the other nodes find it"
            );
        }
        Ok(crate::cluster::Settings {
            listen,
            advertise,
            presence_interval: span(
                "presence-interval",
                text(&self.presence_interval, &file.presence_interval),
                Duration::from_secs(2),
            )?,
            patience: span(
                "hand-over-wait",
                text(&self.hand_over_wait, &file.hand_over_wait),
                Duration::from_secs(15),
            )?,
        })
    }

    /// A setting that was given and needs --store.
    fn only_with_store(&self, file: &Raw) -> Option<&'static str> {
        [self, file].into_iter().find_map(|raw| {
            let given = [
                ("shards", raw.shards.is_some()),
                ("store-endpoint", raw.store_endpoint.is_some()),
                ("store-allow-http", raw.store_allow_http.is_some()),
                ("store-timeout", raw.store_timeout.is_some()),
                ("store-retries-max", raw.store_retries_max.is_some()),
                ("store-flush-ms", raw.store_flush_ms.is_some()),
                ("store-cache-bytes", raw.store_cache_bytes.is_some()),
                ("store-disk-cache", raw.store_disk_cache.is_some()),
                ("store-disk-cache-bytes", raw.store_disk_cache_bytes.is_some()),
                ("rounds-in-flight-max", raw.rounds_in_flight_max.is_some()),
                ("node", raw.node.is_some()),
                ("node-advertise", raw.node_advertise.is_some()),
                ("presence-interval", raw.presence_interval.is_some()),
                ("hand-over-wait", raw.hand_over_wait.is_some()),
            ];
            given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
        })
    }

    /// Flags and variables, completed from the file and the defaults, and checked.
    pub(crate) fn resolve(self, file: Raw) -> anyhow::Result<Config> {
        let (limits, net, tls) = (self.limits(&file)?, self.net(&file)?, self.tls(&file)?);
        let (serverless, store) = (self.serverless(&file)?, self.store(&file)?);
        let redis =
            address("redis", &self.redis.or(file.redis).unwrap_or_else(|| "127.0.0.1:4286".to_owned()))?;
        let http = match self.http.or(file.http).as_deref() {
            Some("off") => None,
            Some(text) => Some(address("http", text)?),
            None => Some(address("http", "127.0.0.1:4285")?),
        };
        let log_bytes_max = self.log_bytes_max.or(file.log_bytes_max);
        if log_bytes_max.is_some_and(|bytes| bytes < LOG_BYTES_LEAST) {
            bail!("log-bytes-max must be at least {LOG_BYTES_LEAST}");
        }
        let log_format = self.log_format.or(file.log_format).unwrap_or_else(|| "text".to_owned());
        if !matches!(log_format.as_str(), "text" | "json") {
            bail!("log-format is text or json, not {log_format}");
        }
        let log_filter = self.log_level.or(file.log_level).map_or_else(|| LOG_FILTER.to_owned(), full_filter);
        if let Err(error) = EnvFilter::try_new(&log_filter) {
            bail!("log-level {log_filter} is no level and no filter: {error}");
        }
        let headers = self.otlp_headers.or(file.otlp_headers).unwrap_or_default();
        let otlp = self
            .otlp_endpoint
            .or(file.otlp_endpoint)
            .map(|url| Endpoint::parse(&url, &headers.0))
            .transpose()?;
        Ok(Config {
            data: self.data.or(file.data).unwrap_or_else(|| PathBuf::from("haul-data")),
            store,
            http,
            redis,
            durability: durability(
                &self.durability.or(file.durability).unwrap_or_else(|| "always".to_owned()),
            )?,
            limits,
            net,
            tls,
            serverless,
            allow_public: self.allow_public.or(file.allow_public).unwrap_or(false),
            log_bytes_max,
            error_format: self.error_format.or(file.error_format).unwrap_or_default(),
            lua_data: self.lua_data.or(file.lua_data).unwrap_or(false),
            blueque_strict: self.blueque_strict.or(file.blueque_strict).unwrap_or(false),
            metrics_queues_max: in_range(
                "metrics-queues-max",
                self.metrics_queues_max.or(file.metrics_queues_max).unwrap_or(METRICS_QUEUES_MAX),
                1..=100_000,
            )?,
            otlp,
            log_filter,
            json_logs: log_format == "json",
        })
    }
}

/// A bare level is for our own lines; what the store's library says stays out unless it is asked for.
fn full_filter(text: String) -> String {
    match text.as_str() {
        "info" => LOG_FILTER.to_owned(),
        "debug" | "trace" => {
            format!("{text},fjall=warn,lsm_tree=warn,slatedb=warn,object_store=warn,hyper=warn,reqwest=warn")
        }
        _ => text,
    }
}

impl Config {
    /// An address that other machines can reach, if there is one.
    pub(crate) fn public_address(&self) -> Option<SocketAddr> {
        std::iter::once(self.redis).chain(self.http).find(|bound| !bound.ip().to_canonical().is_loopback())
    }
}

fn in_range(name: &str, value: usize, range: std::ops::RangeInclusive<usize>) -> anyhow::Result<usize> {
    if !range.contains(&value) {
        bail!("{name} must be from {} to {}, not {value}", range.start(), range.end());
    }
    Ok(value)
}

fn lock_time(given: Duration) -> anyhow::Result<Duration> {
    if !(1..=86_400).contains(&given.as_secs()) {
        bail!("handler-lock is from 1s to 1d");
    }
    Ok(given)
}

fn address(what: &str, text: &str) -> anyhow::Result<SocketAddr> {
    let full = match text {
        port if port.bytes().all(|byte| byte.is_ascii_digit()) => format!("127.0.0.1:{port}"),
        other => other.replace("localhost:", "127.0.0.1:"),
    };
    full.parse().with_context(|| format!("--{what} takes an address such as 127.0.0.1:4286, not {text}"))
}

/// A number with an optional unit of weeks, days, hours, minutes or seconds; without, milliseconds.
fn interval(text: &str) -> Option<Duration> {
    let (digits, scale) = match text.char_indices().next_back()? {
        (at, 'w') => (text.get(..at)?, 7 * 86_400_000),
        (at, 'd') => (text.get(..at)?, 86_400_000),
        (at, 'h') => (text.get(..at)?, 3_600_000),
        (at, 'm') => (text.get(..at)?, 60_000),
        (at, 's') => (text.get(..at)?, 1000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().ok()?;
    Some(Duration::from_millis(number.checked_mul(scale)?))
}

fn durability(text: &str) -> anyhow::Result<Durability> {
    if text == "always" {
        return Ok(Durability::Always);
    }
    let (digits, scale) = match text {
        _ if text.ends_with("ms") => (text.trim_end_matches("ms"), 1),
        _ => (text.trim_end_matches('s'), 1000),
    };
    match digits.parse::<u64>() {
        Ok(number) if text.ends_with('s') && (1..=60_000).contains(&number.saturating_mul(scale)) => {
            Ok(Durability::Interval(Duration::from_millis(number * scale)))
        }
        _ => bail!("--durability takes always, or an interval from 1ms to 60s such as 100ms, not {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = Raw { redis: Some("127.0.0.1:1".into()), ..Raw::default() };
        let file: Raw = toml::from_str("redis = \"127.0.0.1:2\"\ndurability = \"100ms\"").unwrap();
        let config = flags.resolve(file).unwrap();
        assert_eq!(config.redis.port(), 1);
        assert_eq!(config.durability, Durability::Interval(Duration::from_millis(100)));
        assert_eq!(config.data, PathBuf::from("haul-data"));
    }

    #[test]
    fn intervals_have_units_or_are_milliseconds() {
        for (text, seconds) in
            [("1w", 604_800), ("2d", 172_800), ("3h", 10_800), ("4m", 240), ("5s", 5), ("6000", 6)]
        {
            assert_eq!(interval(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "1.5h", "-1s", "1y", "99999999999999999w"] {
            assert_eq!(interval(text), None, "{text}");
        }
    }

    #[test]
    fn a_public_address_is_recognised() {
        for (redis, http, is_public) in [
            ("0.0.0.0:1", "off", true),
            ("127.0.0.1:1", "[::]:2", true),
            ("127.0.0.1:1", "[::1]:2", false),
            ("[::ffff:127.0.0.1]:1", "off", false),
        ] {
            let raw = Raw { redis: Some(redis.into()), http: Some(http.into()), ..Raw::default() };
            let config = raw.resolve(Raw::default()).unwrap();
            assert_eq!(config.public_address().is_some(), is_public, "{redis} {http}");
        }
    }

    fn shared() -> Raw {
        Raw { store: Some("file:///shared".into()), ..Raw::default() }
    }

    #[test]
    fn settings_of_a_shared_store_at_their_limits_are_taken() {
        let raw = Raw {
            shards: Some(4096),
            node: Some("0.0.0.0:4287".into()),
            node_advertise: Some("node-1:4287".into()),
            store_flush_ms: Some(10_000),
            store_timeout: Some("10m".into()),
            store_retries_max: Some(100),
            store_cache_bytes: Some(1 << 20),
            store_disk_cache: Some("/cache".into()),
            store_disk_cache_bytes: Some(64 << 20),
            rounds_in_flight_max: Some(1000),
            presence_interval: Some("100".into()),
            ..shared()
        };
        let store = raw.resolve(Raw::default()).unwrap().store.unwrap();
        assert_eq!((store.shards, store.rounds_in_flight_max), (Some(4096), 1000));
        assert_eq!(store.disk_cache, Some(("/cache".into(), 64 << 20)));
        assert_eq!(store.cluster.gone_after(), Duration::from_millis(400));
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(toml::from_str::<Raw>("redi = \"x\"").is_err());
        for raw in [
            Raw { durability: Some("sometimes".into()), ..Raw::default() },
            Raw { durability: Some("0ms".into()), ..Raw::default() },
            Raw { durability: Some(format!("{}s", u64::MAX)), ..Raw::default() },
            Raw { name_bytes_max: Some(16_385), ..Raw::default() },
            Raw { data_bytes_max: Some(63), ..Raw::default() },
            Raw { connections_max: Some(0), ..Raw::default() },
            Raw { arguments_max: Some(15), ..Raw::default() },
            Raw { subscriber_bytes_max: Some(1023), ..Raw::default() },
            Raw { log_bytes_max: Some(LOG_BYTES_LEAST - 1), ..Raw::default() },
            Raw { redis: Some("nowhere".into()), ..Raw::default() },
            Raw { peer_connections_max: Some(0), ..Raw::default() },
            Raw { peer_requests_max: Some(0), ..Raw::default() },
            Raw { header_bytes_max: Some(8191), ..Raw::default() },
            Raw { url_bytes_max: Some(65_001), ..Raw::default() },
            Raw { body_bytes_max: Some(63), ..Raw::default() },
            Raw { request_seconds_max: Some(0), ..Raw::default() },
            Raw { cors_origin: vec!["*".into()], ..Raw::default() },
            Raw { cors_origin: vec!["https://a.example/".into()], ..Raw::default() },
            Raw { tls_cert: Some("a".into()), ..Raw::default() },
            Raw { tls_client_ca: Some("a".into()), ..Raw::default() },
            Raw { log_format: Some("xml".into()), ..Raw::default() },
            Raw { log_level: Some("info,=".into()), ..Raw::default() },
            Raw { metrics_queues_max: Some(0), ..Raw::default() },
            Raw { handlers: Some("maybe".into()), ..Raw::default() },
            Raw { contexts_max: Some(0), ..Raw::default() },
            Raw { context_jobs_max: Some(0), ..Raw::default() },
            Raw { scheduler: Some("fifo".into()), ..Raw::default() },
            Raw { handler_retry_delay: Some("soon".into()), ..Raw::default() },
            Raw { handler_retry_time: Some("5x".into()), ..Raw::default() },
            Raw { handler_failed_keep: Some("5x".into()), ..Raw::default() },
            Raw { handler_unrun_keep: Some("5x".into()), ..Raw::default() },
            Raw { journal_bytes_max: Some(0), ..Raw::default() },
            Raw { handler_lock: Some("999".into()), ..Raw::default() },
            Raw { handler_lock: Some("86401s".into()), ..Raw::default() },
            Raw { otlp_endpoint: Some("https://collector".into()), ..Raw::default() },
            Raw { shards: Some(4), ..Raw::default() },
            Raw { node: Some("127.0.0.1:1".into()), ..Raw::default() },
            Raw { shards: Some(0), ..shared() },
            Raw { shards: Some(4097), ..shared() },
            Raw { node: Some("0.0.0.0:4287".into()), ..shared() },
            Raw { store_flush_ms: Some(0), ..shared() },
            Raw { store_flush_ms: Some(10_001), ..shared() },
            Raw { store_timeout: Some("99".into()), ..shared() },
            Raw { store_timeout: Some("11m".into()), ..shared() },
            Raw { store_retries_max: Some(101), ..shared() },
            Raw { store_cache_bytes: Some((1 << 20) - 1), ..shared() },
            Raw { store_disk_cache_bytes: Some((64 << 20) - 1), ..shared() },
            Raw { rounds_in_flight_max: Some(0), ..shared() },
            Raw { rounds_in_flight_max: Some(1001), ..shared() },
            Raw { presence_interval: Some("99".into()), ..shared() },
            Raw { hand_over_wait: Some("never".into()), ..shared() },
        ] {
            assert!(raw.resolve(Raw::default()).is_err());
        }
        let at_limit = Raw { name_bytes_max: Some(16_384), durability: Some("60s".into()), ..Raw::default() };
        assert!(at_limit.resolve(Raw::default()).is_ok());
    }
}
