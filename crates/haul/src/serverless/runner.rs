//! The loop that runs handlers: what waits, whose turn it is, a batch taken, a context found or made, the outcome settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use haul_engine::Name;
use tokio::sync::{mpsc, watch};

use super::context::{Batch, Context, Key, Ran};
use super::handlers::Handler;
use super::jobs::Job;
use super::outcome::Outcome;
use super::scheduler::{Candidate, Scheduler};
use super::settle::Stopped;
use super::{Daemon, lock, now_ms};
use crate::auth;
use crate::clock;

/// Between looks for jobs that nobody told of: those that came due, those put by other ways.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between looks at handlers and shares that were changed by other ways.
const RELOAD_EVERY: Duration = Duration::from_secs(5);
/// Between looks for what is too old.
const SWEEP_EVERY: Duration = Duration::from_secs(61);
/// A version of a handler goes so long after a newer one was added, in milliseconds.
const VERSION_MS: u64 = 30 * 86_400_000;
const SWEEP_JOBS: usize = 1000;
/// How long running batches may take when the server stops.
const STOP_WAIT: Duration = Duration::from_secs(10);

type Type = (Name, String);

/// What a batch tells.
enum Event {
    /// It has taken jobs.
    Took { of: Type, asked: usize, taken: usize },
    /// It has ended; a context that can be used again comes back.
    Ended { of: Type, asked: usize, context: Option<Context> },
}

struct Runner {
    daemon: Arc<Daemon>,
    scheduler: Scheduler,
    /// Types that may have jobs, and since when.
    waiting: BTreeMap<Type, u64>,
    idle: Vec<Context>,
    batches: usize,
    events: mpsc::UnboundedSender<Event>,
}

/// Runs until told to stop; then lets batches end.
pub(super) async fn run(daemon: Arc<Daemon>, mut stop: watch::Receiver<bool>) {
    let (events, mut told) = mpsc::unbounded_channel();
    let scheduler = Scheduler::new(daemon.settings.policy);
    let mut runner = Runner {
        daemon: daemon.clone(),
        scheduler,
        waiting: BTreeMap::new(),
        idle: Vec::new(),
        batches: 0,
        events,
    };
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    let mut reload = tokio::time::interval(RELOAD_EVERY);
    reload.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stop.borrow() {
        tokio::select! {
            _ = stop.changed() => break,
            Some(event) = told.recv() => {
                runner.take_in(event);
                while let Ok(event) = told.try_recv() {
                    runner.take_in(event);
                }
            }
            () = daemon.wake.notified() => {}
            _ = look.tick() => runner.look().await,
            _ = sweep.tick() => sweep_old(&daemon).await,
            _ = reload.tick() => if let Err(error) = daemon.reload_all().await {
                tracing::warn!(%error, "handlers could not be looked at");
            },
        }
        runner.note_fresh();
        runner.fill();
    }
    let end = tokio::time::sleep(STOP_WAIT);
    tokio::pin!(end);
    while runner.batches > 0 {
        tokio::select! {
            Some(event) = told.recv() => runner.take_in(event),
            () = &mut end => break,
        }
    }
}

impl Runner {
    fn note_fresh(&mut self) {
        let now = now_ms();
        for of in std::mem::take(&mut *lock(&self.daemon.fresh)) {
            self.waiting.entry(of).or_insert(now);
        }
    }

