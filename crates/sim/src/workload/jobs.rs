//! Calls on jobs.

use haul_engine::{Command, Complete, Fail, Heartbeat, Lock, Name, Next, Pop, Put, PutWhen, Report, Retry};

use super::Workload;
use crate::model::Held;

impl Workload {
    pub(super) fn put(&mut self) -> Command {
        if self.rng.one_in(8) {
            let count = self.rng.below(4);
            return Command::PutMany((0..count).map(|_| self.one_put()).collect());
        }
        Command::Put(Box::new(self.one_put()))
    }

    fn one_put(&mut self) -> Put {
        let when = match self.rng.below(10) {
            0 => PutWhen::Exists,
            1 => PutWhen::New,
            _ => PutWhen::Always,
        };
        Put {
            jid: self.jid(),
            queue: self.queue(),
            worker: if self.rng.one_in(5) { None } else { Some(self.worker()) },
            klass: (!self.rng.one_in(10)).then(|| "klass".into()),
            data: if self.rng.one_in(10) { None } else { Some(self.text()) },
            delay: self.delay(),
            priority: if self.rng.one_in(2) {
                None
            } else {
                Some(self.number(&[0.0, 0.0, 1.0, 2.0, -1.0, 1000.0]))
            },
            tags: if self.rng.one_in(2) { None } else { Some(self.some(3, Self::tag)) },
            retries: if self.rng.one_in(2) { None } else { Some(self.number(&[0.0, 1.0, 2.7, 5.0])) },
            depends: self.depends(),
            throttles: self.throttle_ids(),
            when,
            trace: None,
        }
    }

    pub(super) fn pop(&mut self) -> Command {
        if self.rng.one_in(6) {
            let offset = if self.rng.one_in(2) { 0 } else { self.rng.below(3) };
            return Command::Peek { queue: self.queue(), offset, count: self.rng.below(5) };
        }
        let queues = match self.rng.below(5) {
            0 => self.some(3, Self::queue),
            _ => vec![self.queue()],
        };
        Command::Pop(Pop {
            worker: self.worker(),
            queues,
            round_robin: self.rng.one_in(6),
            count: self.rng.pick_or(&[1, 1, 1, 2, 3, 10, 0], 1),
            lock: self.lock(),
            klasses: Vec::new(),
        })
    }

    fn lock(&mut self) -> Lock {
        match self.rng.below(8) {
            0 => Lock::Seconds(self.number(&[2.0, 0.0, 30.0, -1.0])),
            1 => Lock::Until(self.now + self.number(&[3.0, 0.0, -2.0])),
            _ => Lock::Option,
        }
    }

    /// A job that runs, mostly truthfully described.
    fn claim(&mut self, held: &[Held]) -> Held {
        let attempt = self.rng.below(3) as u32;
        let guess = Held { jid: self.jid(), worker: self.worker(), queue: self.queue(), attempt };
        let mut claim =
            if self.rng.one_in(8) { guess.clone() } else { self.rng.pick_or(held, guess.clone()) };
        if self.rng.one_in(12) {
            claim.worker = guess.worker;
        }
        if self.rng.one_in(12) {
            claim.queue = guess.queue;
        }
        if self.rng.one_in(12) {
            claim.attempt = guess.attempt;
        }
        claim
    }

    /// What workers do with what they hold.
    pub(super) fn work(&mut self, held: &[Held]) -> Command {
        let claim = self.claim(held);
        match self.rng.below(23) {
            20..=22 => self.report(claim),
            0..=7 => self.complete(claim),
            8..=10 => self.fail(claim),
            11..=13 => {
                let attempt = self.rng.one_in(3).then_some(claim.attempt);
                let (lock, data) = (self.lock(), self.maybe_text());
                Command::Heartbeat(Heartbeat { jid: claim.jid, worker: claim.worker, attempt, lock, data })
            }
            14..=17 => self.retry(claim),
            18 => {
                let jids = self.several(claim.jid, held);
                Command::CompleteMany { worker: claim.worker, jids }
            }
            _ => {
                let jids = self.several(claim.jid, held);
                Command::HeartbeatMany { worker: claim.worker, jids }
            }
        }
    }

