//! A batch on its way: taken in, in order, and not yet known to be durable.

use std::fmt;

use crate::Fault;

type Wait = Box<dyn FnOnce() -> Result<(), Fault> + Send>;
type Chore = Box<dyn FnOnce() + Send>;

/// What [`crate::Store::submit`] gives for a batch. Tickets come true in the order in which they were given.
pub struct Ticket {
    wait: Option<Wait>,
    chore: Option<Chore>,
    lazy: bool,
}

impl Ticket {
    /// Nothing to wait for.
    pub fn durable() -> Self {
        Ticket { wait: None, chore: None, lazy: false }
    }

    /// Durable when this returns.
    pub fn when(wait: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Self {
        Ticket { wait: Some(Box::new(wait)), chore: None, lazy: false }
    }

    /// Made durable by `sync`, which does not take long. `chore` is done by whoever has time for it, if anybody does.
    pub fn by(
        sync: impl FnOnce() -> Result<(), Fault> + Send + 'static,
        chore: impl FnOnce() + Send + 'static,
    ) -> Self {
        Ticket { wait: Some(Box::new(sync)), chore: Some(Box::new(chore)), lazy: true }
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

    /// Waits like [`Ticket::wait`], tells how it went, and then does what nobody needs to wait for.
    pub fn wait_and_tell(self, tell: impl FnOnce(Result<(), Fault>)) {
        tell(self.wait.map_or(Ok(()), |wait| wait()));
        if let Some(chore) = self.chore {
            chore();
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ticket({})", if self.is_durable() { "durable" } else { "on its way" })
    }
}
