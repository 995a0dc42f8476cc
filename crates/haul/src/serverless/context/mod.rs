//! Contexts: what a handler runs in, kept for later batches. A warm one is an interpreter that has loaded the code; a cold
//! one a folder in which a process is started for each job; an http one needs nothing but connections.

mod cold;
mod http;
mod process;
mod warm;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haul_engine::Name;

use super::Settings;
use super::handlers::{Handler, Lang};
use super::jobs::Job;
use super::outcome::Outcome;
pub(crate) use http::Web;
pub(crate) use process::{FIRST_USER, USERS};

/// Limits of what a handler may use, unless its options say otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Wall clock for a job.
    pub(crate) timeout: Duration,
    /// Processor time for a job.
    pub(crate) cpu: Duration,
    pub(crate) memory_mb: u64,
    pub(crate) processes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) open_files: u64,
    /// Of a context's folder.
    pub(crate) folder_bytes: u64,
    pub(crate) folder_files: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            timeout: Duration::from_secs(120),
            cpu: Duration::from_secs(2),
            memory_mb: 512,
            processes: 64,
            file_bytes: 64 << 20,
            open_files: 256,
            folder_bytes: 256 << 20,
            folder_files: 10_000,
        }
    }
}

/// How contexts are made.
#[derive(Debug)]
pub(crate) struct Maker {
    /// The program whose confined stage is used: this one.
    pub(crate) program: PathBuf,
    /// Where contexts have their folders.
    pub(crate) folder: PathBuf,
    pub(crate) bounds: Bounds,
    pub(crate) require_confinement: bool,
    /// Contexts that run at once.
    pub(crate) contexts_max: usize,
    /// Jobs that a context runs in its life: what is run once for it is spread over them.
    pub(crate) jobs_max: usize,
    pub(crate) web: Web,
    next: AtomicU64,
}

impl Maker {
    pub(crate) fn new(program: PathBuf, folder: PathBuf, bounds: Bounds, settings: &Settings) -> Self {
        Maker {
            program,
            folder,
            bounds,
            require_confinement: settings.require_confinement,
            contexts_max: settings.contexts_max,
            jobs_max: settings.context_jobs_max,
            web: Web::new(),
            next: AtomicU64::new(1),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// What contexts are kept under: a type of a tenant, or what its types share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Type(Name, String),
    Shared(Name, Lang, String),
}

impl Key {
    pub(crate) fn of(tenant: &Name, handler: &Handler) -> Self {
        match &handler.parts.eid {
            Some(eid) if !eid.is_empty() => Key::Shared(tenant.clone(), handler.lang, eid.clone()),
            _ => Key::Type(tenant.clone(), handler.jobtype.clone()),
        }
    }

    pub(crate) fn tenant(&self) -> &Name {
        match self {
            Key::Type(tenant, _) | Key::Shared(tenant, ..) => tenant,
        }
    }
}

/// One batch to run.
pub(crate) struct Batch<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) handler: &'a Handler,
    pub(crate) jobs: &'a [Job],
}

/// What became of a batch.
#[derive(Default)]
pub(crate) struct Ran {
    /// For each job; none: it was not run.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// What `before` took, if it was run now: the tenant has used that, whatever becomes of the context.
    pub(crate) before_micros: u64,
    /// The context can be used again.
    pub(crate) alive: bool,
}

impl Ran {
    /// Nothing of the batch was run: every job has this outcome.
    fn all(count: usize, outcome: &Outcome) -> Self {
        Ran { outcomes: vec![Some(outcome.clone()); count], ..Ran::default() }
    }

    /// Spreads what ran around the jobs over them: the batch's own over this batch, what is run once in a context over
    /// all jobs of its life.
    fn spread(&mut self, batch_micros: u64, once_micros: u64, jobs_max: usize) {
        let count = self.outcomes.iter().flatten().count().max(1) as u64;
        for outcome in self.outcomes.iter_mut().flatten() {
            outcome.shared_micros = batch_micros / count;
            outcome.once_micros = once_micros / jobs_max.max(1) as u64;
        }
    }
}

enum Kind {
    Warm(Box<warm::Warm>),
    Cold(cold::Cold),
    Http(http::Http),
}

/// An environment in which batches of one key run, one after another.
pub(crate) struct Context {
    pub(crate) key: Key,
    kind: Kind,
    /// The version of each type it has loaded.
    versions: Vec<(String, String)>,
    pub(crate) jobs: usize,
    pub(crate) idle_since: Instant,
}

impl Context {
    /// Makes one; fails if the interpreter cannot be started.
    pub(crate) fn start(
        maker: &Arc<Maker>,
        key: Key,
        tenant: &str,
        handler: &Handler,
        now: Instant,
    ) -> Result<Self, String> {
        let kind = match handler.lang {
            Lang::Http => Kind::Http(http::Http::new(maker.clone())),
            Lang::Sh | Lang::Exec => Kind::Cold(cold::Cold::new(maker.clone(), tenant)?),
            Lang::Node | Lang::Python | Lang::Php => {
                Kind::Warm(Box::new(warm::Warm::start(maker, tenant, handler)?))
            }
        };
        Ok(Context { key, kind, versions: Vec::new(), jobs: 0, idle_since: now })
    }

    /// Whether this version of a handler can run in it: no other version of it was loaded.
    pub(crate) fn suits(&self, handler: &Handler) -> bool {
        self.versions.iter().all(|(jobtype, id)| *jobtype != handler.jobtype || *id == handler.id)
    }

    /// The versions it has loaded.
    pub(crate) fn versions(&self) -> &[(String, String)] {
        &self.versions
    }

    /// Runs a batch: `beforeEach`, the jobs in order, `afterEach`; before the first, `before`.
    pub(crate) async fn run(&mut self, batch: &Batch<'_>) -> Ran {
        let is_first = self.versions.is_empty();
        let is_new = !self.versions.iter().any(|(jobtype, _)| *jobtype == batch.handler.jobtype);
        if is_new {
            self.versions.push((batch.handler.jobtype.clone(), batch.handler.id.clone()));
        }
        self.jobs += batch.jobs.len();
        match &mut self.kind {
            Kind::Warm(warm) => warm.run(batch, is_first, is_new).await,
            Kind::Cold(cold) => cold.run(batch, is_first).await,
            Kind::Http(http) => http.run(batch, is_first).await,
        }
    }
}
