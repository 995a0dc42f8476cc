//! One connection: greeted, then frames out and frames in. No reconnecting, no sharing.

use super::options::Target;
use super::stream::Stream;
use crate::command::{Command, CommandBuilder, Repeat};
use crate::error::Error;
use crate::resp::{Decoder, Frame, Limits};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Room made before reading.
const READ_BYTES: usize = 64 * 1024;

/// A connection that has said who it is.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: Stream,
    pub(crate) incoming: Incoming,
}

/// What has been received and not yet used.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) buf: BytesMut,
    decoder: Decoder,
    limits: Limits,
}

impl Incoming {
    /// Makes room to read into.
    pub(crate) fn reserve(&mut self) {
        if self.buf.capacity() - self.buf.len() < READ_BYTES / 4 {
            self.buf.reserve(READ_BYTES);
        }
    }

    /// The next whole frame, if there is one.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame>, Error> {
        let (consumed, frame) = self.decoder.feed(&self.buf, &self.limits)?;
        self.buf.advance(consumed);
        Ok(frame)
    }
}

impl Wire {
    pub(crate) async fn connect(target: &Target) -> Result<Self, Error> {
        let attempt = async {
            let stream = Stream::connect(target).await?;
            let incoming = Incoming {
                buf: BytesMut::new(),
                decoder: Decoder::new(),
                limits: target.options.limits.clone(),
            };
            let mut wire = Self { stream, incoming };
            wire.greet(target).await?;
            Ok(wire)
        };
        match timeout(target.options.connect_timeout, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    async fn greet(&mut self, target: &Target) -> Result<(), Error> {
        let steps = [("AUTH", &target.options.token), ("SELECT", &target.options.database)];
        for (name, value) in steps {
            let Some(value) = value else { continue };
            self.send(&CommandBuilder::new(name).arg(value).finish(Repeat::Safe)).await?;
            if let Frame::Error(text) = self.receive().await? {
                return Err(Error::refused(&text));
            }
        }
        Ok(())
    }

    /// Not to be cancelled half-way: drop the wire then.
    pub(crate) async fn send(&mut self, command: &Command) -> Result<(), Error> {
        let mut out = BytesMut::new();
        command.write(&mut out);
        self.stream.write_all(&out).await.map_err(|_| Error::Disconnected)?;
        self.stream.flush().await.map_err(|_| Error::Disconnected)
    }

    /// The next frame. May be cancelled and called again.
    pub(crate) async fn receive(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.incoming.frame()? {
                return Ok(frame);
            }
            self.incoming.reserve();
            match self.stream.read_buf(&mut self.incoming.buf).await {
                Ok(0) | Err(_) => return Err(Error::Disconnected),
                Ok(_) => {}
            }
        }
    }

    /// Whether the other end is still there, as far as can be told without sending.
    pub(crate) fn looks_alive(&mut self) -> bool {
        self.incoming.buf.is_empty() && self.stream.is_quiet()
    }
}