    fn several(&mut self, first: Name, held: &[Held]) -> Vec<Name> {
        let mut jids = vec![first];
        jids.extend(held.iter().filter(|_| self.rng.one_in(2)).map(|held| held.jid.clone()));
        jids
    }

    fn report(&mut self, claim: Held) -> Command {
        Command::Report(Box::new(Report {
            jid: claim.jid,
            worker: claim.worker,
            attempt: self.rng.one_in(3).then_some(claim.attempt),
            percent: if self.rng.one_in(2) { Some(self.number(&[0.0, 40.5, 100.0])) } else { None },
            message: self.rng.one_in(2).then(|| "so far".into()),
            output: self.maybe_text(),
            output_bytes: self.rng.one_in(2).then_some(9000),
            checkpoint: if self.rng.one_in(3) { Some(self.text()) } else { None },
        }))
    }

    fn complete(&mut self, claim: Held) -> Command {
        let next = self.rng.one_in(3).then(|| Next {
            queue: self.queue(),
            delay: self.delay(),
            depends: self.depends(),
        });
        Command::Complete(Box::new(Complete {
            jid: claim.jid,
            worker: (!self.rng.one_in(10)).then_some(claim.worker),
            queue: (!self.rng.one_in(4)).then_some(claim.queue),
            attempt: self.rng.one_in(4).then_some(claim.attempt),
            data: self.maybe_text(),
            result: if self.rng.one_in(4) { Some(self.text()) } else { None },
            next,
        }))
    }

    fn fail(&mut self, claim: Held) -> Command {
        Command::Fail(Box::new(Fail {
            jid: claim.jid,
            worker: Some(claim.worker),
            attempt: self.rng.one_in(4).then_some(claim.attempt),
            group: self.group(),
            message: self.text(),
            data: self.maybe_text(),
        }))
    }

    /// Without a worker (the older API) a job fails in any state.
    fn fail_by_anybody(&mut self) -> Fail {
        let (jid, group, message) = (self.jid(), self.group(), self.text());
        Fail { jid, worker: None, attempt: None, group, message, data: self.maybe_text() }
    }

    fn retry(&mut self, claim: Held) -> Command {
        let queue = match self.rng.below(4) {
            0 => None,
            1 => Some(self.queue()),
            _ => Some(claim.queue),
        };
        Command::Retry(Box::new(Retry {
            jid: claim.jid,
            queue,
            worker: claim.worker,
            attempt: self.rng.one_in(4).then_some(claim.attempt),
            delay: self.delay(),
            group: if self.rng.one_in(2) { Some(self.group()) } else { None },
            message: self.maybe_text(),
        }))
    }

    /// What others do to jobs.
    pub(super) fn disturb(&mut self, held: &[Held]) -> Command {
        let claim = self.claim(held);
        match self.rng.below(20) {
            0..=1 => Command::Cancel { jids: self.jids(4) },
            2 => Command::Cancel { jids: self.all_jids() },
            3 => Command::Fail(Box::new(self.fail_by_anybody())),
            4..=5 => {
                let mut jids = self.jids(2);
                jids.insert(0, claim.jid);
                Command::Timeout { jids }
            }
            6..=8 => Command::Unfail { queue: self.queue(), group: self.group(), count: self.rng.below(4) },
            9..=11 => {
                let on = self.rng.pick_or(&[Some(true), Some(false), Some(false), None], None);
                Command::Depends { jid: self.jid(), on, jids: self.jids(2), all: self.rng.one_in(3) }
            }
            12..=13 => Command::Priority { jid: self.jid(), priority: self.number(&[0.0, 1.0, 5.0, -2.5]) },
            14..=15 => Command::Tag { jid: self.jid(), tags: self.some(3, Self::tag) },
            16 => Command::Untag { jid: self.jid(), tags: self.some(3, Self::tag) },
            17 => Command::Track { jid: self.jid() },
            18 if self.rng.one_in(2) => Command::Untrack { jid: self.jid() },
            _ => {
                let data = self.maybe_text();
                Command::Log { jid: self.jid(), message: "line".into(), data }
            }
        }
    }
}
