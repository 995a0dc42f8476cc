//! Stored handlers over a real socket, with real interpreters. A language that is not installed is said to be skipped
//! (`tests/run` installs PHP where it can).
//!
//! - `endpoints`: every path, what it takes and what it refuses.
//! - `commands`: the same from the command line, and the demo.
//! - `outcomes`: how a run ends and what follows: processes, the scoreboard, follow-up jobs, results.
//! - `contexts`: what handlers run in, and for how long.
//! - `web`: handlers that are addresses.
//! - `hostile`: what a handler may not do.
//! - `crashes`: what is left when the server dies.
//! - `turns`: whose job is next.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test may fail by panicking")]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test waits, and knows its answers"
)]

mod commands;
mod contexts;
mod crashes;
mod endpoints;
mod hostile;
mod outcomes;
mod support;
mod turns;
mod web;
