//! A shard: one engine, one store, one thread. It takes what has arrived, applies all of it, commits the changes as one
//! batch, and only then lets replies and events out: a round.
//!
//! - `core`: a round, step by step; no threads, no clock.
//! - `waiters`: blocked pops, and when to look again for them.
//! - `load`: the engine from its store, read and decoded in several threads.
//! - `thread`: the loop around the core, and where it lives; `rest`: what it does in quiet times.
//! - `flight`: rounds that the store has and that are not durable yet.
//! - `outlet`: how the answers of a round reach the connections.
//! - `tally`: figures of what was done, for metrics.
//! - `handle`: what the rest of the server holds: cheap to clone.

mod core;
mod flight;
mod handle;
mod load;
mod outlet;
mod pace;
mod rest;
mod tally;
#[cfg(test)]
mod tests;
mod thread;
mod waiters;

pub(crate) use self::core::Fetch;
#[cfg(test)]
pub(crate) use self::core::Request;
pub(crate) use self::core::{Core, Delivery, Outcome, Publish};
pub(crate) use handle::{Gone, Shard, read_ahead, texts};
pub(crate) use tally::BucketsNow;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use thread::start;
pub(crate) use thread::{Common, Counters, Ending, OpenStore, Settings, start_with};
