//! What all connections share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::hub::Hub;
use crate::auth::{Audit, Gate, Sessions};
use crate::bus::Bus;
use crate::cluster::Shards;
use crate::config::Config;
use crate::dialect::scripts::Scripts;
use crate::dialect::{DataLimits, ErrorFormat};
use crate::net::{Peers, Tls};
use crate::outlets::Outlets;

/// Limits of the Redis-protocol side.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) data: DataLimits,
    /// Connections at once.
    pub(crate) connections_max: usize,
    /// Bytes of messages waiting for a subscriber that reads too slowly; beyond, it is disconnected.
    pub(crate) subscriber_bytes_max: usize,
    /// Commands queued in a transaction.
    pub(crate) transaction_calls_max: usize,
    /// Channels and patterns one connection subscribes to.
    pub(crate) subscriptions_max: usize,
    /// Numbers SELECT takes.
    pub(crate) databases: usize,
    pub(crate) wire: haul_client::resp::Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            data: DataLimits::default(),
            connections_max: 10_000,
            subscriber_bytes_max: 32 << 20,
            transaction_calls_max: 100_000,
            subscriptions_max: 10_000,
            databases: 16,
            wire: haul_client::resp::Limits::default(),
        }
    }
}

/// Who is let in, through what, and where it is written down.
pub(crate) struct Guard {
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Audit,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// One server, shared by its connections.
pub(crate) struct Server {
    pub(crate) shard: Shards,
    /// Set once it has started; not at all where it is off.
    pub(crate) serverless: std::sync::OnceLock<Arc<crate::serverless::Daemon>>,
    pub(crate) hub: Hub,
    pub(crate) bus: Bus,
    pub(crate) tracer: crate::trace::Tracer,
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Audit,
    pub(crate) sessions: Sessions,
    /// How the figures went lately.
    pub(crate) trends: crate::http::Trends,
    pub(crate) operations: crate::http::Operations,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) peers: Peers,
    pub(crate) net: crate::net::Limits,
    pub(crate) scripts: Mutex<Scripts>,
    /// The slow log's settings as profilers left them.
    pub(crate) slowlog: Mutex<std::collections::BTreeMap<&'static str, String>>,
    pub(crate) limits: Limits,
    pub(crate) error_format: ErrorFormat,
    pub(crate) lua_data: bool,
    pub(crate) blueque_strict: bool,
    pub(crate) started_at: f64,
    pub(crate) port: u16,
    pub(crate) data_path: String,
    pub(crate) durability: String,
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_seen: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) http_requests: crate::http::Requests,
    /// Queues that metrics show by name.
    pub(crate) metrics_queues_max: usize,
    pub(crate) next_connection: AtomicU64,
    stopping: watch::Sender<bool>,
    /// The same, to be asked at every turn of every connection.
    is_stopping: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        config: &Config,
        shard: impl Into<Shards>,
        outlets: Outlets,
        port: u16,
        guard: Guard,
    ) -> Self {
        let data = std::fs::canonicalize(&config.data).unwrap_or_else(|_| config.data.clone());
        let slowlog =
            [("slowlog-log-slower-than", "10000".to_owned()), ("slowlog-max-len", "128".to_owned())];
        Server {
            shard: shard.into(),
            serverless: std::sync::OnceLock::new(),
            hub: outlets.hub,
            bus: outlets.bus,
            tracer: outlets.tracer,
            gate: guard.gate,
            audit: guard.audit,
            sessions: Sessions::default(),
            trends: crate::http::Trends::open(&data),
            operations: crate::http::Operations::open(&data, crate::clock::now()),
            tls: guard.tls,
            peers: Peers::new(&config.net),
            net: config.net.clone(),
            scripts: Mutex::default(),
            slowlog: Mutex::new(slowlog.into()),
            limits: config.limits.clone(),
            error_format: config.error_format,
            lua_data: config.lua_data,
            blueque_strict: config.blueque_strict,
            started_at: crate::clock::now(),
            port,
            data_path: data.display().to_string(),
            durability: config.durability.to_string(),
            connections: AtomicUsize::new(0),
            connections_seen: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            http_requests: crate::http::Requests::default(),
            metrics_queues_max: config.metrics_queues_max,
            next_connection: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Who waits is answered now, and nobody waits any more.
    pub(crate) fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stopping.send_replace(true);
        self.shard.end_waits();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Becomes true when the server stops: what has no end by itself ends then.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub(crate) fn scripts(&self) -> std::sync::MutexGuard<'_, Scripts> {
        self.scripts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
