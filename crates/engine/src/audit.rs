//! The invariants of the state, checked: a job is in exactly one place, counts equal scans, links go both ways.
//! For `haul doctor` and the simulator; never on a hot path.

use hashbrown::{HashMap, HashSet};

use crate::engine::Engine;
use crate::job::{Flag, Job, Place, State};
use crate::score::Score;
use crate::tenant::Tenant;
use crate::{BodyId, Name};

/// Something that should not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Whose.
    pub tenant: Name,
    /// What, in a sentence.
    pub what: String,
}

impl Engine {
    /// Everything that is wrong with the state; empty if nothing is.
    pub fn audit(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, tenant) in self.tenant_states() {
            let mut said = Vec::new();
            audit_jobs(tenant, &mut said);
            audit_indexes(tenant, &mut said);
            findings.extend(said.into_iter().map(|what| Finding { tenant: name.clone(), what }));
        }
        findings
    }

    /// Every body the state refers to.
    pub fn bodies(&self) -> hashbrown::HashSet<BodyId> {
        let jobs = self.tenant_states().flat_map(|(_, tenant)| tenant.jobs.values());
        jobs.flat_map(|job| job.bodies().collect::<Vec<_>>()).collect()
    }
}

fn audit_jobs(tenant: &Tenant, said: &mut Vec<String>) {
    for (jid, job) in tenant.jobs.iter() {
        if *jid != job.jid {
            said.push(format!("job {jid} calls itself {}", job.jid));
        }
        if !is_indexed(tenant, job) {
            said.push(format!("job {jid} ({}) is missing from its {:?} index", job.state.word(), job.place));
        }
        if !fits(job.state, job.place) {
            said.push(format!("job {jid} is {} but stands in the {:?} index", job.state.word(), job.place));
        }
        if job.place == Place::Completed && !job.queue.is_empty() {
            said.push(format!("job {jid} in {:?} has the queue {:?}", job.place, job.queue));
        }
        if job.flags.has(Flag::Held) && !holds(tenant, job) {
            said.push(format!(
                "job {jid} is missing from the jobs of its worker {}",
                tenant.indexes.worker_of(job)
            ));
        }
        audit_links(tenant, job, said);
    }
}

fn fits(state: State, place: Place) -> bool {
    match place {
        Place::Work => matches!(state, State::Waiting | State::Stalled | State::Throttled),
        Place::Locks => state == State::Running,
        Place::Scheduled => state == State::Scheduled,
        Place::Depends => state == State::Depends,
        Place::Throttled => state == State::Throttled,
        Place::Failed => state == State::Failed,
        Place::Completed => state == State::Complete,
        Place::Draft => state == State::Waiting,
    }
}

fn is_indexed(tenant: &Tenant, job: &Job) -> bool {
    let entry = (Score::new(job.score), job.jid.clone());
    let queue = || tenant.indexes.queues.get(&job.queue);
    match job.place {
        Place::Completed => tenant.indexes.completed.contains(&entry),
        Place::Draft => tenant.indexes.drafts.contains(&entry),
        Place::Failed => job.failure().is_some_and(|failure| {
            let group = tenant.indexes.groups.get(&failure.group);
            group.is_some_and(|jids| jids.get(&(job.score as u64)) == Some(&job.jid))
        }),
        Place::Work => queue().is_some_and(|queue| queue.work.contains(&entry)),
        Place::Locks => queue().is_some_and(|queue| queue.locks.contains(&entry)),
        Place::Scheduled => queue().is_some_and(|queue| queue.scheduled.contains(&entry)),
        Place::Depends => queue().is_some_and(|queue| queue.depends.contains(&entry)),
        Place::Throttled => queue().is_some_and(|queue| queue.throttled.contains(&entry)),
    }
}

fn holds(tenant: &Tenant, job: &Job) -> bool {
    let entry = (Score::new(job.expires()), job.jid.clone());
    tenant.indexes.workers.get(job.worker_bytes()).is_some_and(|worker| worker.jobs.contains(&entry))
}

