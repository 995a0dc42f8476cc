//! The engine: what every command means, and nothing else.
//!
//! Plain Rust without I/O, clock, randomness, threads or async. [`Engine::apply`] takes a [`Call`] (who, when, what)
//! and answers a [`Reply`] or a [`Refusal`]; what happened besides is collected and taken by the caller:
//! [`Event`]s to publish, [`Changes`] to store, queues in which work may have become available.
//!
//! A map of the files:
//!
//! - `name`, `score` (with `index`: names sorted by score), `text`: the small value types. A [`Text`] is short and in memory, or a body in the store.
//! - `command`, `reply`, `event`: what goes in and what comes out. Dialects translate to and from these. `notice`: what
//!   happens in full, for the event stream and for traces, made only while somebody listens.
//! - `job` (with `history`, and `jobs`: all of them), `queue`, `worker`, `tag`, `recur` (with `cron`), `throttle`, `stats`, `config`,
//!   `keyspace`, `task` (what Blueque's clients keep of a job): the nouns.
//! - `verb/`: one file a verb: look up, check everything, change, emit, reply. No check after the first change, so a
//!   refused command needs no rollback.
//! - `tenant`: the state of one tenant and the moves between places that verbs share.
//! - `record`: the stored form of every noun; `audit`: the invariants, for `haul doctor` and the simulator.
//! - `view`: the state as `ql:*` keys, read-only, and as Blueque's keys, which `verb/task` writes.
//!
//! What is deliberately absent: a background sweeper. Locks expire when somebody pops (time is the caller's).

#![forbid(unsafe_code)]

mod audit;
mod command;
mod config;
mod cron;
mod engine;
mod event;
mod history;
mod index;
mod job;
mod jobs;
mod keyspace;
mod name;
mod notice;
mod number;
mod queue;
mod record;
mod recur;
mod reply;
mod score;
mod stats;
mod tag;
mod task;
mod tenant;
mod text;
mod throttle;
mod verb;
mod view;
mod view_task;
mod worker;

pub use audit::Finding;
pub use command::*;
pub use cron::{CRON_BACKLOG_MAX, CRON_BYTES_MAX, Cron};
pub use engine::{Changes, Decoder, Engine, Keep, Loaded, Loader};
pub use event::{Event, TrackedEvent};
pub use job::{Entry, Failure, Job, Place, Reported, State, What};
pub use keyspace::{KeyAnswer, KeyCommand, Value};
pub use name::Name;
pub use notice::{KINDS, Kind, Notice};
pub use number::parse_number;
pub use record::{RecordError, describe_key, renumber, tenant_of};
pub use recur::Recur;
pub use reply::*;
pub use score::Score;
pub use stats::{HISTOGRAM_FINE, HISTOGRAM_UNIFIED, Series};
pub use task::{TaskCommand, is_task_key};
pub use text::{BodyId, Text};
pub use throttle::QUEUE_THROTTLE_PREFIX;
pub use verb::KLASS_WALK_MAX;
pub use view::{KeyQuery, KeyType, KeyView, RankRange, ScoreBound, ScoreRange, ViewValue};
