//! The Redis-protocol server: sockets, sessions, pub/sub. What commands mean is in `dialect`, what they do in the shard.
//!
//! - `listen`: what is done with a connection of this port.
//! - `conn`: one connection: bytes to requests, replies to bytes.
//! - `session`: what a connection has said about itself; turns a request into a step. No sockets.
//! - `transaction`: MULTI, EXEC, WATCH.
//! - `hub`: pub/sub within a tenant.
//! - `lanes`: the threads connections live on.
//! - `info`: the text of INFO.

mod conn;
mod hub;
mod info;
mod lanes;
mod listen;
mod server;
mod session;

pub(crate) use hub::Hub;
pub(crate) use info::Usage;
pub(crate) use lanes::Lanes;
pub(crate) use listen::Redis;
pub(crate) use server::{Guard, Limits, Server};
#[cfg(feature = "fuzzing")]
pub(crate) use session::{Session, Step};
