//! `haul serve`: opens the store, loads the engine, listens, and stops cleanly.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use haul_store::{Access, DiskOptions, DiskStore, ObjectOptions, Place, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::auth::tokens::Tokens;
use crate::auth::{Audit, Gate, SharedTokens, Token, audit};
use crate::clock;
use crate::cluster::{self, Keeper, Meta, Presence, Shards};
use crate::config::{Config, Durability, SharedStore};
use crate::net::{Tls, accept};
use crate::outlets::Outlets;
use crate::resp::{Guard, Lanes, Redis, Server};
use crate::shard::{self, Common, Core, OpenStore, Settings, Shard};
use crate::trace::Tracer;

/// The store's options that these settings call for.
pub(crate) fn disk_options(config: &Config) -> DiskOptions {
    let mut options = DiskOptions::new(&config.data);
    options.durability = match config.durability {
        Durability::Always => haul_store::Durability::Always,
        Durability::Interval(every) => haul_store::Durability::Interval(every),
    };
    if let Some(bytes) = config.log_bytes_max {
        options.log_bytes_max = bytes;
        // A small log is still several segments, or it could never be folded while it is written.
        options.segment_bytes = options.segment_bytes.min(bytes / 4);
        options.checkpoint_bytes = options.checkpoint_bytes.min(bytes / 2);
    }
    options
}

/// File descriptors kept for the store, the listeners and the rest: connections must not use them up.
const DESCRIPTORS_KEPT: u64 = 512;

/// Asks for as many file descriptors as the connections need, and serves fewer connections if there are not enough.
fn reserve_descriptors(limits: &mut crate::resp::Limits) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = limits.connections_max as u64 + DESCRIPTORS_KEPT;
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(u64::MAX);
    let mut have = now.current.unwrap_or(u64::MAX);
    let asked = wanted.min(most);
    if asked > have
        && setrlimit(Resource::Nofile, Rlimit { current: Some(asked), maximum: now.maximum }).is_ok()
    {
        have = asked;
    }
    if have < wanted {
        let possible =
            usize::try_from(have.saturating_sub(DESCRIPTORS_KEPT).max(have / 2)).unwrap_or(usize::MAX);
        tracing::warn!(
            file_descriptors = have,
            connections_max = possible,
            "too few file descriptors for connections-max: fewer connections are served; raise ulimit -n"
        );
        limits.connections_max = possible;
    }
}

/// What holds the data, and how to let go of it.
enum Holding {
    /// A folder: the shard, its end, and how long it took to load.
    Folder(Shard, shard::Ending, Duration),
    /// A store that nodes share.
    Shared(Keeper),
}

impl Holding {
    /// Whether it ended by itself, which a person must see to.
    fn has_ended(&self) -> bool {
        matches!(self, Holding::Folder(_, ending, _) if ending.is_finished())
    }

    /// How many jobs were loaded, in what time; of a shared store's shards their keeper tells.
    fn loaded(&self) -> Option<(usize, Duration)> {
        match self {
            Holding::Folder(shard, _, took) => Some((shard.life().jobs.load(Ordering::Relaxed), *took)),
            Holding::Shared(_) => None,
        }
    }

    /// Finishes what has arrived and closes the data.
    async fn close(self) -> anyhow::Result<()> {
        match self {
            Holding::Shared(keeper) => keeper.leave().await,
            Holding::Folder(shard, ending, _) => {
                shard.stop();
                let closed = ending.await.context("the shard ended unexpectedly")?;
                closed.context("the data could not be closed cleanly; nothing acknowledged is lost")?;
            }
        }
        Ok(())
    }
}

/// Takes hold of the data.
async fn hold(
    config: &Config,
    place: Option<Arc<Place>>,
    outlets: &Outlets,
    presence: Presence,
    lanes: &Lanes,
    common: Common,
) -> anyhow::Result<(Shards, Holding)> {
    if let (Some(store), Some(place)) = (&config.store, place) {
        let shards = join(store, place, presence, outlets.clone(), common).await?;
        let keeper = shards.keeper().cloned().context("a shared store has a keeper")?;
        return Ok((shards, Holding::Shared(keeper)));
    }
    let began = clock::instant();
    let (core, open) = load(config).await?;
    let took = began.elapsed();
    let (settings, common) = (Settings::default(), common.at(lanes.home()));
    let (shard, ending) = shard::start_with(core, open, settings, Box::new(outlets.clone()), common)?;
    Ok((shard.clone().into(), Holding::Folder(shard, ending, took)))
}

