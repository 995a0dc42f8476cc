//! Blocked pops: who waits for what, until when, and when to look again without being told.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use haul_engine::{Call, Command, Engine, KeyCommand, Name, Score};

use super::outlet::Done;

/// A pop that found nothing yet.
pub(crate) struct Waiter {
    pub(crate) call: Call,
    /// Server time.
    pub(crate) deadline: f64,
    pub(crate) done: Done,
}

impl Waiter {
    /// The queues or keys it waits for.
    fn sources(&self) -> &[Name] {
        match &self.call.command {
            Command::Pop(pop) => &pop.queues,
            Command::Keyspace(KeyCommand::Pop { keys, .. }) => keys,
            _ => &[],
        }
    }

    fn want(&self) -> Want {
        match &self.call.command {
            Command::Pop(pop) => Want::Jobs(pop.klasses.clone()),
            _ => Want::Items,
        }
    }
}

/// What one waits for: who wants the same goes away empty-handed alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Want {
    /// Jobs of these klasses; none: any.
    Jobs(Vec<Name>),
    /// What a scratch key has.
    Items,
}

type Source = (Name, Name);

/// All waiters of a shard.
#[derive(Default)]
pub(crate) struct Waiters {
    next_id: u64,
    all: HashMap<u64, Waiter>,
    /// Ids grow, so the first has waited longest. By name first: a touched name knows no tenant.
    of: HashMap<Name, HashMap<Name, HashMap<Want, BTreeSet<u64>>>>,
    deadlines: BTreeSet<(Score, u64)>,
    /// When to look at a queue again, at most once each.
    due: BTreeSet<(Score, Source)>,
    due_of: HashMap<Source, Score>,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn park(&mut self, engine: &Engine, waiter: Waiter, clock: f64) {
        let id = self.next_id;
        self.next_id += 1;
        let (tenant, want) = (waiter.call.tenant.clone(), waiter.want());
        for source in waiter.sources().to_vec() {
            let (ready, due) = engine.outlook(&tenant, &source, clock);
            // Ready and yet empty-handed: something bars the way, and nobody may ever tell that it is gone.
            let due = if ready { Some(clock + 1.0) } else { due };
            self.look_again(&tenant, &source, due);
            let wants = self.of.entry(source).or_default().entry(tenant.clone()).or_default();
            wants.entry_ref(&want).or_default().insert(id);
        }
        self.deadlines.insert((Score::new(waiter.deadline), id));
        self.all.insert(id, waiter);
    }

    /// The tenants that wait for this name.
    pub(crate) fn tenants_of(&self, name: &Name) -> Vec<Name> {
        self.of.get(name).map_or_else(Vec::new, |tenants| tenants.keys().cloned().collect())
    }

    /// Who has waited longest, and is still there, of those who want something else than is known not to be there.
    pub(crate) fn first(&mut self, tenant: &Name, queue: &Name, missing: &[Want]) -> Option<(u64, Want)> {
        loop {
            let wants = self.of.get(queue)?.get(tenant)?.iter().filter(|(want, _)| !missing.contains(want));
            let (id, want) =
                wants.filter_map(|(want, ids)| Some((*ids.first()?, want))).min_by_key(|(id, _)| *id)?;
            match self.all.get(&id) {
                Some(waiter) if !waiter.done.is_closed() => return Some((id, want.clone())),
                _ => drop(self.remove(id)),
            }
        }
    }

    /// Removes those whose client is gone. Without it, clients that come, block on a queue that stays empty, and leave
    /// would each cost memory until their time-out.
    pub(crate) fn sweep(&mut self) {
        let gone: Vec<u64> =
            self.all.iter().filter(|(_, waiter)| waiter.done.is_closed()).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| drop(self.remove(id)));
    }

    pub(crate) fn call(&self, id: u64) -> Option<Call> {
        self.all.get(&id).map(|waiter| waiter.call.clone())
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.all.remove(&id)?;
        self.deadlines.remove(&(Score::new(waiter.deadline), id));
        let (tenant, want) = (&waiter.call.tenant, waiter.want());
        for source in waiter.sources() {
            let Some(tenants) = self.of.get_mut(source) else { continue };
            if let Some(wants) = tenants.get_mut(tenant) {
                if wants.get_mut(&want).is_some_and(|ids| ids.remove(&id) && ids.is_empty()) {
                    wants.remove(&want);
                }
                if wants.is_empty() {
                    tenants.remove(tenant);
                    if let Some(due) = self.due_of.remove(&(tenant.clone(), source.clone())) {
                        self.due.remove(&(due, (tenant.clone(), source.clone())));
                    }
                }
            }
            if tenants.is_empty() {
                self.of.remove(source);
            }
        }
        Some(waiter)
    }

    /// Sets when to look at a queue again.
    pub(crate) fn look_again(&mut self, tenant: &Name, queue: &Name, due: Option<f64>) {
        let source = (tenant.clone(), queue.clone());
        if let Some(old) = self.due_of.remove(&source) {
            self.due.remove(&(old, source.clone()));
        }
        if let Some(due) = due {
            let due = Score::new(due);
            self.due_of.insert(source.clone(), due);
            self.due.insert((due, source));
        }
    }

    /// Everything should be looked at: the state was loaded anew.
    pub(crate) fn look_at_all(&mut self, clock: f64) {
        let sources: Vec<Source> = self
            .of
            .iter()
            .flat_map(|(queue, tenants)| tenants.keys().map(|tenant| (tenant.clone(), queue.clone())))
            .collect();
        for (tenant, queue) in sources {
            self.look_again(&tenant, &queue, Some(clock));
        }
    }

    /// The queues whose moment has come.
    pub(crate) fn due(&mut self, clock: f64) -> HashSet<Name> {
        let mut names = HashSet::new();
        while let Some((due, _)) = self.due.first() {
            if due.get() > clock {
                break;
            }
            if let Some((_, source)) = self.due.pop_first() {
                self.due_of.remove(&source);
                names.insert(source.1);
            }
        }
        names
    }

    /// Waiters that waited long enough.
    pub(crate) fn expired(&mut self, clock: f64) -> Vec<Waiter> {
        let late = self.deadlines.iter().take_while(|(deadline, _)| deadline.get() <= clock);
        let ids: Vec<u64> = late.map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// When to look at a queue again.
    pub(crate) fn next_look(&self) -> Option<f64> {
        self.due.first().map(|(due, _)| due.get())
    }

    /// When somebody has waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<f64> {
        self.deadlines.first().map(|(deadline, _)| deadline.get())
    }
}
