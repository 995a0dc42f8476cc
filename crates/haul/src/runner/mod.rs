//! Running jobs: a command for each, or long-running children that are fed many. It knows jobs only through
//! `haul_client`, as everybody does.
//!
//! - `plan`: how a job is to be run; everything a guardian is told. `lease`: how long a lock may be relied on.
//! - `worker`: takes jobs and gives them to guardians; `adopt`: what earlier workers left in the state folder;
//!   `patterns`: which queues; `life`: what a worker says of itself.
//! - `guardian`: a process in a session of its own that runs one job at a time: renews its lock, reads its output, holds
//!   it to its limits, delivers its outcome, whatever becomes of the worker. `stage`: the last step before the command.
//! - `process`: processes and their descendants, by pid and start time. `folder`: what is on disk of a running job.
//!   `output`: what a job prints. `outcome`: what its end means, and telling the server.
//! - `feed`: the long-running children and their lines.

mod adopt;
mod feed;
mod folder;
mod guardian;
mod lease;
mod life;
mod outcome;
mod output;
mod patterns;
mod plan;
mod process;
mod stage;
mod supervise;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use feed::{Feed, feed};
pub(crate) use outcome::{EXEC_KLASS, exit_code};
pub(crate) use plan::{Classes, Connection, Limits, Plan, RetryRule};
pub(crate) use worker::{Order, Work, run};

/// `haul guard ...`, which is no subcommand for people: nothing of the command line is set up for it, so that a guardian
/// stays small and starts fast.
pub(crate) fn guard(args: &[OsString]) -> ExitCode {
    match args.split_first() {
        Some((word, rest)) if word == "--stage" => stage::run(rest),
        _ => guardian::run(),
    }
}