    /// Looks at all types, and ends contexts that are idle too long or out of date.
    async fn look(&mut self) {
        let idle_max = self.daemon.settings.context_idle;
        let daemon = self.daemon.clone();
        self.idle.retain(|context| {
            let tenant = context.key.tenant();
            let current = |(jobtype, id): &(String, String)| {
                daemon.handlers.newest(tenant, jobtype).is_some_and(|handler| handler.id == *id)
            };
            context.idle_since.elapsed() < idle_max && context.versions().iter().all(current)
        });
        if !daemon.is_running() {
            return;
        }
        let now = now_ms();
        for (tenant, types) in daemon.handlers.types() {
            match daemon.jobs.waiting(&tenant, &types).await {
                Ok(found) => {
                    for jobtype in found {
                        self.waiting.entry((tenant.clone(), jobtype)).or_insert(now);
                    }
                }
                Err(error) => tracing::warn!(%error, "waiting jobs could not be looked for"),
            }
        }
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Took { of, asked, taken } => {
                if taken == asked {
                    // It was served a moment ago: it waits since now.
                    self.waiting.entry(of.clone()).or_insert_with(now_ms);
                } else {
                    let (weight, _) = self.daemon.handlers.share(&of.0);
                    self.scheduler.refund(&auth::tenant_text(&of.0), asked - taken, weight);
                }
            }
            Event::Ended { of, asked, context } => {
                self.batches -= 1;
                let tenant = auth::tenant_text(&of.0);
                self.scheduler.stopped(&tenant, &of.1, asked);
                if !self.waiting.keys().any(|(other, _)| *other == of.0) {
                    self.scheduler.idle(&tenant);
                }
                self.idle.extend(context);
                // The oldest go first: they are the least likely to be wanted.
                let excess = self.idle.len().saturating_sub(2 * self.daemon.settings.contexts_max);
                self.idle.drain(..excess);
            }
        }
    }

    /// Starts batches while there is room and something waits.
    fn fill(&mut self) {
        while self.daemon.is_running() && self.batches < self.daemon.settings.contexts_max {
            let Some(of) = self.choose() else { return };
            self.waiting.remove(&of);
            self.launch(of);
        }
    }

    fn choose(&mut self) -> Option<Type> {
        let named: Vec<(String, &Type, u64)> =
            self.waiting.iter().map(|(of, since)| (auth::tenant_text(&of.0), of, *since)).collect();
        let mut candidates = Vec::with_capacity(named.len());
        let mut types = Vec::with_capacity(named.len());
        for (tenant, of, since_ms) in &named {
            let (_, concurrency) = self.daemon.handlers.share(&of.0);
            if self.scheduler.running(tenant) >= concurrency {
                continue;
            }
            let warm = self.idle.iter().any(|context| match &context.key {
                Key::Type(owner, jobtype) => *owner == of.0 && *jobtype == of.1,
                Key::Shared(owner, ..) => *owner == of.0,
            });
            candidates.push(Candidate { tenant, jobtype: &of.1, since_ms: *since_ms, warm });
            types.push((*of).clone());
        }
        let chance = clock::random_id().iter().take(7).fold(0, |value, byte| value << 8 | u64::from(*byte));
        let chosen = self.scheduler.select(&candidates, now_ms(), chance)?;
        types.get(chosen).cloned()
    }

    fn launch(&mut self, of: Type) {
        let handler = self.daemon.handlers.newest(&of.0, &of.1);
        let context = handler.as_ref().and_then(|handler| {
            let key = Key::of(&of.0, handler);
            let at = self.idle.iter().rposition(|context| context.key == key && context.suits(handler))?;
            Some(self.idle.remove(at))
        });
        let (weight, concurrency) = self.daemon.handlers.share(&of.0);
        let tenant = auth::tenant_text(&of.0);
        let room = concurrency.saturating_sub(self.scheduler.running(&tenant)).max(1);
        let asked = handler.as_ref().map_or(5, |handler| handler.batch_size()).min(room);
        self.scheduler.started(&tenant, &of.1, asked, weight);
        self.batches += 1;
        let work = Work { daemon: self.daemon.clone(), of, asked, handler, events: self.events.clone() };
        tokio::spawn(work.run(context));
    }
}

/// One batch on its way.
struct Work {
    daemon: Arc<Daemon>,
    of: Type,
    asked: usize,
    handler: Option<Arc<Handler>>,
    events: mpsc::UnboundedSender<Event>,
}

impl Work {
    async fn run(mut self, context: Option<Context>) {
        let context = match self.find_handler().await {
            Ok(()) => self.take_and_run(context).await,
            Err(error) => {
                tracing::warn!(%error, jobtype = self.of.1, "no jobs are taken while their handler cannot be looked for");
                context
            }
        };
        let _ = self.events.send(Event::Ended { of: self.of, asked: self.asked, context });
    }

