//! Serverless: store a function, post payloads, and they are run: asynchronously, durably, at least once. A serverless
//! job is a job like any other: its queue and klass are the job type, its worker the daemon's sysid.
//!
//! - `payload`: payloads as a job's data. `outcome`: what a run came to. `scheduler`: which type runs next. Pure, all three.
//! - `handlers`: stored code. `jobs`: the engine as the daemon sees it. `sysid`: the daemon's identity.
//! - `ingest`: from the journal into the engine, in bulk.
//! - `context`: what handlers run in, with `harness` inside the interpreters and `confine` around them.
//! - `view`: a job in the words of the older document.
//! - `runner`: the loop that takes batches and runs them. `settle`: what happens to a job that has stopped.

pub(crate) mod confine;
mod context;
pub(crate) mod handlers;
mod ingest;
pub(crate) mod jobs;
mod outcome;
mod payload;
mod runner;
mod scheduler;
mod settle;
mod sysid;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use haul_engine::Name;
use haul_journal::{Ids, Journal, Options, Sysid};
use tokio::sync::{Notify, watch};

use context::{Bounds, Maker};
use handlers::Handlers;
use jobs::Jobs;
pub(crate) use scheduler::Policy;

use crate::clock;
use crate::cluster::Shards;

/// Locks are renewed this often, or oftener where they are short.
const RENEW_EVERY: Duration = Duration::from_secs(29);

/// What can be set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Run handlers; without, jobs are only accepted.
    pub(crate) run: bool,
    /// Batches that run at once.
    pub(crate) contexts_max: usize,
    /// Jobs after which a context ends.
    pub(crate) context_jobs_max: usize,
    pub(crate) context_idle: Duration,
    pub(crate) require_confinement: bool,
    pub(crate) policy: Policy,
    /// Until a job that could not finish is tried again.
    pub(crate) retry_delay: Duration,
    /// A job older than this is not tried again.
    pub(crate) retry_time: Duration,
    /// How long a lock lasts that is not renewed.
    pub(crate) lock: Duration,
    /// Failed jobs are removed after this long; zero: never.
    pub(crate) failed_keep: Duration,
    /// Jobs that nobody ran are removed after this long; zero: never.
    pub(crate) unrun_keep: Duration,
    /// With so much in the journal, more is refused.
    pub(crate) journal_bytes_max: usize,
}

impl Settings {
    fn renew_every(&self) -> Duration {
        RENEW_EVERY.min(self.lock / 3)
    }
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            run: true,
            contexts_max: 2 * cores,
            context_jobs_max: 100,
            context_idle: Duration::from_secs(60),
            require_confinement: false,
            policy: Policy::Fair,
            retry_delay: Duration::from_secs(300),
            retry_time: Duration::from_secs(6 * 3600),
            lock: Duration::from_secs(300),
            failed_keep: Duration::from_secs(14 * 86_400),
            unrun_keep: Duration::from_secs(30 * 86_400),
            journal_bytes_max: 4 << 30,
        }
    }
}

/// What a tenant's jobs have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) jobs: u64,
    pub(crate) run_micros: u64,
    /// What was run around them.
    pub(crate) shared_micros: u64,
}

/// What came of the jobs that one version of a handler has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) retry: u64,
    pub(crate) error: u64,
    pub(crate) run_micros: u64,
}

impl Tally {
    fn count(&mut self, code: outcome::Code, micros: u64) {
        self.run_micros += micros;
        *match code {
            outcome::Code::Ok => &mut self.ok,
            outcome::Code::Failed => &mut self.failed,
            outcome::Code::Retry => &mut self.retry,
            outcome::Code::Error => &mut self.error,
        } += 1;
    }
}

