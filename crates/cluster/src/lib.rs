//! What the nodes of a shared store decide, and nothing else: no I/O, no clock. The server does what comes out of here, the
//! simulator too.
//!
//! - [`placement`]: which shard a tenant is in, and which node a shard should be on;
//! - [`presence`]: what nodes say of themselves;
//! - [`plan`]: what a node should do next.

pub mod placement;
pub mod plan;
pub mod presence;

pub use placement::shard_of;
pub use plan::{Plan, Sight};
pub use presence::{Held, Presence, Seen};
