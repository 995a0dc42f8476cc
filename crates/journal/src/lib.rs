//! The journal: jobs that were accepted and are not in the store yet, in a local file that a person can read. A write is
//! acknowledged after one append and one sync; the store is filled from it in bulk, later.
//!
//! - `name`: the grammar of tenants, job types and their full types.
//! - `id`: job ids, which carry their time and sort by it.
//! - `moment`: dates as the file writes them.
//! - `record`: the bytes of a record, both ways; no files.
//! - `files`: which files there are, how far they were read, what a crash left of the last one.
//! - `writer`: the thread that appends and syncs, many writes at a time.
//! - `reader`: reservations, and the point up to which everything is in the store.
//! - `journal`: all of it together.
//!
//! Time is an argument everywhere, in milliseconds since 1970.

#![forbid(unsafe_code)]

mod files;
mod id;
mod journal;
mod moment;
mod name;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub use files::{Inspection, inspect};
pub use id::{Id, Ids, SEQUENCES, Sysid, digits, value_of};
pub use journal::{Journal, Options, Recovered};
pub use moment::{iso, parse_iso, years_later};
pub use name::{BadName, FullType, JOBTYPE_BYTES_MAX, TENANT_BYTES_MAX, check_jobtype, check_tenant};
pub use reader::{Entry, ReadError, Token};
pub use record::{Post, lines};
pub use writer::{Ack, WriteError};
