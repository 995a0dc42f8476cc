//! What nodes say to each other: engine calls and their outcomes as they are, so that every dialect, HTTP, blocked pops and
//! transactions pass through alike. Frames of a length (4 bytes, little-endian) and postcard, inside TLS (`tls`).
//!
//! A change of any type that is sent, in the engine too, is a change of [`VERSION`]: nodes of different versions do not
//! talk, and whoever needs one that does not answer is told to try again.

use bytes::Bytes;
use haul_cluster::Presence;
use haul_engine::{BodyId, Call, Event, Name, Notice, Refusal, Reply};
use haul_store::Fault;
use hmac::{Hmac, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::shard::{Fetch, Outcome};

/// Of everything that is sent.
pub(super) const VERSION: u32 = 1;

/// The longest frame: the largest answer there is, and some.
const FRAME_BYTES_MAX: usize = 600 << 20;
/// The longest frame of one who has not proved to know the secret.
const GREETING_BYTES_MAX: usize = 4096;

/// From the node that asks to the one that is asked.
#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    /// Calls to apply together, as in `Shard::ask`; with `wait`, as in `Shard::wait`.
    Calls { id: u64, shard: u32, calls: Vec<Call>, watched: Vec<(Name, Name, u64)>, wait: Option<f64> },
    /// Nobody waits for that answer any more.
    Cancel { id: u64 },
    /// What to tell from now on of what happens in the shards.
    Listen { events: bool, notices: bool },
    /// A message of a client to the subscribers of that node.
    Publish { tenant: Name, channel: Bytes, payload: Bytes },
    /// Something changed at the node that asks.
    Presence(Presence),
    /// Answered, in turn.
    Ping { id: u64 },
}

/// Back.
#[derive(Serialize, Deserialize)]
pub(super) enum Tell {
    /// See `Delivery`.
    Answer {
        id: u64,
        outcomes: Option<Vec<Said>>,
    },
    /// That shard is not here: nothing was done.
    NotHere {
        id: u64,
    },
    Events {
        tenant: Name,
        events: Vec<Event>,
    },
    Notices {
        tenant: Name,
        notices: Vec<Notice>,
    },
    Pong {
        id: u64,
    },
}

/// An outcome with all its bodies.
#[derive(Serialize, Deserialize)]
pub(super) enum Said {
    Done { reply: Result<Reply, Refusal>, bodies: Vec<(BodyId, Bytes)> },
    Full(String),
    TooLarge(String),
    Corrupt(String),
    Retry(String),
}

impl From<Outcome> for Said {
    /// The outcome's bodies have been read.
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done { reply, bodies } => Said::Done { reply, bodies: bodies.found },
            Outcome::Fault(Fault::Full { what }) => Said::Full(what),
            Outcome::Fault(Fault::TooLarge { what }) => Said::TooLarge(what),
            Outcome::Fault(Fault::Corrupt { what }) => Said::Corrupt(what),
            Outcome::Fault(Fault::Retry { what }) => Said::Retry(what),
            Outcome::Fault(fault) => Said::Retry(fault.to_string()),
        }
    }
}

impl From<Said> for Outcome {
    fn from(said: Said) -> Self {
        match said {
            Said::Done { reply, bodies } => {
                Outcome::Done { reply, bodies: Fetch { found: bodies, ..Fetch::default() } }
            }
            Said::Full(what) => Outcome::Fault(Fault::Full { what }),
            Said::TooLarge(what) => Outcome::Fault(Fault::TooLarge { what }),
            Said::Corrupt(what) => Outcome::Fault(Fault::Corrupt { what }),
            Said::Retry(what) => Outcome::Fault(Fault::Retry { what }),
        }
    }
}

/// A frame ready to be written.
pub(super) fn frame(message: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).map_err(std::io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(std::io::Error::other)?;
    if let Some(head) = bytes.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    Ok(bytes)
}

/// Writes a frame; what follows at once may go with it.
pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    frame: &[u8],
    is_last: bool,
) -> std::io::Result<()> {
    stream.write_all(frame).await?;
    if is_last { stream.flush().await } else { Ok(()) }
}

/// The next frame.
pub(super) async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<T> {
    read_within(stream, FRAME_BYTES_MAX).await
}

async fn read_within<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> std::io::Result<T> {
    let length = stream.read_u32_le().await? as usize;
    if length > bytes_max {
        return Err(std::io::Error::other(format!("a frame of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    postcard::from_bytes(&bytes).map_err(std::io::Error::other)
}

/// What either side begins with.
#[derive(Serialize, Deserialize)]
struct Greeting {
    version: u32,
    nonce: [u8; 32],
}

/// Proof of knowing the secret: of both nonces, of which side one is, and of the connection itself.
fn proof(secret: &str, bound: &[u8; 32], side: &str, first: &Greeting, second: &Greeting) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(side.as_bytes());
    mac.update(&first.nonce);
    mac.update(&second.nonce);
    mac.update(bound);
    mac
}

/// Both sides prove to each other that they know the secret, on this very connection: `bound` is a number that only its
/// two ends have. `asks` is the one that connected.
pub(super) async fn greet<S>(
    stream: &mut S,
    secret: &str,
    bound: &[u8; 32],
    asks: bool,
) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = crate::clock::entropy().map_err(std::io::Error::other)?;
    let own = Greeting { version: VERSION, nonce };
    stream.write_all(&frame(&own)?).await?;
    stream.flush().await?;
    let other: Greeting = read_within(stream, GREETING_BYTES_MAX).await?;
    if other.version != VERSION {
        let what = format!("it speaks version {}, this node version {VERSION}", other.version);
        return Err(std::io::Error::other(what));
    }
    let (first, second) = if asks { (&own, &other) } else { (&other, &own) };
    let (mine, theirs) = if asks { ("asks", "answers") } else { ("answers", "asks") };
    let proven: [u8; 32] = proof(secret, bound, mine, first, second).finalize().into_bytes().into();
    stream.write_all(&frame(&proven)?).await?;
    stream.flush().await?;
    let shown: [u8; 32] = read_within(stream, GREETING_BYTES_MAX).await?;
    let wanted = proof(secret, bound, theirs, first, second);
    wanted
        .verify_slice(&shown)
        .map_err(|_| std::io::Error::other("it does not know the secret of this data set"))
}
