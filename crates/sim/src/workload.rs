//! Random calls that are likely to meet each other: few names, small times, short locks. Most calls are meant to
//! succeed, so the workload looks at the model for what is held; the rest are shots in the dark.

mod jobs;
mod settings;

use bytes::Bytes;
use haul_engine::{Call, Command, Name, RankWindow, Rules};

use crate::model::Held;
use crate::{Model, Rng};

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// A call in the open round.
    Call(Box<Call>),
    /// The round ends.
    Commit(Outcome),
}

/// What becomes of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable.
    Kept,
    /// Durable, and then the process starts anew.
    Restarted,
    /// The store fails and keeps nothing.
    Failed,
    /// The disk is full.
    Full,
    /// The answer of the store is lost; it kept the round or not.
    Lost {
        /// Whether it did.
        kept: bool,
    },
    /// The process ends before the commit.
    Crashed,
}

/// The calls of one seed.
pub struct Workload {
    rng: Rng,
    now: f64,
    clock: f64,
    tenants: Vec<Name>,
    rules: Vec<Rules>,
    subjects: Subjects,
}

/// What takes part: a seed has its subjects and few names, so that they meet more often.
#[derive(Clone, Copy, Debug)]
struct Subjects {
    /// How many of the names are used.
    jids: usize,
    queues: usize,
    throttles: bool,
    recurring: bool,
    dependencies: bool,
    keys: bool,
    faults: bool,
}

/// Every dialect.
const RULES: [Rules; 5] = [Rules::QLESS, Rules::QLESS_THROTTLES, Rules::REQLESS, Rules::OLDER, Rules::NATIVE];

/// Names, by kind. The sweep of the state goes over the same ones.
pub(crate) const QUEUES: [&str; 3] = ["a", "b", "c"];
pub(crate) const WORKERS: [&str; 3] = ["w1", "w2", ""];
pub(crate) const TAGS: [&str; 3] = ["x", "y", "z"];
pub(crate) const GROUPS: [&str; 5] = ["g1", "g2", "failed-retries-a", "failed-retries-b", "failed-retries-c"];
pub(crate) const THROTTLES: [&str; 5] = ["t1", "t2", "ql:q:a", "ql:q:b", "ql:q:c"];
pub(crate) const RECURS: [&str; 2] = ["r1", "r2"];
pub(crate) const SCRATCH: [&str; 3] = ["s1", "s2", "ql:qp:x"];
const JIDS: [&str; 8] = ["j1", "j2", "j3", "j4", "j5", "j6", "r1-1", "r1-2"];