/// One server's serverless side.
pub(crate) struct Daemon {
    pub(crate) journal: Journal,
    pub(crate) handlers: Handlers,
    pub(crate) jobs: Jobs,
    pub(crate) settings: Settings,
    maker: Arc<Maker>,
    /// Whether batches are started; accepting goes on.
    running: AtomicBool,
    /// Types that something was added to.
    fresh: Mutex<BTreeSet<(Name, String)>>,
    /// Told when something may be to do.
    wake: Notify,
    /// Jobs whose locks must be kept.
    held: Mutex<BTreeSet<(Name, Name)>>,
    usage: Mutex<BTreeMap<Name, Usage>>,
    /// By tenant and version.
    tallies: Mutex<BTreeMap<(Name, String), Tally>>,
    /// The sysid in use, once it was reserved.
    reserved: tokio::sync::Mutex<Option<Sysid>>,
    /// How often a sysid was lost: what runs under one ends with it.
    lost: watch::Sender<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn now_ms() -> u64 {
    (clock::now() * 1000.0) as u64
}

/// Remembers where contexts have their folders, and removes those of a server that was killed here.
fn tidy_contexts(data: &Path, folder: &Path) {
    let link = data.join("contexts");
    let replaced = match std::fs::read_link(&link) {
        Ok(before) => remove_contexts(&before).and_then(|()| std::fs::remove_file(&link)),
        Err(_) => Ok(()),
    };
    if let Err(error) = replaced.and_then(|()| std::os::unix::fs::symlink(folder, &link)) {
        tracing::warn!(link = %link.display(), %error, "contexts of a killed server may stay behind");
    }
}

fn remove_contexts(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Daemon {
    /// Opens the journal and starts what fills the engine from it and runs what is there.
    pub(crate) async fn start(
        data: PathBuf,
        shard: Shards,
        settings: Settings,
        stop: watch::Receiver<bool>,
    ) -> anyhow::Result<(Arc<Self>, tokio::task::JoinHandle<()>)> {
        let program = std::env::current_exe().context("the program cannot find itself")?;
        let ids = Arc::new(Ids::new(sysid::candidate()));
        let mut options = Options::new(data.join("journal"));
        options.backlog_bytes_max = settings.journal_bytes_max as u64;
        let (journal, recovered) = Journal::open(options, ids).context("the journal cannot be opened")?;
        if recovered != haul_journal::Recovered::default() {
            tracing::info!(
                torn_bytes = recovered.torn_bytes,
                backlog_bytes = recovered.backlog_bytes,
                "journal opened"
            );
        }
        let folder = std::env::temp_dir().join(format!("haul-{}", journal.ids().sysid().as_str()));
        tidy_contexts(&data, &folder);
        let maker = Maker::new(program, folder, Bounds::default(), &settings);
        let daemon = Arc::new(Daemon {
            journal,
            handlers: Handlers::default(),
            jobs: Jobs { shard, lock_seconds: settings.lock.as_secs_f64() },
            running: AtomicBool::new(settings.run),
            settings,
            maker: Arc::new(maker),
            fresh: Mutex::default(),
            wake: Notify::new(),
            held: Mutex::default(),
            usage: Mutex::default(),
            tallies: Mutex::default(),
            reserved: tokio::sync::Mutex::new(None),
            lost: watch::Sender::new(0),
        });
        // They are looked at again and again: a shard that is on its way between nodes is no reason to do without.
        if let Err(error) = daemon.reload_all().await {
            tracing::warn!(%error, "handlers could not be looked at yet");
        }
        let is_used = recovered.backlog_bytes > 0 || !daemon.handlers.types().is_empty();
        if is_used && let Err(error) = daemon.identity().await {
            tracing::warn!(%error, "no sysid could be reserved yet");
        }
        let task = tokio::spawn(daemon.clone().serve(stop));
        Ok((daemon, task))
    }

    async fn serve(self: Arc<Self>, stop: watch::Receiver<bool>) {
        let ingest = tokio::spawn(ingest::run(self.clone(), stop.clone()));
        let renew = tokio::spawn(sysid::run(self.clone(), stop.clone()));
        runner::run(self.clone(), stop).await;
        let _ = ingest.await;
        let _ = renew.await;
        self.give_back().await;
        sysid::release(&self).await;
        if let Err(error) = remove_contexts(&self.maker.folder) {
            tracing::warn!(%error, "the contexts' folder could not be removed");
        }
    }

    /// Gives back what still runs: others need not wait for the locks to end.
    async fn give_back(&self) {
        let held = std::mem::take(&mut *lock(&self.held));
        let sysid = Name::from(self.journal.ids().sysid().as_str());
        for (tenant, jid) in held {
            if let Err(error) = self.jobs.unget(&tenant, vec![jid], &sysid).await {
                tracing::warn!(%error, "a job could not be given back; it is free when its lock ends");
            }
        }
    }

    /// Learns anew what handlers there are.
    async fn reload_all(&self) -> Result<(), jobs::StoreError> {
        for tenant in self.jobs.tenants().await? {
            self.reload(&tenant).await?;
        }
        Ok(())
    }

    pub(crate) async fn reload(&self, tenant: &Name) -> Result<(), jobs::StoreError> {
        let options = self.jobs.options(tenant).await?;
        self.handlers.load(tenant, &options);
        // What is not stored any more is not counted any more.
        lock(&self.tallies).retain(|(of, id), _| of != tenant || self.handlers.has_version(tenant, id));
        Ok(())
    }

    /// Removes versions of handlers that a newer one took the place of before a moment.
    async fn drop_superseded(&self, before_ms: u64) -> Result<(), jobs::StoreError> {
        for (tenant, jobtype, id) in self.handlers.superseded(before_ms) {
            self.jobs.set_option(&tenant, handlers::option(&jobtype, &id), None).await?;
            self.reload(&tenant).await?;
        }
        Ok(())
    }

    /// The sysid, reserved when it is first needed.
    pub(crate) async fn identity(&self) -> Result<Sysid, jobs::StoreError> {
        let mut reserved = self.reserved.lock().await;
        if let Some(sysid) = &*reserved {
            return Ok(sysid.clone());
        }
        let sysid = sysid::reserve(&self.jobs, self.journal.ids().sysid()).await?;
        self.journal.ids().rename(sysid.clone());
        *reserved = Some(sysid.clone());
        Ok(sysid)
    }

    /// Starts or stops running; accepting goes on.
    pub(crate) fn set_running(&self, on: bool) {
        self.running.store(on && self.settings.run, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Stops what runs under a sysid that is no longer ours; others may have its jobs.
    fn stop_all(&self) {
        self.lost.send_modify(|times| *times += 1);
        lock(&self.held).clear();
    }

    pub(crate) fn usage(&self, tenant: &Name) -> Usage {
        lock(&self.usage).get(tenant).copied().unwrap_or_default()
    }

    /// What came of the jobs that a version has run since the start.
    pub(crate) fn tally(&self, tenant: &Name, handler: &handlers::Handler) -> Tally {
        lock(&self.tallies).get(&(tenant.clone(), handler.id.clone())).copied().unwrap_or_default()
    }

    /// Something was added to a type.
    fn added(&self, types: impl IntoIterator<Item = (Name, String)>) {
        lock(&self.fresh).extend(types);
        self.wake.notify_one();
    }
}

/// Says what this system lacks for handlers to be confined fully; an error if that was demanded.
pub(crate) fn check_confinement(settings: &Settings) -> anyhow::Result<()> {
    if !settings.run {
        return Ok(());
    }
    let program = std::env::current_exe().context("the program cannot find itself")?;
    let lacks = confine::lacking(&program).unwrap_or_else(|error| error.to_string());
    if lacks.is_empty() {
        return Ok(());
    }
    if settings.require_confinement {
        anyhow::bail!(
            "handlers cannot be confined as --require-confinement demands: this system lacks {lacks}"
        );
    }
    tracing::warn!(lacks, "handlers are confined only in part: this system lacks something");
    Ok(())
}
