//! Listening to channels, over a connection of its own that mends itself.

use super::Client;
use super::options::Target;
use super::wire::Wire;
use crate::backoff::Backoff;
use crate::command::{CommandBuilder, Repeat};
use crate::error::Error;
use crate::resp::Frame;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};

/// Something published on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The channel it was published on.
    pub channel: String,
    /// What was published.
    pub payload: Bytes,
}

/// Channels being listened to. What is published while the connection is broken is missed: see
/// [`Subscription::reconnects`].
#[derive(Debug)]
pub struct Subscription {
    target: Target,
    command: &'static str,
    names: Vec<String>,
    wire: Option<Listening>,
    backoff: Backoff,
    connects: u64,
}

#[derive(Debug)]
struct Listening {
    wire: Wire,
    heard_at: Instant,
    /// Asked whether it is still there, and not heard from since.
    probed: bool,
}

impl Client {
    /// Listens to channels by name.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub async fn subscribe(
        &self,
        channels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Subscription, Error> {
        Subscription::open(self, "SUBSCRIBE", channels.into_iter().map(Into::into).collect()).await
    }

    /// Listens to channels by pattern, as Redis's `PSUBSCRIBE`.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub async fn subscribe_patterns(
        &self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Subscription, Error> {
        Subscription::open(self, "PSUBSCRIBE", patterns.into_iter().map(Into::into).collect()).await
    }
}

impl Subscription {
    async fn open(client: &Client, command: &'static str, names: Vec<String>) -> Result<Self, Error> {
        let mut subscription = Self::unopened(client, command, names);
        subscription.connect().await?;
        Ok(subscription)
    }

    /// Connects when first asked for a message.
    pub(crate) fn unopened(client: &Client, command: &'static str, names: Vec<String>) -> Self {
        let target = client.shared.target.clone();
        Self { target, command, names, wire: None, backoff: client.backoff(), connects: 0 }
    }

    /// How often the connection had to be made anew; each time, messages may have been missed.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.connects.saturating_sub(1)
    }

    /// Waits for the next message, reconnecting as often as it takes. May be cancelled and called again without losing any.
    ///
    /// # Errors
    /// The server refuses the token, the database or the subscription; or does not speak the protocol as expected.
    pub async fn next(&mut self) -> Result<Message, Error> {
        loop {
            let frame = match self.receive().await {
                Ok(frame) => frame,
                Err(error) if error.is_passing() => {
                    tracing::debug!(%error, "subscription interrupted");
                    self.wire = None;
                    self.backoff.fail();
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Frame::Error(text) = frame {
                self.wire = None;
                self.backoff.fail();
                return Err(Error::refused(&text));
            }
            if let Some(message) = message(frame) {
                return Ok(message);
            }
        }
    }

    /// The next frame of any kind; a silent connection is probed.
    async fn receive(&mut self) -> Result<Frame, Error> {
        if self.wire.is_none() {
            sleep(self.backoff.delay()).await;
            self.connect().await?;
        }
        // Taken out while it is written to: cancelled half-way, it must not be used again.
        let patience = self.target.options.request_timeout;
        let mut listening = self.wire.take().ok_or(Error::Disconnected)?;
        if !listening.probed && Instant::now() >= listening.heard_at + patience {
            listening.wire.send(&CommandBuilder::new("PING").finish(Repeat::Safe)).await?;
            listening.probed = true;
        }
        let listening = self.wire.insert(listening);
        let until = listening.heard_at + if listening.probed { patience * 2 } else { patience };
        match timeout_at(until, listening.wire.receive()).await {
            Ok(Ok(frame)) => {
                listening.heard_at = Instant::now();
                listening.probed = false;
                self.backoff.reset();
                Ok(frame)
            }
            Ok(Err(error)) => Err(error),
            Err(_) if listening.probed => Err(Error::Timeout),
            // The next call probes.
            Err(_) => Ok(Frame::Nil),
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let mut wire = Wire::connect(&self.target).await?;
        wire.send(&CommandBuilder::new(self.command).args(&self.names).finish(Repeat::Safe)).await?;
        self.wire = Some(Listening { wire, heard_at: Instant::now(), probed: false });
        self.connects += 1;
        Ok(())
    }
}

/// A message, if the frame is one: `message channel payload` or `pmessage pattern channel payload`.
fn message(frame: Frame) -> Option<Message> {
    let (Frame::Array(items) | Frame::Push(items)) = frame else { return None };
    let mut items = items.into_iter().map(|item| match item {
        Frame::Bulk(bytes) => Some(bytes),
        Frame::Simple(text) => Some(Bytes::from(text.into_owned())),
        _ => None,
    });
    let kind = items.next()??;
    if kind == "pmessage" {
        items.next();
    } else if kind != "message" {
        return None;
    }
    let channel = String::from_utf8_lossy(&items.next()??).into_owned();
    Some(Message { channel, payload: items.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_other_frames() {
        let bulks = |words: &[&str]| {
            Frame::Array(words.iter().map(|word| Frame::bulk((*word).to_owned())).collect::<Vec<_>>())
        };
        let expected = Some(Message { channel: "c".into(), payload: Bytes::from("hi") });
        assert_eq!(message(bulks(&["message", "c", "hi"])), expected);
        assert_eq!(message(bulks(&["pmessage", "*", "c", "hi"])), expected);
        for other in [bulks(&["pong", ""]), bulks(&["message", "c"]), bulks(&[]), Frame::ok()] {
            assert_eq!(message(other), None);
        }
    }
}