impl Workload {
    /// The calls of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rules = match rng.below(3) {
            0 => RULES.to_vec(),
            _ => rng.pick(&RULES).into_iter().collect(),
        };
        let tenants = if rng.one_in(4) { vec!["".into(), "other".into()] } else { vec!["".into()] };
        let subjects = Subjects {
            jids: 2 + rng.below(5),
            queues: 1 + rng.below(3),
            throttles: rng.one_in(2),
            recurring: rng.one_in(2),
            dependencies: rng.one_in(2),
            keys: rng.one_in(4),
            faults: !rng.one_in(4),
        };
        let now = if rng.one_in(3) { 86_380.5 } else { 1.25 };
        Workload { rng, now, clock: 1_700_000_000.0, tenants, rules, subjects }
    }

    /// The tenants that take part.
    pub fn tenants(&self) -> &[Name] {
        &self.tenants
    }

    /// The caller's time and the server's, as of the last step.
    pub fn time(&self) -> (f64, f64) {
        (self.now, self.clock)
    }

    /// The next step.
    pub fn next(&mut self, model: &Model) -> Step {
        if self.rng.one_in(9) {
            return Step::Commit(self.outcome());
        }
        self.pass_time();
        let tenant = self.rng.pick_or(&self.tenants.clone(), "".into());
        let rules = self.rng.pick_or(&self.rules.clone(), Rules::QLESS);
        let command = self.command(&model.held(&tenant));
        Step::Call(Box::new(Call { tenant, now: self.now, clock: self.clock, rules, command }))
    }

    fn outcome(&mut self) -> Outcome {
        if !self.subjects.faults {
            return Outcome::Kept;
        }
        match self.rng.below(16) {
            0 => Outcome::Failed,
            1 => Outcome::Full,
            2 => Outcome::Lost { kept: true },
            3 => Outcome::Lost { kept: false },
            4 => Outcome::Crashed,
            5..=7 => Outcome::Restarted,
            _ => Outcome::Kept,
        }
    }

    /// Mostly a little, sometimes not at all, sometimes far; rarely back, as clients' clocks do.
    fn pass_time(&mut self) {
        let (step, server) = match self.rng.below(40) {
            0..=15 => (0.0, 0.0),
            16..=27 => (1.0, 1.0),
            28..=33 => (0.25, 0.0),
            34..=36 => (7.5, 5.0),
            37 => (61.0, 60.0),
            38 => (90_000.0, 100.0),
            _ => (-1.0, 0.0),
        };
        self.now = (self.now + step).max(0.0);
        self.clock += server;
    }

    fn command(&mut self, held: &[Held]) -> Command {
        match self.rng.below(100) {
            0..=5 => self.look(),
            6..=12 => self.settings(),
            13..=19 if self.subjects.recurring => self.recurring(),
            20..=27 if self.subjects.throttles => self.throttles(),
            28..=32 if self.subjects.keys => self.keys(),
            33..=46 => self.disturb(held),
            47..=64 => self.put(),
            65..=80 if !held.is_empty() => self.work(held),
            _ => self.pop(),
        }
    }

    fn name(&mut self, of: &[&str]) -> Name {
        self.rng.pick_or(of, "a").into()
    }

    fn jid(&mut self) -> Name {
        let count = if self.rng.one_in(12) { JIDS.len() } else { self.subjects.jids };
        self.name(JIDS.get(..count).unwrap_or(&JIDS))
    }

    /// All that are in use, so that dependents go together with what they wait for.
    fn all_jids(&mut self) -> Vec<Name> {
        JIDS.iter().take(self.subjects.jids).map(|jid| (*jid).into()).collect()
    }

    fn queue(&mut self) -> Name {
        self.name(QUEUES.get(..self.subjects.queues).unwrap_or(&QUEUES))
    }

    fn worker(&mut self) -> Name {
        let count = if self.rng.one_in(20) { 3 } else { 2 };
        self.name(WORKERS.get(..count).unwrap_or(&WORKERS))
    }

    fn tag(&mut self) -> Name {
        self.name(&TAGS)
    }

    /// Mostly the same one, so that what fails is also found again.
    fn group(&mut self) -> Name {
        if self.rng.one_in(2) { "g1".into() } else { self.name(&GROUPS) }
    }

    fn some(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Name) -> Vec<Name> {
        let count = self.rng.below(most + 1);
        (0..count).map(|_| one(self)).collect()
    }

    fn jids(&mut self, most: usize) -> Vec<Name> {
        self.some(most, Self::jid)
    }

    /// Throttles that a job names: mostly the free ones, now and then a queue's.
    fn throttle_ids(&mut self) -> Vec<Name> {
        if !self.subjects.throttles || self.rng.one_in(4) {
            return Vec::new();
        }
        self.some(2, |workload| {
            let count = if workload.rng.one_in(8) { THROTTLES.len() } else { 2 };
            workload.name(THROTTLES.get(..count).unwrap_or(&THROTTLES))
        })
    }

    /// A text: every third is long enough to be a body.
    fn text(&mut self) -> Bytes {
        let number = self.rng.below(1000);
        let long = if self.rng.one_in(3) { "0123456789".repeat(5) } else { String::new() };
        Bytes::from(format!("{{\"n\":{number},\"l\":\"{long}\"}}"))
    }

    fn maybe_text(&mut self) -> Option<Bytes> {
        self.rng.one_in(2).then(|| self.text())
    }

    fn number(&mut self, of: &[f64]) -> f64 {
        self.rng.pick_or(of, 0.0)
    }

    fn delay(&mut self) -> f64 {
        self.number(&[0.0, 0.0, 0.0, 0.0, 1.0, 2.5, 10.0, -1.0])
    }

    fn depends(&mut self) -> Vec<Name> {
        if self.subjects.dependencies && self.rng.one_in(3) { self.jids(3) } else { Vec::new() }
    }

    fn window(&mut self) -> RankWindow {
        if self.rng.one_in(2) {
            let count = if self.rng.one_in(3) { None } else { Some(self.rng.below(5)) };
            return RankWindow::Limit { offset: self.rng.below(3), count };
        }
        let start = self.rng.below(6) as i64 - 3;
        RankWindow::Ranks { start, stop: self.rng.below(8) as i64 - 4 }
    }
}
