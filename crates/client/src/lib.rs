//! Haul for Rust programs: put jobs, work on them, watch them.
//!
//! ```text
//!   worker.rs   takes jobs and runs your code on them, many at once      <- most programs that work need only this
//!      |
//!   client.rs   one typed call per native command, over a connection     <- most programs that put need only this
//!      |        shared by all tasks, which reconnects by itself
//!      |
//!   resp.rs     the Redis protocol, in memory: used by the server too
//! ```
//!
//! Beside them: `job.rs` (what the server tells about jobs), `error.rs` (what can go wrong and what to do about it),
//! `command.rs` and `backoff.rs` (inside only). The commands themselves are described in `docs/reference/commands.md`.
//!
//! This crate knows nothing of the engine or the store: everything it does, it does over the protocol.

#![forbid(unsafe_code)]

mod backoff;
mod client;
mod command;
mod error;
#[cfg(test)]
mod fake;
mod job;
pub mod resp;
pub mod worker;

pub use client::{
    Client, Complete, Fail, Heartbeat, Jobs, Message, Move, Options, Pop, Put, Range, Recur, Report, Retry,
    Subscription, Throttle, Tls,
};
pub use error::Error;
pub use job::{Failure, HistoryEntry, Job, Json, Listing, Progress, QueueCounts, State, Tracked};
pub use worker::{HandlerError, JobContext, Outcome, Worker};
