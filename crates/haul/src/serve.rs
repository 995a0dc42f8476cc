//! `haul serve`: opens the store, loads the engine, listens, and stops cleanly.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use haul_store::{DiskOptions, DiskStore, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::clock;
use crate::config::{Config, Durability};
use crate::dialect::scripts::Scripts;
use crate::resp::{Hub, Listener, Server};
use crate::shard::{self, Core, OpenStore, Settings};

/// The store's options that these settings call for.
pub(crate) fn disk_options(config: &Config) -> DiskOptions {
    let mut options = DiskOptions::new(&config.data);
    options.durability = match config.durability {
        Durability::Always => haul_store::Durability::Always,
        Durability::Interval(every) => haul_store::Durability::Interval(every),
    };
    if let Some(bytes) = config.log_bytes_max {
        options.log_bytes_max = bytes;
    }
    options
}

/// Serves until a signal says stop.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    let options = disk_options(&config);
    let mut open: OpenStore = Box::new(move || Ok(Box::new(DiskStore::open(options.clone())?) as Box<dyn Store>));
    let began = clock::instant();
    let core = tokio::task::spawn_blocking(move || {
        let store = open()?;
        Core::load(store).map(|core| (core, open))
    });
    let (core, open) = core.await?.with_context(|| format!("the data in {} could not be opened", config.data.display()))?;
    let jobs = core.engine().jobs();
    let took = began.elapsed();

    let redis = Listener::bind(config.redis)
        .await
        .with_context(|| format!("{} is taken; choose another address with --redis", config.redis))?;
    let http = match config.http {
        None => None,
        Some(address) => Some(
            tokio::net::TcpListener::bind(address)
                .await
                .with_context(|| format!("{address} is taken; choose another address with --http, or --http off"))?,
        ),
    };
    let hub = Hub::new(config.limits.subscriber_bytes_max);
    let (shard, thread) = shard::start(core, open, Settings::default(), Box::new(hub.clone()))?;
    let data_path = std::fs::canonicalize(&config.data).unwrap_or_else(|_| config.data.clone()).display().to_string();
    let server = Arc::new(Server {
        shard: shard.clone(),
        hub,
        scripts: Mutex::new(Scripts::default()),
        slowlog: Mutex::new(
            [("slowlog-log-slower-than", "10000".to_owned()), ("slowlog-max-len", "128".to_owned())].into(),
        ),
        limits: config.limits.clone(),
        error_format: config.error_format,
        lua_data: config.lua_data,
        started_at: clock::now(),
        port: redis.address()?.port(),
        data_path: data_path.clone(),
        durability: config.durability.to_string(),
        connections: AtomicUsize::new(0),
        connections_seen: AtomicU64::new(0),
        connections_refused: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        next_connection: AtomicU64::new(0),
    });
    let http_address = http.as_ref().map_or_else(|| "off".to_owned(), |http| format!("{:?}", http.local_addr().ok()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        redis = %redis.address()?,
        http = %http_address.trim_start_matches("Some(").trim_end_matches(')'),
        data = %data_path,
        durability = %config.durability,
        jobs,
        loaded_in = ?took,
        "haul is ready"
    );
    let (stop, stopped) = watch::channel(false);
    let http = http.map(|http| tokio::spawn(crate::http::serve(http, server.clone(), stopped.clone())));
    let accepting = tokio::spawn(crate::resp::serve(redis, server.clone(), stopped));
    wait_for_signal(&thread).await?;
    tracing::info!("stopping: what has arrived is finished, the data is closed");
    stop.send_replace(true);
    accepting.await?;
    if let Some(http) = http {
        http.await?;
    }
    shard.stop();
    let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
    match ended {
        Ok(result) => result.context("the data could not be closed cleanly; nothing acknowledged is lost")?,
        Err(_) => anyhow::bail!("the shard's thread ended unexpectedly"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// SIGTERM or SIGINT; or the shard has given up, which a person must see to.
async fn wait_for_signal<T>(thread: &std::thread::JoinHandle<T>) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut look = tokio::time::interval(std::time::Duration::from_millis(250));
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = look.tick() => if thread.is_finished() {
                return Ok(());
            },
        }
    }
}
