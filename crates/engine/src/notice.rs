//! Notices: what happens, told in full to whoever listens ([`crate::Engine::listen`]).
//!
//! An [`crate::Event`] is what qless's clients have always heard, in its wording and only in the dialects that speak of
//! events. A notice names job, queue and worker wherever there is one, in every dialect. Nobody listens: nothing is made.

use crate::{Name, State};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Notice {
    /// What happened.
    pub kind: Kind,
    /// The command's time, in seconds.
    pub at: f64,
    /// The job, or the recurring definition. Empty: it is about no job.
    pub jid: Name,
    /// The job's queue when it happened. Empty: none.
    pub queue: Name,
    /// Who holds the job, or held it until now. Empty: nobody.
    pub worker: Name,
    /// The job's klass. Empty: it is about no job.
    pub klass: Name,
    /// The job's state afterwards.
    pub state: Option<State>,
    /// What else there is to say; [`Kind::detail`] names it.
    pub detail: Option<Name>,
    /// How often the job had been handed out.
    pub attempt: u32,
    /// When the phase that ended here began: the wait that a pop ends, the run that anything else ends.
    pub since: f64,
    /// The trace context the job carries.
    pub trace: Option<Name>,
}

/// The kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Put: new, or moved and redefined.
    Put,
    /// Handed to a worker.
    Popped,
    /// Completed for good.
    Completed,
    /// Completed, and moved on to the next queue.
    Advanced,
    /// Failed, by its worker or for lack of retries.
    Failed,
    /// Given back by its worker.
    Retried,
    /// Its worker lost the lock.
    LockLost,
    /// Taken out of a failure group and back to work.
    Requeued,
    /// A job that was scheduled, or waited for others or for a throttle, can be popped now.
    Ready,
    /// Held back by a throttle.
    Throttled,
    /// Cancelled.
    Canceled,
    /// Forgotten, long after it was completed.
    Purged,
    /// Its priority changed.
    Priority,
    /// Tags were added.
    Tagged,
    /// Tags were taken off.
    Untagged,
    /// A line was added to its history.
    Logged,
    /// Tracking began.
    Tracked,
    /// Tracking ended.
    Untracked,
    /// Made by a recurring definition.
    Spawned,
    /// A recurring definition was made or changed.
    Recurring,
    /// A recurring definition ended.
    Unrecurred,
    /// A queue was paused.
    Paused,
    /// A queue goes on.
    Unpaused,
    /// An option was set.
    ConfigSet,
    /// An option was unset.
    ConfigUnset,
    /// Everything of the tenant went.
    Flushed,
}

/// All kinds.
pub const KINDS: [Kind; 26] = [
    Kind::Put,
    Kind::Popped,
    Kind::Completed,
    Kind::Advanced,
    Kind::Failed,
    Kind::Retried,
    Kind::LockLost,
    Kind::Requeued,
    Kind::Ready,
    Kind::Throttled,
    Kind::Canceled,
    Kind::Purged,
    Kind::Priority,
    Kind::Tagged,
    Kind::Untagged,
    Kind::Logged,
    Kind::Tracked,
    Kind::Untracked,
    Kind::Spawned,
    Kind::Recurring,
    Kind::Unrecurred,
    Kind::Paused,
    Kind::Unpaused,
    Kind::ConfigSet,
    Kind::ConfigUnset,
    Kind::Flushed,
];

impl Kind {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Popped => "popped",
            Kind::Completed => "completed",
            Kind::Advanced => "advanced",
            Kind::Failed => "failed",
            Kind::Retried => "retried",
            Kind::LockLost => "lock_lost",
            Kind::Requeued => "requeued",
            Kind::Ready => "ready",
            Kind::Throttled => "throttled",
            Kind::Canceled => "canceled",
            Kind::Purged => "purged",
            Kind::Priority => "priority",
            Kind::Tagged => "tagged",
            Kind::Untagged => "untagged",
            Kind::Logged => "logged",
            Kind::Tracked => "tracked",
            Kind::Untracked => "untracked",
            Kind::Spawned => "spawned",
            Kind::Recurring => "recurring",
            Kind::Unrecurred => "unrecurred",
            Kind::Paused => "paused",
            Kind::Unpaused => "unpaused",
            Kind::ConfigSet => "config_set",
            Kind::ConfigUnset => "config_unset",
            Kind::Flushed => "flushed",
        }
    }

    /// The kind of this word.
    pub fn of_word(word: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.word() == word)
    }

    /// What [`Notice::detail`] is, if there is one.
    pub fn detail(self) -> &'static str {
        match self {
            Kind::Advanced => "to",
            Kind::Failed | Kind::Requeued | Kind::Retried => "group",
            Kind::LockLost => "reason",
            Kind::Throttled => "throttle",
            Kind::Logged => "message",
            Kind::Spawned => "recurring",
            Kind::ConfigSet | Kind::ConfigUnset => "option",
            Kind::Tagged | Kind::Untagged => "tag",
            Kind::Priority => "priority",
            _ => "detail",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_word() {
        for kind in KINDS {
            assert_eq!(Kind::of_word(kind.word()), Some(kind));
        }
        assert_eq!(Kind::of_word("other"), None);
    }
}
