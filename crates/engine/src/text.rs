//! Texts: what users hand us to keep. Short ones stay in memory with their job; long ones are bodies in the store.

use serde::{Deserialize, Serialize};

use crate::Name;

/// Texts up to this many bytes stay in memory: a record of their own would cost more than it saves.
pub(crate) const TEXT_INLINE_MAX: usize = 48;

/// The number of a body in the store. Never reused while a process lives; a body never changes. After a start, the numbers behind
/// the last body that is needed are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BodyId(pub u64);

impl BodyId {
    /// The key under which the store keeps the body.
    pub fn key(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The body a store's key names, if it is one.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        Some(BodyId(u64::from_be_bytes(key.try_into().ok()?)))
    }
}

/// A text of a user: job data, a result, a failure's message, a log line's data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Text {
    /// In memory.
    Short(Name),
    /// A body in the store.
    Long(BodyId),
}

impl Text {
    /// The body it needs from the store, if any.
    pub fn body(&self) -> Option<BodyId> {
        match self {
            Text::Short(_) => None,
            Text::Long(id) => Some(*id),
        }
    }
}
