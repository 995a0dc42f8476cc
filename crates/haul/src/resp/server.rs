//! What all connections share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::hub::Hub;
use crate::config::Config;
use crate::dialect::scripts::Scripts;
use crate::dialect::{DataLimits, ErrorFormat};
use crate::shard::Shard;

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

/// One server, shared by its connections.
pub(crate) struct Server {
    pub(crate) shard: Shard,
    pub(crate) hub: Hub,
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
    pub(crate) next_connection: AtomicU64,
    stopping: AtomicBool,
}

impl Server {
    pub(crate) fn new(config: &Config, shard: Shard, hub: Hub, port: u16) -> Self {
        let data = std::fs::canonicalize(&config.data).unwrap_or_else(|_| config.data.clone());
        let slowlog =
            [("slowlog-log-slower-than", "10000".to_owned()), ("slowlog-max-len", "128".to_owned())];
        Server {
            shard,
            hub,
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
            next_connection: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Who waits is answered now, and nobody waits any more.
    pub(crate) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.shard.end_waits();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn scripts(&self) -> std::sync::MutexGuard<'_, Scripts> {
        self.scripts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
