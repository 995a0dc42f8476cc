//! What the rest of the server holds: calls go in, each to its tenant's shard, wherever that is.

use std::sync::Arc;
use std::time::Duration;

use haul_engine::{Call, Command, Name, Reply};
use haul_store::Fault;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::keeper::Keeper;
use super::link::{Link, Told};
use super::outward::Outward;
use crate::shard::{Common, Counters, Delivery, Fetch, Gone, Outcome, Shard};

/// Before asking again a node that said the shard is not there.
const AGAIN: Duration = Duration::from_millis(100);

/// Where a shard is.
#[derive(Clone, Default)]
pub(crate) enum Route {
    Here(Shard),
    There(Arc<Link>),
    /// On its way from one node to another, or its node is gone.
    #[default]
    Nowhere,
}

/// Where all shards are.
pub(crate) struct Routes {
    of: Vec<watch::Sender<Route>>,
    patience: Duration,
    pub(super) outward: Outward,
    pub(super) common: Common,
}

/// The shards of this data set. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Shards {
    /// One shard, in a folder of this machine.
    One(Shard),
    /// Many, on many nodes.
    Many { routes: Arc<Routes>, keeper: Keeper },
}

impl From<Shard> for Shards {
    fn from(shard: Shard) -> Self {
        Shards::One(shard)
    }
}

type Watched = Vec<(Name, Name, u64)>;

impl Shards {
    /// See [`Shard::ask`]. Calls of tenants in different shards are applied shard by shard.
    pub(crate) async fn ask(&self, calls: Vec<Call>, watched: Watched) -> Result<Delivery, Gone> {
        match self {
            Shards::One(shard) => shard.ask(calls, watched).await,
            Shards::Many { routes, .. } => Ok(routes.ask(calls, watched).await),
        }
    }

    /// See [`Shard::wait`].
    pub(crate) async fn wait(&self, call: Call, seconds: f64) -> Result<Delivery, Gone> {
        match self {
            Shards::One(shard) => shard.wait(call, seconds).await,
            Shards::Many { routes, .. } => {
                let shard = routes.shard_of(&call.tenant);
                Ok(routes.ask_shard(shard, vec![call], Vec::new(), Some(seconds)).await)
            }
        }
    }

    /// Figures of the shards that are here.
    pub(crate) fn counters(&self) -> &Counters {
        match self {
            Shards::One(shard) => shard.counters(),
            Shards::Many { routes, .. } => &routes.common.counters,
        }
    }

    /// Answers everybody who waits, and lets nobody wait any more.
    pub(crate) fn end_waits(&self) {
        match self {
            Shards::One(shard) => shard.end_waits(),
            Shards::Many { routes, .. } => routes.all_here().for_each(|shard| shard.end_waits()),
        }
    }

    /// Whether every shard is somewhere.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Shards::One(_) => true,
            Shards::Many { routes, .. } => {
                routes.of.iter().all(|route| !matches!(*route.borrow(), Route::Nowhere))
            }
        }
    }

    /// The one shard, if the data is in a folder.
    pub(crate) fn only(&self) -> Option<&Shard> {
        match self {
            Shards::One(shard) => Some(shard),
            Shards::Many { .. } => None,
        }
    }

    /// The nodes, if there are many.
    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        match self {
            Shards::One(_) => None,
            Shards::Many { keeper, .. } => Some(keeper),
        }
    }

    /// How other nodes are told.
    pub(crate) fn outward(&self) -> Option<&Outward> {
        match self {
            Shards::One(_) => None,
            Shards::Many { routes, .. } => Some(&routes.outward),
        }
    }
}

impl Routes {
    pub(super) fn new(shards: u32, patience: Duration, outward: Outward, common: Common) -> Self {
        let of = (0..shards).map(|_| watch::Sender::new(Route::Nowhere)).collect();
        Routes { of, patience, outward, common }
    }

    pub(super) fn shard_of(&self, tenant: &Name) -> u32 {
        haul_cluster::shard_of(tenant, u32::try_from(self.of.len()).unwrap_or(1))
    }

    fn route(&self, shard: u32) -> Route {
        self.of.get(shard as usize).map(|route| route.borrow().clone()).unwrap_or_default()
    }

    /// The shard, if it is here.
    pub(super) fn here(&self, shard: u32) -> Option<Shard> {
        match self.route(shard) {
            Route::Here(shard) => Some(shard),
            _ => None,
        }
    }

    fn all_here(&self) -> impl Iterator<Item = Shard> {
        (0..self.of.len()).filter_map(|shard| self.here(u32::try_from(shard).ok()?))
    }

    /// The shard is here now, or no longer.
    pub(super) fn set(&self, shard: u32, route: Route) {
        if let Some(slot) = self.of.get(shard as usize) {
            slot.send_replace(route);
        }
    }