    /// Before its jobs are said to have no handler: another node may have been given one since this one looked.
    async fn find_handler(&mut self) -> Result<(), super::jobs::StoreError> {
        if self.handler.is_none() {
            self.daemon.reload(&self.of.0).await?;
            self.handler = self.daemon.handlers.newest(&self.of.0, &self.of.1);
        }
        Ok(())
    }

    async fn take_and_run(&self, context: Option<Context>) -> Option<Context> {
        let (tenant, jobtype) = &self.of;
        let mut lost = self.daemon.lost.subscribe();
        let sysid = match self.daemon.identity().await {
            Ok(sysid) => Name::from(sysid.as_str()),
            Err(error) => {
                tracing::warn!(%error, "no jobs are taken without a sysid");
                return context;
            }
        };
        let jobs = self.daemon.jobs.take(tenant, jobtype, self.asked, &sysid).await.unwrap_or_else(|error| {
            tracing::warn!(%error, jobtype, "jobs could not be taken");
            Vec::new()
        });
        let taken = jobs.len();
        let of = self.of.clone();
        let _ = self.events.send(Event::Took { of, asked: self.asked, taken });
        if jobs.is_empty() {
            return context;
        }
        let held: Vec<(Name, Name)> = jobs.iter().map(|job| (tenant.clone(), job.jid.clone())).collect();
        lock(&self.daemon.held).extend(held.iter().cloned());
        let client = auth::tenant_text(tenant);
        tracing::debug!(tenant = client, jobtype, count = taken, "jobs run");
        let running = async {
            let (ran, context) = self.run_jobs(&client, &jobs, context).await;
            let stopped =
                Stopped { tenant, client: &client, handler: self.handler.as_deref(), sysid: &sysid };
            stopped.settle(&self.daemon, &jobs, ran).await;
            context
        };
        let context = tokio::select! {
            context = running => context,
            // The sysid is gone: the context ends here, and its jobs when their locks do.
            _ = lost.changed() => return None,
        };
        let mut all = lock(&self.daemon.held);
        held.iter().for_each(|job| {
            all.remove(job);
        });
        context
    }

    async fn run_jobs(&self, client: &str, jobs: &[Job], context: Option<Context>) -> (Ran, Option<Context>) {
        let failed = |why: String| {
            let outcomes = vec![Some(Outcome::error(why)); jobs.len()];
            (Ran { outcomes, ..Ran::default() }, None)
        };
        let Some(handler) = &self.handler else { return failed("no handler".to_owned()) };
        let context = match context {
            Some(context) => Ok(context),
            None => {
                let key = Key::of(&self.of.0, handler);
                Context::start(&self.daemon.maker, key, client, handler, clock::instant())
            }
        };
        let mut context = match context {
            Ok(context) => context,
            Err(why) => return failed(why),
        };
        let ran = context.run(&Batch { tenant: client, handler, jobs }).await;
        context.idle_since = clock::instant();
        let reusable = ran.alive && context.jobs < self.daemon.settings.context_jobs_max;
        (ran, reusable.then_some(context))
    }
}

/// Failed jobs, jobs nobody ran and versions nobody uses do not stay for ever.
async fn sweep_old(daemon: &Daemon) {
    if let Err(error) = daemon.drop_superseded(now_ms().saturating_sub(VERSION_MS)).await {
        tracing::warn!(%error, "old versions of handlers could not be removed");
    }
    let before = |keep: Duration| (!keep.is_zero()).then(|| clock::now() - keep.as_secs_f64());
    let (failed, unrun) = (before(daemon.settings.failed_keep), before(daemon.settings.unrun_keep));
    for (tenant, types) in daemon.handlers.types() {
        if let Some(failed) = failed
            && let Err(error) = daemon.jobs.purge_failed(&tenant, failed, SWEEP_JOBS).await
        {
            tracing::warn!(%error, "old failed jobs could not be removed");
        }
        let Some(unrun) = unrun else { continue };
        for jobtype in types {
            match daemon.jobs.expire_unrun(&tenant, &jobtype, unrun).await {
                Ok(0) => {}
                Ok(count) => {
                    tracing::warn!(tenant = %tenant, jobtype, count, "jobs that nobody ran have expired")
                }
                Err(error) => tracing::warn!(%error, "old jobs could not be removed"),
            }
        }
    }
}
