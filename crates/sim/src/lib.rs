//! The simulator: the engine against a naive second model of it, on a store that fails on demand.
//!
//! A map of the files:
//!
//! - `rng`: the generator behind every seed; a seed replays byte for byte.
//! - `workload`: random calls that are likely to meet each other, and what each commit comes to.
//! - `model`: the queue once more, written from the specification over plain maps named as in Redis.
//! - `answer`: replies in a form that both sides can be compared in: texts are bytes, not references.
//! - `world`: engine, store and model side by side, in rounds, with crashes; every difference is a failure.
//! - `shrink`: a failing script made short.
//! - `cluster`: several nodes on one store, with pauses, partitions, skewed clocks and lost answers.
//!
//! Nothing here reads a clock or entropy: a failure is a seed and a number of steps.

#![forbid(unsafe_code)]

mod answer;
mod cluster;
mod model;
mod rng;
mod shrink;
mod workload;
mod world;

pub use answer::{Answer, JobSeen, StatsSeen};
pub use cluster::{Flaw, run_cluster};
pub use model::{Model, Twist};
pub use rng::Rng;
pub use shrink::shrink;
pub use workload::{Outcome, Step, Workload};
pub use world::{Difference, Options, Run, replay, run_seed};
