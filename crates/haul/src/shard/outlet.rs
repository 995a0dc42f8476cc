//! The way out: a round's answers reach the connections of each lane with one wake.
//!
//! To wake a task from another thread costs a lock, and a call to the system if its runtime sleeps. So the shard's thread
//! wakes one task a lane and round, which wakes the others from inside their runtime, where that costs little.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::core::{Answer, Delivery};

thread_local! {
    /// The lane of the tasks on this thread; 0: it is none.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Where one request's answer goes.
pub(crate) struct Done {
    sender: oneshot::Sender<Delivery>,
    lane: usize,
}

impl From<oneshot::Sender<Delivery>> for Done {
    fn from(sender: oneshot::Sender<Delivery>) -> Self {
        Done { sender, lane: LANE.get() }
    }
}

impl Done {
    /// Whether nobody waits for it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// A client that went away has no use for its answer.
    pub(super) fn send(self, delivery: Delivery) {
        let _ = self.sender.send(delivery);
    }
}

type Lane = Option<mpsc::UnboundedSender<Vec<Answer>>>;

/// The lanes: runtimes whose tasks ask the shard. The first is the one that the shard was started in; without a runtime
/// there (none), the shard's thread wakes everybody itself.
pub(super) struct Outlet {
    lanes: Mutex<Vec<Lane>>,
}

impl Outlet {
    pub(super) fn new() -> Self {
        let first = Handle::try_current().ok().map(|runtime| dispatcher(&runtime));
        Outlet { lanes: Mutex::new(vec![first]) }
    }

    /// Makes a lane of the runtime with one thread, this one, that this is called in.
    pub(super) fn join(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        LANE.set(lanes.len());
        lanes.push(Some(dispatcher(&runtime)));
    }

    /// Lets answers out.
    pub(super) fn release(&self, answers: Vec<Answer>) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<Vec<Answer>> = lanes.iter().map(|_| Vec::new()).collect();
        let here = LANE.get();
        for answer in answers {
            match sorted.get_mut(answer.done.lane) {
                // On a lane itself, it need not ask another task to wake those beside it.
                Some(lane) if here == 0 || here != answer.done.lane => lane.push(answer),
                _ => answer.send(),
            }
        }
        for (lane, answers) in lanes.iter().zip(sorted) {
            match lane {
                Some(lane) if answers.len() > 1 => {
                    if let Err(unsent) = lane.send(answers) {
                        unsent.0.into_iter().for_each(Answer::send);
                    }
                }
                _ => answers.into_iter().for_each(Answer::send),
            }
        }
    }
}

fn dispatcher(runtime: &Handle) -> mpsc::UnboundedSender<Vec<Answer>> {
    let (lane, mut finished) = mpsc::unbounded_channel::<Vec<Answer>>();
    runtime.spawn(async move {
        while let Some(answers) = finished.recv().await {
            answers.into_iter().for_each(Answer::send);
        }
    });
    lane
}
