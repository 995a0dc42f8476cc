//! The client: typed calls, many at once over one shared connection that mends itself.
//!
//! The calls are grouped as in `docs/reference/commands.md`: [putting](Put), [working](Pop), looking, managing; each group has
//! a file. This file knows only how a command gets its answer.

mod link;
mod looking;
mod managing;
mod options;
mod putting;
mod reply;
mod stream;
mod subscribe;
mod tls;
mod wire;
mod working;

pub use looking::{Jobs, Range};
pub use managing::Throttle;
pub use options::Options;
pub use putting::{Move, Put, Recur};
pub use subscribe::{Message, Subscription};
pub use tls::Tls;
pub use working::{Complete, Fail, Heartbeat, Pop, Report, Retry};

use crate::backoff::Backoff;
use crate::command::{Command, CommandBuilder, Repeat};
use crate::error::Error;
use crate::resp::Frame;
use link::{Link, Request};
use options::Target;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use wire::Wire;

/// Calls that wait for the task behind the client; more wait to be accepted.
const CALLS_QUEUED_MAX: usize = 1024;
/// Connections for waiting pops kept open between them.
const IDLE_WIRES_MAX: usize = 16;

/// A connection to a Haul server. Cheap to clone; every clone and every task shares it, and calls made at the same time
/// travel together.
///
/// When the connection breaks, the next call reconnects, with pauses that grow. A call that had not been sent, or is safe
/// to repeat (everything that only looks; a heartbeat; completing, failing or retrying a named attempt; setting something
/// to a value), is sent again until the request timeout. Any other call under way answers [`Error::Disconnected`]: it may
/// or may not have happened.
///
/// A repeated [`Complete`] whose first copy did arrive is refused with `NOTRUNNING` or `NOTHELD`: never done twice.
///
/// ```no_run
/// # async fn example() -> Result<(), haul_client::Error> {
/// use haul_client::{Client, Complete, Options, Pop, Put};
///
/// let client = Client::connect("127.0.0.1:4286", Options::default()).await?;
/// let jid = client.put(&Put::new("mail", "email", &serde_json::json!({"to": "a@b.c"})).priority(3)).await?;
/// for job in client.pop(&Pop::new("worker-1", ["mail"])).await? {
///     client.complete(&Complete::job("worker-1", &job).result("sent")).await?;
/// }
/// assert!(client.get(&jid).await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    target: Target,
    requests: mpsc::Sender<Request>,
    /// For waiting pops, which would hold up everybody else on the shared connection.
    idle_wires: Mutex<Vec<Wire>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("target", &self.shared.target).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to `host`, `host:port` or `haul://[token@]host[:port][/database]` (`hauls://` with TLS). Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address is not one, the server cannot be reached, or it refuses the token or the database.
    pub async fn connect(address: &str, options: Options) -> Result<Self, Error> {
        let target = Target::new(address, options)?;
        let wire = Wire::connect(&target).await?;
        Ok(Self::start(target, Some(wire)))
    }

    /// As [`Client::connect`], but connects at the first call: for programs that may start before the server does.
    ///
    /// # Errors
    /// The address is not one.
    pub fn lazy(address: &str, options: Options) -> Result<Self, Error> {
        Ok(Self::start(Target::new(address, options)?, None))
    }

    fn start(target: Target, wire: Option<Wire>) -> Self {
        let (requests, receiver) = mpsc::channel(CALLS_QUEUED_MAX);
        tokio::spawn(Link::new(target.clone(), receiver).run(wire));
        Self { shared: Arc::new(Shared { target, requests, idle_wires: Mutex::new(Vec::new()) }) }
    }

    /// Sends any command; an error reply becomes [`Error::Refused`]. Not repeated when its outcome is unknown. Not for
    /// commands that wait or change the connection's mode: those would hold up every other caller.
    ///
    /// # Errors
    /// The server refused, or there is no answer.
    pub async fn call(&self, args: &[impl AsRef<[u8]>]) -> Result<Frame, Error> {
        self.call_raw(args, Repeat::Unsafe).await
    }

    /// As [`Client::call`], for a command that may be sent twice: it is repeated when its outcome is unknown.
    ///
    /// # Errors
    /// The server refused, or there is no answer.
    pub async fn call_idempotent(&self, args: &[impl AsRef<[u8]>]) -> Result<Frame, Error> {
        self.call_raw(args, Repeat::Safe).await
    }

    async fn call_raw(&self, args: &[impl AsRef<[u8]>], repeat: Repeat) -> Result<Frame, Error> {
        let Some((name, rest)) = args.split_first() else {
            return Err(Error::Encode("a command needs a name".to_owned()));
        };
        let name = String::from_utf8_lossy(name.as_ref());
        self.request(CommandBuilder::new(&name).args(rest).finish(repeat)).await
    }

    /// How long a call may take.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.shared.target.options.request_timeout
    }

    fn backoff(&self) -> Backoff {
        let options = &self.shared.target.options;
        Backoff::new(options.backoff_min, options.backoff_max)
    }

    /// Gets a command its answer over the shared connection. `TRYAGAIN` promises that nothing happened, so it is repeated
    /// whatever the command is.
    pub(crate) async fn request(&self, command: Command) -> Result<Frame, Error> {
        let deadline = Instant::now() + self.request_timeout();
        let mut backoff = self.backoff();
        loop {
            let outcome = self.request_once(command.clone(), deadline).await.and_then(reply::checked);
            match outcome {
                Err(error) if error.is_try_again() => {
                    backoff.fail();
                    if Instant::now() + backoff.delay() >= deadline {
                        return Err(error);
                    }
                    sleep(backoff.delay()).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn request_once(&self, command: Command, deadline: Instant) -> Result<Frame, Error> {
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            let request = Request { command, deadline, reply };
            self.shared.requests.send(request).await.map_err(|_| Error::Disconnected)?;
            answer.await.map_err(|_| Error::Disconnected)?
        };
        timeout_at(deadline, exchange).await.map_err(|_| Error::Timeout)?
    }

    /// Gets a command its answer over a connection of its own, for an answer that may take `wait`.
    ///
    /// Dropped half-way, the connection is closed and the server stops waiting.
    pub(crate) async fn request_waiting(&self, command: Command, wait: Duration) -> Result<Frame, Error> {
        let mut wire = match self.idle_wire() {
            Some(wire) => wire,
            None => Wire::connect(&self.shared.target).await?,
        };
        let exchange = async {
            wire.send(&command).await?;
            wire.receive().await
        };
        let frame = timeout(wait.saturating_add(self.request_timeout()), exchange)
            .await
            .map_err(|_| Error::Timeout)??;
        let mut idle = self.shared.idle_wires.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_WIRES_MAX {
            idle.push(wire);
        }
        drop(idle);
        reply::checked(frame)
    }

    fn idle_wire(&self) -> Option<Wire> {
        let mut idle = self.shared.idle_wires.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain_mut(Wire::looks_alive);
        idle.pop()
    }
}

#[cfg(test)]
mod tests;
