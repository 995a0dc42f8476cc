//! A batch on its way: taken in, in order, and not yet known to be durable.

use std::fmt;

use crate::Fault;

type Wait = Box<dyn FnOnce() -> Result<(), Fault> + Send>;

/// What [`crate::Store::submit`] gives for a batch. Tickets come true in the order in which they were given.
pub struct Ticket {
    wait: Option<Wait>,
    lazy: bool,
}

impl Ticket {
    /// Nothing to wait for.
    pub fn durable() -> Self {
        Ticket { wait: None, lazy: false }
    }

    /// Durable when this returns.
    pub fn when(wait: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Self {
        Ticket { wait: Some(Box::new(wait)), lazy: false }
    }

    /// Made durable by `sync`, which does not take long.
    pub fn by(sync: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Self {
        Ticket { wait: Some(Box::new(sync)), lazy: true }
    }

    /// Whether waiting is over before it begins.
    pub fn is_durable(&self) -> bool {
        self.wait.is_none()
    }

    /// Whether to wait is what makes it durable: without, nothing happens.
    pub fn is_lazy(&self) -> bool {
        self.lazy
    }

    /// Blocks until the batch is durable, or never will be: see [`crate::Store::commit`].
    pub fn wait(self) -> Result<(), Fault> {
        self.wait.map_or(Ok(()), |wait| wait())
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ticket({})", if self.is_durable() { "durable" } else { "on its way" })
    }
}