fn audit_links(tenant: &Tenant, job: &Job, said: &mut Vec<String>) {
    let Some(more) = job.more.as_deref() else { return };
    for other in &more.dependencies {
        let back = tenant.jobs.get(other).and_then(|other| other.more.as_deref());
        if !back.is_some_and(|back| back.dependents.contains(&job.jid)) {
            said.push(format!("job {} waits for {other}, which does not know", job.jid));
        }
    }
    for other in &more.dependents {
        let back = tenant.jobs.get(other).and_then(|other| other.more.as_deref());
        if !back.is_some_and(|back| back.dependencies.contains(&job.jid)) {
            said.push(format!("job {} is waited for by {other}, which does not know", job.jid));
        }
    }
    for id in &more.holds {
        if !tenant.indexes.throttles.get(id).is_some_and(|throttle| throttle.locks.contains(&job.jid)) {
            said.push(format!("job {} holds throttle {id}, which does not know", job.jid));
        }
    }
}

/// Indexes must hold no more entries than there are jobs for them.
fn audit_indexes(tenant: &Tenant, said: &mut Vec<String>) {
    let mut indexed = tenant.indexes.completed.len() + tenant.indexes.drafts.len();
    indexed += tenant.indexes.groups.values().map(std::collections::BTreeMap::len).sum::<usize>();
    for queue in tenant.indexes.queues.values() {
        let all = [&queue.work, &queue.locks, &queue.scheduled, &queue.depends, &queue.throttled];
        indexed += all.iter().map(|index| index.len()).sum::<usize>();
    }
    if indexed != tenant.jobs.len() {
        said.push(format!("{} jobs but {indexed} entries in their indexes", tenant.jobs.len()));
    }
    for (name, worker) in &tenant.indexes.workers {
        for (_, jid) in &worker.jobs {
            if !tenant
                .jobs
                .get(jid)
                .is_some_and(|job| job.flags.has(Flag::Held) && job.worker_bytes() == name.bytes())
            {
                said.push(format!("worker {name} lists job {jid}, which it does not hold"));
            }
        }
    }
    audit_tags(tenant, said);
    audit_tasks(tenant, said);
    for (id, throttle) in &tenant.indexes.throttles {
        for (at, jid) in &throttle.pending {
            let pending = tenant.jobs.get(jid).and_then(|job| job.more.as_deref()?.pending.clone());
            if pending != Some((id.clone(), at.get())) {
                said.push(format!("throttle {id} lists job {jid} as waiting, which does not wait for it"));
            }
        }
    }
}

/// Lists of finished tasks and sets of started ones say what the jobs say.
fn audit_tasks(tenant: &Tenant, said: &mut Vec<String>) {
    let mut listed = 0;
    for (jid, job) in tenant.jobs.iter() {
        let Some(task) = job.task() else { continue };
        listed += usize::from(task.listed.is_some());
        if let Some(order) = task.listed
            && tenant.indexes.finished_list(&task.home, job.place).and_then(|list| list.get(&order))
                != Some(jid)
        {
            said.push(format!("task {jid} is missing from the finished tasks of {}", task.home));
        }
        for (key, member) in
            task.started.iter().filter(|(key, member)| !tenant.indexes.keyspace.has(key, member))
        {
            said.push(format!("task {jid} was started as {member:?}, which {key} does not hold"));
        }
    }
    let entries: usize =
        tenant.indexes.finished.values().map(|lists| lists.complete.len() + lists.failed.len()).sum();
    if entries != listed {
        said.push(format!("{listed} finished tasks but {entries} entries in their lists"));
    }
}

/// Tags of one job beyond which they are looked up and not searched.
const TAGS_SEARCHED_MAX: usize = 32;

fn audit_tags(tenant: &Tenant, said: &mut Vec<String>) {
    let tags = |job: &'_ Job| job.tags().iter().map(|tagged| tagged.tag.clone()).collect::<HashSet<Name>>();
    let loaded = tenant.jobs.iter().filter(|(_, job)| job.tags().len() > TAGS_SEARCHED_MAX);
    let loaded: HashMap<&Name, HashSet<Name>> = loaded.map(|(jid, job)| (jid, tags(job))).collect();
    let carries = |jid: &Name, name: &Name| match loaded.get(jid) {
        Some(tags) => tags.contains(name),
        None => tenant.jobs.get(jid).is_some_and(|job| job.tags().iter().any(|tagged| tagged.tag == *name)),
    };
    for (name, tag) in &tenant.indexes.tags {
        for (_, jid) in tag.jobs.iter().filter(|(_, jid)| !carries(jid, name)) {
            said.push(format!("tag {name} lists job {jid}, which does not carry it"));
        }
    }
}
