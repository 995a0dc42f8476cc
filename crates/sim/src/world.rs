//! The world of one run: engine, store and model side by side. Calls are applied in rounds; a round is committed, or
//! lost in one of the ways a store can lose it, and then both sides go back to what was durable. Every difference ends
//! the run.

mod check;

use std::collections::BTreeSet;

use bytes::Bytes;
use haul_engine::{Call, Changes, Engine, Loader, Name};
use haul_store::{Batch, Inject, MemoryDisk, MemoryStore, Space, Store};

use crate::answer::seen;
use crate::{Model, Outcome, Step, Twist, Workload};

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Steps at most.
    pub steps: usize,
    /// A deliberate mistake in the model.
    pub twist: Option<Twist>,
}

/// Where and how the two sides differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The number of the step, from 0.
    pub step: usize,
    /// In words.
    pub what: String,
}

/// A run that ended, well or not.
#[derive(Debug)]
pub struct Run {
    /// What was done.
    pub steps: Vec<Step>,
    /// How it went wrong, if it did.
    pub difference: Option<Difference>,
}

/// Runs the workload of a seed; `each` sees every step before it is done.
pub fn run_seed(seed: u64, options: Options, each: &mut dyn FnMut(usize, &Step)) -> Run {
    let mut workload = Workload::new(seed);
    let mut world = World::new(options.twist);
    let mut steps = Vec::new();
    for number in 0..options.steps {
        let step = workload.next(&world.model);
        each(number, &step);
        steps.push(step.clone());
        if let Err(what) = world.step(&step) {
            return Run { steps, difference: Some(Difference { step: number, what }) };
        }
    }
    let last = steps.len();
    let difference = world.end().err().map(|what| Difference { step: last, what });
    Run { steps, difference }
}

/// Does the steps of a script again; none: nothing differs.
pub fn replay(steps: &[Step], twist: Option<Twist>) -> Option<Difference> {
    let mut world = World::new(twist);
    for (number, step) in steps.iter().enumerate() {
        if let Err(what) = world.step(step) {
            return Some(Difference { step: number, what });
        }
    }
    world.end().err().map(|what| Difference { step: steps.len(), what })
}

/// What went wrong, in words.
type Checked = Result<(), String>;

struct World {
    disk: MemoryDisk,
    store: MemoryStore,
    engine: Engine,
    /// Does the same calls, to see that they always change the same.
    twin: Engine,
    model: Model,
    /// The model as of the last durable round.
    durable: Model,
    tenants: BTreeSet<Name>,
    now: f64,
    clock: f64,
}

impl World {
    fn new(twist: Option<Twist>) -> Self {
        let disk = MemoryDisk::new();
        World {
            store: disk.open(),
            disk,
            engine: Engine::default(),
            twin: Engine::default(),
            model: Model::new(twist),
            durable: Model::new(twist),
            tenants: BTreeSet::new(),
            now: 0.0,
            clock: 0.0,
        }
    }

    fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Call(call) => {
                self.tenants.insert(call.tenant.clone());
                (self.now, self.clock) = (call.now, call.clock);
                self.call(call)
            }
            Step::Commit(outcome) => self.commit(*outcome),
        }
    }

    /// One command on all sides: answers, events, and who is woken.
    fn call(&mut self, call: &Call) -> Checked {
        let outlook = self.outlook(call);
        let said = self.compare(call)?;
        self.check_wakes(call, &outlook)?;
        let again = self.twin.apply(call.clone());
        self.twin.take_events();
        // The texts are the same ones; which body holds them is seen when the round is stored.
        let same = match (&again, &said) {
            (Err(refusal), crate::Answer::Refused(said)) => refusal == said,
            (Err(_), _) | (_, crate::Answer::Refused(_)) => false,
            _ => true,
        };
        if same {
            Ok(())
        } else {
            Err("the same call, done again on an equal engine, answers differently".to_owned())
        }
    }

    /// One command on the engine and on the model, its answer and its events compared.
    fn compare(&mut self, call: &Call) -> Result<crate::Answer, String> {
        // The twin has no listener: that somebody listens must change nothing.
        self.engine.listen(true);
        let outcome = self.engine.apply(call.clone());
        let notices = self.engine.take_notices();
        if outcome.is_err() && !notices.is_empty() {
            return Err(format!("a refused command tells {notices:?}"));
        }
        let events = self.engine.take_events();
        let bodies = self.store.bodies();
        let fetch = |id: haul_engine::BodyId| -> Option<Bytes> {
            let in_round = self.engine.body_in_round(id).cloned();
            in_round.or_else(|| bodies.get(&id.key()).ok().flatten())
        };
        let said = seen(outcome, &fetch);
        let (expected, expected_events) = self.model.apply(call);
        let unchecked = expected == crate::Answer::Unchecked;
        if !unchecked && said != expected {
            return Err(format!("the engine answers\n  {said:?}\nthe model\n  {expected:?}"));
        }
        if events != expected_events {
            return Err(format!("the engine tells\n  {events:?}\nthe model\n  {expected_events:?}"));
        }
        Ok(said)
    }

    fn commit(&mut self, outcome: Outcome) -> Checked {
        if outcome == Outcome::Crashed {
            return self.reopen(false);
        }
        let changes = self.engine.take_changes();
        check::same_changes(&changes, &self.twin.take_changes())?;
        let batch = batch_of(changes);
        if !batch.is_consistent() {
            return Err("a record is both written and deleted in one batch".to_owned());
        }
        // An empty round is not committed, so that nothing can go wrong with it.
        let outcome = if batch.is_empty() && outcome != Outcome::Restarted { Outcome::Kept } else { outcome };
        let inject = match outcome {
            Outcome::Kept | Outcome::Restarted | Outcome::Crashed => Inject::Succeed,
            Outcome::Failed => Inject::Fail,
            Outcome::Full => Inject::Full,
            Outcome::Lost { kept } => Inject::Lose { kept },
        };
        self.disk.inject(inject);
        let committed = self.store.commit(batch);
        let good = matches!(outcome, Outcome::Kept | Outcome::Restarted);
        match committed {
            Ok(()) if !good => return Err("a commit succeeded that was to fail".to_owned()),
            Err(fault) if good => return Err(format!("a commit failed: {fault}")),
            _ => {}
        }
        match outcome {
            Outcome::Kept => {
                self.durable = self.model.clone();
                self.check()
            }
            Outcome::Restarted | Outcome::Lost { kept: true } => self.reopen(true),
            _ => self.reopen(false),
        }
    }

    /// Drops all memory and starts from what the disk holds: the last round included, or not.
    fn reopen(&mut self, kept: bool) -> Checked {
        if kept {
            self.durable = self.model.clone();
        } else {
            self.model = self.durable.clone();
        }
        self.store = self.disk.open();
        self.engine = load(&mut self.store)?;
        self.twin = load(&mut self.store)?;
        self.check()
    }

    /// Flushes everything: nothing may be left on the disk, not even a record that nobody knows of.
    fn end(&mut self) -> Checked {
        self.commit(Outcome::Restarted)?;
        for tenant in self.tenants.clone() {
            let command = haul_engine::Command::Flush;
            let rules = haul_engine::Rules::QLESS;
            self.call(&Call { tenant, now: 0.0, clock: self.clock, rules, command })?;
        }
        self.commit(Outcome::Kept)?;
        let left: Vec<String> =
            self.disk.records().iter().map(|(space, key, _)| name_of(*space, key)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left on the disk after a flush: {left:?}")) }
    }
}

fn name_of(space: Space, key: &[u8]) -> String {
    match space {
        Space::Header => haul_engine::describe_key(key),
        Space::Body => format!("body {:?}", haul_engine::BodyId::from_key(key)),
    }
}

fn load(store: &mut MemoryStore) -> Result<Engine, String> {
    let mut loader = Loader::default();
    let loaded = store.load(&mut |key, value| {
        let damage = |error: haul_engine::RecordError| haul_store::Fault::Corrupt { what: error.to_string() };
        loader.header(key, value).map_err(damage)
    });
    loaded.map_err(|fault| format!("the store cannot be loaded: {fault}"))?;
    Ok(loader.finish())
}

fn batch_of(changes: Changes) -> Batch {
    let mut batch = Batch::default();
    for (key, value) in changes.puts {
        batch.put(Space::Header, key, value);
    }
    for key in changes.deletes {
        batch.delete(Space::Header, key);
    }
    for (id, bytes) in changes.bodies {
        batch.put(Space::Body, id.key(), bytes);
    }
    for id in changes.dropped {
        batch.delete(Space::Body, id.key());
    }
    batch
}

#[cfg(test)]
mod tests;