    /// The shard is at another node, or at none; what is here stays so.
    pub(super) fn point(&self, shard: u32, link: Option<&Arc<Link>>) {
        let Some(slot) = self.of.get(shard as usize) else { return };
        let left = slot.borrow().clone();
        let route = link.cloned().map_or(Route::Nowhere, Route::There);
        match (&left, &route) {
            (Route::Here(_), _) | (Route::Nowhere, Route::Nowhere) => return,
            (Route::There(old), Route::There(new)) if Arc::ptr_eq(old, new) => return,
            _ => {}
        }
        slot.send_replace(route);
        if let Route::There(old) = left {
            old.forget(shard);
        }
    }

    /// In order, those of one shard together.
    async fn ask(&self, calls: Vec<Call>, watched: Watched) -> Delivery {
        let Some(first) =
            calls.first().map(|call| &call.tenant).or(watched.first().map(|(tenant, ..)| tenant))
        else {
            return Delivery { outcomes: Some(Vec::new()) };
        };
        if let [call] = calls.as_slice()
            && matches!(call.command, Command::Tenants)
        {
            return self.tenants(call).await;
        }
        let shard = self.shard_of(first);
        if watched.iter().any(|(tenant, ..)| self.shard_of(tenant) != shard) {
            let what = "a transaction and the keys it watches are of tenants in different shards".to_owned();
            return refused(calls.len(), &Fault::TooLarge { what });
        }
        if calls.iter().all(|call| self.shard_of(&call.tenant) == shard) {
            return self.ask_shard(shard, calls, watched, None).await;
        }
        let mut outcomes = Vec::new();
        let mut rest = calls.into_iter().peekable();
        while let Some(shard) = rest.peek().map(|call| self.shard_of(&call.tenant)) {
            let some: Vec<Call> =
                std::iter::from_fn(|| rest.next_if(|call| self.shard_of(&call.tenant) == shard)).collect();
            let delivery = self.ask_shard(shard, some, Vec::new(), None).await;
            outcomes.extend(delivery.outcomes.unwrap_or_default());
        }
        Delivery { outcomes: Some(outcomes) }
    }

    /// The one question about all tenants: every shard is asked.
    async fn tenants(&self, call: &Call) -> Delivery {
        let shards = 0..u32::try_from(self.of.len()).unwrap_or(0);
        let asked = shards.map(|shard| self.ask_shard(shard, vec![call.clone()], Vec::new(), None));
        let mut names = Vec::new();
        for delivery in futures_util::future::join_all(asked).await {
            match delivery.outcomes.into_iter().flatten().next() {
                Some(Outcome::Done { reply: Ok(Reply::Names(some)), .. }) => names.extend(some),
                other => return Delivery { outcomes: Some(other.into_iter().collect()) },
            }
        }
        names.sort_unstable();
        let outcome = Outcome::Done { reply: Ok(Reply::Names(names)), bodies: Fetch::default() };
        Delivery { outcomes: Some(vec![outcome]) }
    }

    /// Asks whoever has the shard, and again while nothing was done and there is patience left.
    async fn ask_shard(&self, shard: u32, calls: Vec<Call>, watched: Watched, wait: Option<f64>) -> Delivery {
        let began = Instant::from_std(crate::clock::instant());
        let mut deadline = began + self.patience;
        let Some(slot) = self.of.get(shard as usize) else { return refused(calls.len(), &nowhere(shard)) };
        let mut changes = slot.subscribe();
        loop {
            let route = changes.borrow_and_update().clone();
            let left = wait.map(|seconds| (seconds - began.elapsed().as_secs_f64()).max(0.0));
            let told = match route {
                Route::Here(here) => match here.send(calls.clone(), watched.clone(), left).await {
                    Ok(delivery) => Told::Answer(delivery),
                    Err(Gone) => Told::NotDone,
                },
                Route::There(link) => link.ask(shard, calls.clone(), watched.clone(), left).await,
                Route::Nowhere => Told::NotDone,
            };
            match told {
                Told::Answer(delivery) => return delivery,
                Told::Unknown => return refused(calls.len(), &lost(shard)),
                Told::NotDone => {}
            }
            // Whoever waited a while for a job has patience for a hand-over all the same.
            let now = Instant::from_std(crate::clock::instant());
            if left.is_some_and(|left| left > 0.0) {
                deadline = deadline
                    .max(now + self.patience.min(Duration::from_secs_f64(left.unwrap_or(0.0).min(3600.0))));
            }
            if now >= deadline {
                return refused(calls.len(), &nowhere(shard));
            }
            let _ = timeout_at(deadline.min(now + AGAIN), changes.changed()).await;
        }
    }
}

fn nowhere(shard: u32) -> Fault {
    Fault::Retry { what: format!("no node serves shard {shard} yet") }
}

fn lost(shard: u32) -> Fault {
    Fault::Retry { what: format!("the node that served shard {shard} went away; look whether it was done") }
}

fn refused(calls: usize, fault: &Fault) -> Delivery {
    Delivery { outcomes: Some((0..calls).map(|_| Outcome::Fault(fault.clone())).collect()) }
}
