//! What can go wrong in a store, by what the caller should do about it. Every text names the thing it
//! is about: a file, an offset, a key, a process.

use std::path::PathBuf;

/// The world failed. The kinds say what to do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Fault {
    /// Could not be made durable: drop the memory, open the store again, try again.
    #[error("could not be made durable, try again: {what}")]
    Retry {
        /// What failed, and why.
        what: String,
    },
    /// The disk is full. Nothing of this batch was kept, reads go on, and a later commit succeeds when
    /// there is room again, without reopening.
    #[error("the disk is full: {what}")]
    Full {
        /// What found no room.
        what: String,
    },
    /// Stored bytes are not what was written. Needs a person: `haul doctor`, or a backup.
    #[error("the data is damaged: {what}")]
    Corrupt {
        /// The file, the offset, the record.
        what: String,
    },
    /// Another process has the folder.
    #[error("{} is in use by another process{}", path.display(), pid_text(*pid))]
    Locked {
        /// The data folder.
        path: PathBuf,
        /// Who has it, if it left its number.
        pid: Option<u32>,
    },
    /// The store was opened for reading only.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The folder cannot be used at all: missing, not ours, no permission.
    #[error("{} cannot be used as a data folder: {what}", path.display())]
    Unusable {
        /// The data folder.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// The bucket or shared folder cannot be used at all: missing, no permission, not fit for it.
    #[error("{url} cannot be used as a store: {what}")]
    Refused {
        /// Where.
        url: String,
        /// Why not, and what to do.
        what: String,
    },
    /// Made by a newer Haul.
    #[error("the data has format {found}, this Haul knows formats up to {known}: use a newer Haul")]
    Format {
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The batch breaks a limit of the store (see [`crate::batch`]): a mistake of the caller. Nothing of it
    /// was kept and the handle stays usable.
    #[error("too large: {what}")]
    TooLarge {
        /// Which limit.
        what: String,
    },
    /// Another node has taken the shard over: drop it at once.
    #[error("another node has taken the shard over")]
    Fenced,
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}
