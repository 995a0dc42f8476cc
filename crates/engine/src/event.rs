//! What the world is told. A dialect chooses channel and wording; the order is the engine's.

use bytes::Bytes;

use crate::Name;

/// Something that happened, to be published after the round is durable.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Event {
    /// A job was put.
    Put { jid: Name, queue: Name },
    /// A job was completed for good.
    Completed { jid: Name, queue: Name },
    /// A job was completed and moved on.
    Advanced { jid: Name, queue: Name, to: Name },
    /// A job failed; `message` as given.
    Failed { jid: Name, group: Name, worker: Name, message: Bytes },
    /// A worker lost its lock; its own channel hears of it first.
    LockLost { jid: Name, worker: Name },
    /// A job was cancelled. None: there was no such job.
    Canceled { jid: Name, queue: Option<Name>, worker: Option<Name> },
    /// An option was set.
    ConfigSet { option: Name, value: Name },
    /// An option was unset.
    ConfigUnset { option: Name },
    /// Tracking began.
    Track { jid: Name },
    /// Tracking ended.
    Untrack { jid: Name },
    /// Something happened to a tracked job.
    Tracked { what: TrackedEvent, jid: Name },
}

/// The events told of tracked jobs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TrackedEvent {
    /// Put.
    Put,
    /// Popped.
    Popped,
    /// Completed or advanced.
    Completed,
    /// Failed.
    Failed,
    /// Its lock ran out.
    Stalled,
    /// Cancelled.
    Canceled,
}

impl TrackedEvent {
    /// Its word, which is also the channel.
    pub fn word(self) -> &'static str {
        match self {
            TrackedEvent::Put => "put",
            TrackedEvent::Popped => "popped",
            TrackedEvent::Completed => "completed",
            TrackedEvent::Failed => "failed",
            TrackedEvent::Stalled => "stalled",
            TrackedEvent::Canceled => "canceled",
        }
    }
}
