//! Running jobs: a command for each, or long-running children that are fed many. It knows jobs only through
//! `haul_client`, as everybody does. Guardians, and what workers share with them, are in `haul_guard`.
//!
//! - `worker`: takes jobs and gives them to guardians; `adopt`: what earlier workers left in the state folder;
//!   `patterns`: which queues; `life`: what a worker says of itself; `program`: what guardians are executed from.
//! - `feed`: the long-running children and their lines.

mod adopt;
mod feed;
mod life;
mod patterns;
mod program;
mod worker;

pub(crate) use feed::{Feed, feed};
pub(crate) use haul_guard::outcome::{EXEC_KLASS, exit_code};
pub(crate) use haul_guard::plan::{Classes, Connection, Limits, Plan, RetryRule};
pub(crate) use worker::{Order, Work, run};
