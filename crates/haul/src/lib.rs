//! Haul: a durable job queue that speaks the Redis protocol.
//!
//! A map: `dialect` translates, `shard` decides and commits, `resp` and `http` talk to clients over what `net` lets in,
//! `auth` says who may do what, `cli` talks to people, `runner` runs jobs, `serverless` stored handlers, `bench` loads a
//! server and measures it. `config` is the one table of settings, `clock` the only reader of time and entropy.

#![forbid(unsafe_code)]

mod auth;
mod bench;
mod bus;
mod cli;
mod clock;
mod cluster;
mod config;
mod copy;
mod dialect;
mod doctor;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod hot_tests;
mod http;
mod net;
mod outlets;
mod resp;
mod runner;
#[cfg(test)]
mod script_tests;
mod serve;
mod serverless;
mod shard;
mod trace;

pub use cli::main;
