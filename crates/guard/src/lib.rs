//! The guardian: a process in a session of its own that sees one job at a time to its end, whatever becomes of the worker.
//! Workers use what they share with it: plans, the state folder, outcomes, processes. It knows jobs only through
//! `haul_client`, as everybody does.
//!
//! - `plan`: how a job is to be run; everything a guardian is told. `lease`: how long a lock may be relied on.
//! - `guardian`: takes one job at a time from its worker and delivers its outcome. `supervise`: the task while it runs: its
//!   lock, output and limits. `stage`: what happens between fork and exec.
//! - `process`: processes and their descendants, by pid and start time. `folder`: what is on disk of a running job.
//!   `output`: what a job prints. `outcome`: what its end means, and telling the server.

mod clock;
pub mod folder;
pub mod guardian;
pub mod lease;
pub mod outcome;
mod output;
pub mod plan;
pub mod process;
pub mod stage;
mod supervise;

/// The word that makes any program of ours a guardian, as its first argument. No subcommand for people.
pub const WORD: &str = "guard";

pub use guardian::run as main;