/// Joins the nodes of a shared store.
async fn join(
    store: &SharedStore,
    place: Arc<Place>,
    mut presence: Presence,
    outlets: Outlets,
    common: Common,
) -> anyhow::Result<Shards> {
    let meta = Meta::open(&place, store.shards).await?;
    let address = store.cluster.listen;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("{address} is taken; choose another address for the nodes with --node"))?;
    presence.address = match &store.cluster.advertise {
        Some(advertise) => advertise.clone(),
        None => listener.local_addr()?.to_string(),
    };
    tracing::info!(store = place.url(), shards = meta.shards, node = presence.address, "joining the nodes");
    let outward = outlets.outward.clone();
    outward.attach(outlets.hub.clone(), outlets.bus.clone());
    cluster::start(cluster::Start {
        options: object_options(store, place.clone())?,
        place,
        meta,
        settings: store.cluster.clone(),
        rounds: Settings { rounds_in_flight_max: store.rounds_in_flight_max, ..Settings::default() },
        presence,
        listener,
        outlets,
        common,
    })
    .await
}

/// Reaches the bucket, and makes sure that it is fit.
pub(crate) async fn open_place(url: &str, access: &Access) -> anyhow::Result<Place> {
    let place = Place::new(url, access)?;
    let name: String = clock::random_id().iter().map(|byte| format!("{byte:02x}")).collect();
    place.probe(&format!("probe/{name}")).await?;
    Ok(place)
}

/// How a shard of the store is opened; its tasks run on threads of their own.
pub(crate) fn object_options(store: &SharedStore, place: Arc<Place>) -> anyhow::Result<ObjectOptions> {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    let runtime = match RUNTIME.get() {
        Some(runtime) => runtime,
        None => {
            let made = tokio::runtime::Builder::new_multi_thread()
                .thread_name("haul-store")
                .enable_all()
                .build()
                .context("no threads for the store")?;
            RUNTIME.get_or_init(|| made)
        }
    };
    let mut options = ObjectOptions::new(place, "", runtime.handle().clone());
    options.flush_interval = store.flush_interval;
    // Far less than it takes for another node to think that this one is gone.
    options.trust = store.cluster.presence_interval;
    // Any request has failed by then, and has been sent again.
    options.give_up = store.access.request_timeout * 3;
    options.cache_bytes = store.cache_bytes;
    options.disk_cache.clone_from(&store.disk_cache);
    Ok(options)
}

/// Serves until a signal says stop.
pub(crate) async fn run(mut config: Config) -> anyhow::Result<()> {
    reserve_descriptors(&mut config.limits);
    let place = match &config.store {
        Some(store) => Some(Arc::new(open_place(&store.url, &store.access).await?)),
        None => None,
    };
    let gate = open_gate(&config, place.as_ref()).await?;
    let tls = config.tls.clone().map(Tls::new).transpose()?.map(Arc::new);
    let redis = TcpListener::bind(config.redis)
        .await
        .with_context(|| format!("{} is taken; choose another address with --redis", config.redis))?;
    let http = bind_http(&config).await?;
    let tracer = config.otlp.clone().map(Tracer::start).unwrap_or_default();
    let outlets = Outlets::new(config.limits.subscriber_bytes_max).traced(tracer.clone());
    let common = Common::default();
    // They outlast the shard, which may live on one of them.
    let lanes = Arc::new(Lanes::start(&common).context("no thread for connections could be started")?);
    let presence = Presence {
        redis: redis.local_addr()?.to_string(),
        http: http.as_ref().map(TcpListener::local_addr).transpose()?.map(|address| address.to_string()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Presence::default()
    };
    let (shards, holding) = hold(&config, place, &outlets, presence, &lanes, common).await?;
    let (audit, audit_thread) = Audit::start(&config.data).context("the audit log cannot be started")?;
    let guard = Guard { gate: gate.clone(), audit, tls: tls.clone() };
    let server = Arc::new(Server::new(&config, shards, outlets, redis.local_addr()?.port(), guard));
    let loaded = holding.loaded();
    let http_address = match &http {
        Some(listener) => listener.local_addr()?.to_string(),
        None => "off".to_owned(),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        redis = %redis.local_addr()?,
        http = %http_address,
        data = %server.data_path,
        durability = %config.durability,
        tokens = gate.is_required(),
        tls = tls.is_some(),
        jobs = loaded.map(|(jobs, _)| jobs),
        loaded_in = loaded.map(|(_, took)| tracing::field::debug(took)),
        "haul is ready"
    );
    let (stop, stopped) = watch::channel(false);
    let serverless = start_serverless(&config, &server, stopped.clone()).await?;
    let redis_side = Redis::on(lanes.clone(), server.clone());
    let noting = server.clone();
    let note = move |what, token: &Token| noting.audit.note(audit::of_token(what, token, "store", None));
    tokio::spawn(gate.watch(Box::new(note)));
    tls.map(|tls| tokio::spawn(tls.watch()));
    let http = http.map(|http| tokio::spawn(crate::http::serve(http, server.clone(), stopped.clone())));
    let accepting = tokio::spawn(accept(redis, server.clone(), redis_side, stopped));
    wait_for_signal(&holding).await?;
    tracing::info!("stopping: what has arrived is finished, the data is closed");
    server.begin_stop();
    stop.send_replace(true);
    accepting.await?;
    if let Some(http) = http {
        http.await?;
    }
    if let Some(serverless) = serverless {
        serverless.await?;
    }
    holding.close().await?;
    server.audit.stop();
    let _ = tokio::task::spawn_blocking(move || audit_thread.join()).await;
    tracer.finish().await;
    tracing::info!("stopped");
    Ok(())
}

/// Starts the journal and what runs handlers, unless that is off.
async fn start_serverless(
    config: &Config,
    server: &Arc<Server>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    let Some(settings) = config.serverless.clone() else { return Ok(None) };
    crate::serverless::check_confinement(&settings)?;
    let data = config.data.clone();
    // What needs no journal goes on without: a full disk, for one, still serves looks.
    match crate::serverless::Daemon::start(data, server.shard.clone(), settings, stop).await {
        Ok((daemon, task)) => {
            let _ = server.serverless.set(daemon);
            Ok(Some(task))
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "handlers are off until the next start");
            Ok(None)
        }
    }
}

