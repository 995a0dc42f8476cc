//! Which events a stream wants.

use haul_engine::{Kind, Name, Notice};

/// Of each list at least one must fit; an empty one lets everything through.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) queues: Vec<Name>,
    pub(crate) jids: Vec<Name>,
    pub(crate) workers: Vec<Name>,
    pub(crate) kinds: Vec<Kind>,
}

impl Filter {
    pub(crate) fn passes(&self, notice: &Notice) -> bool {
        let moved_to = (notice.kind == Kind::Advanced).then_some(notice.detail.as_ref()).flatten();
        let queue =
            || self.queues.contains(&notice.queue) || moved_to.is_some_and(|to| self.queues.contains(to));
        (self.kinds.is_empty() || self.kinds.contains(&notice.kind))
            && (self.queues.is_empty() || queue())
            && (self.jids.is_empty() || self.jids.contains(&notice.jid))
            && (self.workers.is_empty() || self.workers.contains(&notice.worker))
    }
}
