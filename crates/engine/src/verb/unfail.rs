//! Unfail: the oldest jobs of a failure group go back to work.

use crate::job::{State, What};
use crate::tenant::{Cx, Tenant};
use crate::{Kind, Name, Reply};

impl Tenant {
    pub(super) fn unfail(&mut self, cx: &mut Cx<'_>, queue: &Name, group: &Name, count: usize) -> Reply {
        let oldest = self.indexes.groups.get(group).map(|jids| jids.values().take(count).cloned().collect());
        let oldest: Vec<Name> = oldest.unwrap_or_default();
        let queue = self.indexes.names.shared(queue.bytes());
        for jid in &oldest {
            let Some(job) = self.jobs.get_mut(jid) else { continue };
            self.indexes.note(cx, job, cx.now, What::Put(queue.clone()));
            self.indexes.leave(cx, job);
            job.state = State::Waiting;
            job.clear_lock();
            job.queue = queue.clone();
            job.set_remaining(job.retries());
            self.indexes.enter_work(cx, job, cx.now);
            let sight = cx.sight(job);
            cx.tell(sight, Kind::Requeued, State::Waiting, Some(group.clone()));
        }
        if !oldest.is_empty() {
            self.indexes.register(&queue, cx.now);
        }
        Reply::Int(oldest.len() as i64)
    }
}
