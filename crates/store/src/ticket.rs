//! A batch on its way: taken in, in order, and not yet known to be durable.

use std::fmt;

use crate::Fault;

type Wait = Box<dyn FnOnce() -> Result<(), Fault> + Send>;

/// What [`crate::Store::submit`] gives for a batch. Tickets come true in the order in which they were given.
pub struct Ticket(Option<Wait>);

impl Ticket {
    /// Nothing to wait for.
    pub fn durable() -> Self {
        Ticket(None)
    }

    /// Durable when this returns.
    pub fn when(wait: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Self {
        Ticket(Some(Box::new(wait)))
    }

    /// Whether waiting is over before it begins.
    pub fn is_durable(&self) -> bool {
        self.0.is_none()
    }

    /// Blocks until the batch is durable, or never will be: see [`crate::Store::commit`].
    pub fn wait(self) -> Result<(), Fault> {
        self.0.map_or(Ok(()), |wait| wait())
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ticket({})", if self.is_durable() { "durable" } else { "on its way" })
    }
}
