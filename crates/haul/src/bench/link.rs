//! A connection: a batch of commands out, as many answers back.

use anyhow::{Context, bail};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::reply::Speech;

/// Room for answers before each read.
const READ_BYTES: usize = 64 << 10;
/// The most of a server's complaint that is repeated.
const SHOWN_BYTES_MAX: usize = 300;

/// One connection.
pub(super) struct Link {
    stream: TcpStream,
    /// What is to be sent.
    pub(super) out: BytesMut,
    input: BytesMut,
    speech: Speech,
}

impl Link {
    pub(super) async fn connect(address: &str, speech: Speech) -> anyhow::Result<Link> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("no server at {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Link { stream, out: BytesMut::new(), input: BytesMut::new(), speech })
    }

    /// Sends what has been written and reads `answers` answers. `seen` gets each, and is called with none after each
    /// read from the socket. An error from the server ends the run: its figures would mean nothing.
    pub(super) async fn exchange(
        &mut self,
        answers: usize,
        mut seen: impl FnMut(Seen<'_>),
    ) -> anyhow::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        let mut left = answers;
        while left > 0 {
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                bail!("the server closed the connection");
            }
            let before = left;
            while left > 0 {
                let Some(length) = self.speech.length(&self.input)? else { break };
                let answer = self.input.get(..length).unwrap_or_default();
                if self.speech.is_refusal(answer) {
                    let shown = answer.get(..length.min(SHOWN_BYTES_MAX)).unwrap_or_default();
                    bail!("the server refused: {}", String::from_utf8_lossy(shown).trim_end());
                }
                seen(Seen::Answer(answer));
                self.input.advance(length);
                left -= 1;
            }
            seen(Seen::Arrived(before - left));
        }
        Ok(())
    }
}

/// What an exchange reports.
pub(super) enum Seen<'a> {
    Answer(&'a [u8]),
    /// How many answers came whole with one read.
    Arrived(usize),
}
