//! Lanes: the threads that connections live on. A connection stays on one: it never moves between processors, and the
//! answers of a round reach all the connections of a lane with one wake.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::shard::Common;

/// Threads with a runtime each; they end when this is dropped.
pub(crate) struct Lanes {
    first: Lane,
    others: Vec<Lane>,
    turn: AtomicUsize,
}

struct Lane {
    runtime: Handle,
    /// Dropped, it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Lanes {
    /// A lane for every other processor. The shard's thread needs one too, and to be put to sleep and woken costs a lane
    /// more than it gains by a processor that is seldom free.
    pub(crate) fn start(common: &Common) -> std::io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let others = (1..processors.div_ceil(2)).map(|_| Lane::start(common.clone()));
        let others = others.collect::<Result<_, _>>()?;
        Ok(Lanes { first: Lane::start(common.clone())?, others, turn: AtomicUsize::new(0) })
    }

    /// Where a shard lives that is the only one: with the connections, if these have one lane. Commands and answers then pass
    /// from task to task without a thread that must be woken.
    pub(crate) fn home(&self) -> Option<Handle> {
        self.others.is_empty().then(|| self.first.runtime.clone())
    }

    /// The lane of the next connection: each in turn.
    pub(super) fn next(&self) -> &Handle {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.others.len() + 1);
        &self.others.get(turn).unwrap_or(&self.first).runtime
    }
}

impl Lane {
    fn start(common: Common) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().thread_name("haul-read").build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            runtime.block_on(async {
                common.join_lane();
                let _ = stopped.await;
            });
        };
        std::thread::Builder::new().name("haul-lane".to_owned()).spawn(body)?;
        Ok(Lane { runtime: handle, _stop: stop })
    }
}