/// The tokens; an address that others can reach needs at least one, or to be insisted on.
async fn open_gate(config: &Config, place: Option<&Arc<Place>>) -> anyhow::Result<Arc<Gate>> {
    let (gate, home) = match (&config.store, place) {
        (Some(store), Some(place)) => {
            (open_shared_gate(config, store, place).await?, format!("--store {}", store.url))
        }
        _ => (Gate::open(&config.data)?, format!("--data {}", config.data.display())),
    };
    let public = config.public_address().filter(|_| !config.allow_public);
    if let Some(bound) = public
        && !gate.is_required()
    {
        anyhow::bail!(
            "{bound} can be reached from other machines and there is no token: make one with `haul token add NAME --role admin --tenant '*' {home}`, listen on 127.0.0.1, or insist with --allow-public"
        );
    }
    Ok(Arc::new(gate.closed_without_tokens(public.is_some())))
}

/// Nodes that share a store have their tokens there; those of a data folder are not forgotten in silence.
async fn open_shared_gate(config: &Config, store: &SharedStore, place: &Arc<Place>) -> anyhow::Result<Gate> {
    let gate = Gate::open_shared(SharedTokens::new(place.clone()), store.cluster.presence_interval).await?;
    let left = Tokens::read(&config.data)?.is_some_and(|tokens| !tokens.is_empty());
    if left && !gate.is_required() {
        let data = config.data.display();
        anyhow::bail!(
            "there are tokens in {data} and none in the store, where nodes have theirs: put them there with `haul token copy --data {data} --store {}`",
            store.url
        );
    }
    Ok(gate)
}

/// Opens the store and loads the engine from it.
async fn load(config: &Config) -> anyhow::Result<(Core, OpenStore)> {
    let options = disk_options(config);
    let mut open: OpenStore =
        Box::new(move || Ok(Box::new(DiskStore::open(options.clone())?) as Box<dyn Store>));
    let core = tokio::task::spawn_blocking(move || {
        let store = open()?;
        Core::load(store).map(|core| (core, open))
    });
    core.await?.with_context(|| format!("the data in {} could not be opened", config.data.display()))
}

async fn bind_http(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = config.http else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    bound
        .map(Some)
        .with_context(|| format!("{address} is taken; choose another address with --http, or --http off"))
}

/// SIGTERM or SIGINT; or the shard has given up, which a person must see to.
async fn wait_for_signal(holding: &Holding) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut look = tokio::time::interval(std::time::Duration::from_millis(250));
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = look.tick() => if holding.has_ended() {
                return Ok(());
            },
        }
    }
}
