//! What must hold after every round: the audit is clean, the store holds exactly the bodies the engine refers to, and
//! everything a client can read is the same on both sides.

use std::collections::BTreeSet;

use haul_engine::{
    BodyId, Call, Changes, Command, JobList, Jobs, KeyQuery, Name, RankRange, RankWindow, Rules,
};
use haul_store::Store;

use super::{Checked, World};
use crate::workload::{GROUPS, QUEUES, RECURS, TAGS, THROTTLES, WORKERS};

impl World {
    pub(super) fn check(&mut self) -> Checked {
        let findings = self.engine.audit();
        if !findings.is_empty() {
            return Err(format!("the audit finds {findings:?}"));
        }
        self.check_bodies()?;
        for tenant in self.tenants.clone() {
            self.sweep(&tenant)?;
        }
        self.look_while_frozen();
        // What was only read must not need storing.
        let read_only = self.engine.take_changes().is_empty();
        if read_only { Ok(()) } else { Err("reading the state changed it".to_owned()) }
    }

    /// Looks that would tidy up, at a time when things are due, while nothing can be stored. What they answer is not
    /// compared; that they left everything as it was, the next sweep sees.
    fn look_while_frozen(&mut self) {
        self.engine.freeze(true);
        for tenant in &self.tenants {
            for queue in QUEUES {
                let range = RankWindow::Limit { offset: 0, count: None };
                let jobs = Jobs { list: JobList::Scheduled, queue: queue.into(), range };
                let looks = [
                    Command::Peek { queue: queue.into(), offset: 0, count: 9 },
                    Command::QueueCounts { queue: queue.into() },
                    Command::Jobs(jobs),
                    Command::Workers,
                ];
                for command in looks {
                    let (tenant, now) = (tenant.clone(), self.now + 100.0);
                    let call = Call { tenant, now, clock: self.clock, rules: Rules::QLESS, command };
                    // A look has no way to be refused.
                    drop(self.engine.apply(call));
                }
            }
        }
        self.engine.freeze(false);
    }

    /// For each queue, whether a pop might find something now, and when it next might.
    pub(super) fn outlook(&mut self, call: &Call) -> Vec<(bool, Option<f64>)> {
        self.engine.watch(true);
        QUEUES.iter().map(|queue| self.engine.outlook(&call.tenant, &(*queue).into(), call.now)).collect()
    }

    /// Where the outlook got better, whoever waits must have been told.
    pub(super) fn check_wakes(&mut self, call: &Call, before: &[(bool, Option<f64>)]) -> Checked {
        let told = self.engine.take_touched();
        for (queue, (ready, due)) in QUEUES.iter().zip(before) {
            let queue = Name::from(*queue);
            let (ready_now, due_now) = self.engine.outlook(&call.tenant, &queue, call.now);
            let sooner = due_now.is_some_and(|now| due.is_none_or(|before| now < before));
            if ((ready_now && !ready) || sooner) && !told.contains(&queue) {
                return Err(format!(
                    "nobody who waits for queue {queue} is told that there may be work in it"
                ));
            }
        }
        Ok(())
    }

    /// No body without a job, no job without its bodies. That their bytes are right, the sweep sees.
    fn check_bodies(&self) -> Checked {
        let mut stored = BTreeSet::new();
        let listed = self.store.bodies().keys(&mut |key| {
            stored.extend(BodyId::from_key(key));
            Ok(())
        });
        listed.map_err(|fault| format!("the bodies cannot be listed: {fault}"))?;
        let needed: BTreeSet<BodyId> = self.engine.bodies().into_iter().collect();
        let orphans: Vec<&BodyId> = stored.difference(&needed).collect();
        let missing: Vec<&BodyId> = needed.difference(&stored).collect();
        if orphans.is_empty() && missing.is_empty() {
            return Ok(());
        }
        Err(format!("bodies without a job: {orphans:?}; bodies that are missing: {missing:?}"))
    }

    /// Reads everything. The time is before anything is due, so that reading moves nothing.
    fn sweep(&mut self, tenant: &Name) -> Checked {
        let mut commands = vec![
            Command::GetMany { jids: self.model.jids(tenant) },
            Command::Totals,
            Command::AllQueueCounts,
            Command::FailureGroups,
            Command::TopTags { offset: 0, count: None },
            Command::Tracked,
            Command::Workers,
            Command::ConfigAll,
            Command::Key(KeyQuery::Keys),
        ];
        commands
            .extend(self.model.days(tenant).into_iter().map(|(date, queue)| Command::Stats { queue, date }));
        commands.extend(RECURS.iter().map(|jid| Command::RecurGet { jid: (*jid).into() }));
        for group in GROUPS {
            let range = RankWindow::Limit { offset: 0, count: None };
            commands.push(Command::Failed { group: group.into(), range });
        }
        for id in THROTTLES {
            commands.push(Command::ThrottleGet { id: id.into() });
            commands.push(Command::ThrottleLocks { id: id.into() });
            commands.push(Command::ThrottlePending { id: id.into() });
        }
        for queue in QUEUES {
            commands.push(Command::QueueCounts { queue: queue.into() });
        }
        commands.extend(sorted_sets().map(|key| {
            let range = RankRange { start: 0, stop: -1, reverse: false };
            Command::Key(KeyQuery::Ranks { key: key.into(), range })
        }));
        for command in commands {
            let call =
                Call { tenant: tenant.clone(), now: -1.0, clock: self.clock, rules: Rules::QLESS, command };
            self.compare(&call)
                .map_err(|what| format!("after the round, asked {:?}, {what}", call.command))?;
        }
        Ok(())
    }
}

fn sorted_sets() -> impl Iterator<Item = String> {
    let parts = ["work", "locks", "scheduled", "depends", "recur", "throttled"];
    let queues = QUEUES.iter().flat_map(move |queue| parts.map(|part| format!("ql:q:{queue}-{part}")));
    let workers = WORKERS.iter().map(|worker| format!("ql:w:{worker}:jobs"));
    let tags = TAGS.iter().map(|tag| format!("ql:t:{tag}"));
    let others =
        ["queues", "workers", "tags", "tracked", "completed"].iter().map(|name| format!("ql:{name}"));
    queues.chain(workers).chain(tags).chain(others)
}

/// The same set of changes, in whatever order.
pub(super) fn same_changes(one: &Changes, other: &Changes) -> Checked {
    fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
        let mut list = list.to_vec();
        list.sort();
        list
    }
    let same = sorted(&one.puts) == sorted(&other.puts)
        && sorted(&one.deletes) == sorted(&other.deletes)
        && sorted(&one.bodies) == sorted(&other.bodies)
        && sorted(&one.dropped) == sorted(&other.dropped);
    if same { Ok(()) } else { Err("the same calls change different records the second time".to_owned()) }
}
