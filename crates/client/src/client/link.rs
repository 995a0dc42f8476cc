//! The shared connection: one task that writes what many callers ask, matches answers in order, and reconnects.
//!
//! What is known when a connection breaks decides a request's fate: not a byte of it written, it is sent again; written
//! and safe to repeat, it is sent again; otherwise its caller is told that the outcome is unknown.

use super::options::Target;
use super::stream::Stream;
use super::wire::{Incoming, Wire};
use crate::backoff::Backoff;
use crate::command::{Command, Repeat};
use crate::error::Error;
use crate::resp::Frame;
use bytes::BytesMut;
use std::collections::VecDeque;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

/// Requests sent and not yet answered; more wait their turn.
const IN_FLIGHT_MAX: usize = 16 * 1024;
/// Bytes encoded and not yet written; one request may go beyond.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Requests taken from the channel at once.
const BATCH_MAX: usize = 512;
/// Requests kept waiting for a connection, beyond what the channel holds.
const WAITING_MAX: usize = 64 * 1024;

/// One caller's request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    /// The caller has gone by then.
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Frame, Error>>,
}

/// The task behind a client.
pub(crate) struct Link {
    target: Target,
    receiver: mpsc::Receiver<Request>,
    waiting: VecDeque<Request>,
    backoff: Backoff,
}

/// Why serving a connection ended.
enum Ended {
    Broken,
    NoMoreCallers,
}

/// What is under way on one connection.
struct Flight {
    sent: VecDeque<Sent>,
    output: BytesMut,
    /// Bytes ever put into `output`, and those of them handed to the system.
    encoded: u64,
    written: u64,
    /// When the server last said something, or was first asked something.
    heard_at: Instant,
    answered: bool,
}

struct Sent {
    request: Request,
    /// Where in the stream of bytes it begins.
    begins_at: u64,
}

impl Link {
    pub(crate) fn new(target: Target, receiver: mpsc::Receiver<Request>) -> Self {
        let backoff = Backoff::new(target.options.backoff_min, target.options.backoff_max);
        Self { target, receiver, waiting: VecDeque::new(), backoff }
    }

    /// Runs until every client is gone.
    pub(crate) async fn run(mut self, mut first: Option<Wire>) {
        loop {
            let wire = match first.take() {
                Some(wire) => wire,
                None => match self.reconnect().await {
                    Some(wire) => wire,
                    None => return,
                },
            };
            if let Ended::NoMoreCallers = self.serve(wire).await {
                return;
            }
        }
    }

    /// Connects once somebody asks something; `None` when nobody can any more.
    async fn reconnect(&mut self) -> Option<Wire> {
        loop {
            self.waiting.retain(Request::is_awaited);
            if self.waiting.is_empty() {
                self.waiting.push_back(self.receiver.recv().await?);
            }
            sleep(self.backoff.delay()).await;
            match Wire::connect(&self.target).await {
                Ok(wire) => return Some(wire),
                Err(error) => {
                    self.backoff.fail();
                    tracing::debug!(address = %self.target.address, %error, "cannot connect");
                    self.give_up(&error);
                }
            }
        }
    }

    /// Tells those who cannot wait for another attempt why there is no connection: everybody, if the server refused us.
    fn give_up(&mut self, error: &Error) {
        while self.waiting.len() < WAITING_MAX {
            match self.receiver.try_recv() {
                Ok(request) => self.waiting.push_back(request),
                Err(_) => break,
            }
        }
        let next_attempt_at = Instant::now() + self.backoff.delay();
        let (patient, hopeless): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|request| error.is_passing() && request.deadline > next_attempt_at);
        self.waiting.extend(patient);
        for request in hopeless {
            request.answer(Err(error.clone()));
        }
    }

    async fn serve(&mut self, wire: Wire) -> Ended {
        let Wire { stream, incoming } = wire;
        match stream {
            Stream::Plain(mut stream) => {
                let (reader, writer) = stream.split();
                self.exchange(reader, writer, incoming).await
            }
            Stream::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                self.exchange(reader, writer, incoming).await
            }
        }
    }

    async fn exchange(
        &mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
        mut incoming: Incoming,
    ) -> Ended {
        // How long the server may stay silent while it owes an answer.
        let patience = self.target.options.request_timeout;
        let mut flight = Flight::new();
        let mut batch = Vec::new();
        let (mut open, mut is_flushed) = (true, true);
        loop {
            flight.load(&mut self.waiting);
            if !open && flight.sent.is_empty() && self.waiting.is_empty() {
                return Ended::NoMoreCallers;
            }
            incoming.reserve();
            tokio::select! {
                read = reader.read_buf(&mut incoming.buf) => {
                    if matches!(read, Ok(0) | Err(_)) || flight.answer(&mut incoming).is_err() {
                        break;
                    }
                }
                pushed = push(&mut writer, &mut flight.output), if !is_flushed || !flight.output.is_empty() => {
                    match pushed {
                        Ok(Pushed::Bytes(0)) | Err(_) => break,
                        Ok(Pushed::Bytes(bytes)) => flight.written += bytes as u64,
                        Ok(Pushed::Flushed) => {}
                    }
                    is_flushed = matches!(pushed, Ok(Pushed::Flushed));
                }
                count = self.receiver.recv_many(&mut batch, BATCH_MAX), if open && self.waiting.is_empty() => {
                    open = count > 0;
                    self.waiting.extend(batch.drain(..));
                }
                () = sleep_until(flight.heard_at + patience), if !flight.sent.is_empty() => break,
            }
        }
        self.salvage(flight);
        Ended::Broken
    }

    /// Sorts the requests of a broken connection: to be sent again, in their order, or of unknown outcome.
    fn salvage(&mut self, flight: Flight) {
        if flight.answered {
            self.backoff.reset();
        } else if !flight.sent.is_empty() {
            self.backoff.fail();
        }
        for sent in flight.sent.into_iter().rev() {
            let untouched = sent.begins_at >= flight.written;
            if untouched || sent.request.command.repeat == Repeat::Safe {
                self.waiting.push_front(sent.request);
            } else {
                sent.request.answer(Err(Error::Disconnected));
            }
        }
    }
}

enum Pushed {
    Bytes(usize),
    Flushed,
}

/// Writes some of what there is, or sees to it that all that was written leaves. May be cancelled.
async fn push(writer: &mut (impl AsyncWrite + Unpin), output: &mut BytesMut) -> std::io::Result<Pushed> {
    if output.is_empty() {
        return writer.flush().await.map(|()| Pushed::Flushed);
    }
    writer.write_buf(output).await.map(Pushed::Bytes)
}

impl Flight {
    fn new() -> Self {
        Self {
            sent: VecDeque::new(),
            output: BytesMut::new(),
            encoded: 0,
            written: 0,
            heard_at: Instant::now(),
            answered: false,
        }
    }

    /// Encodes what waits, as far as there is room.
    fn load(&mut self, waiting: &mut VecDeque<Request>) {
        while self.sent.len() < IN_FLIGHT_MAX && self.output.len() < OUTPUT_BYTES_MAX {
            let Some(request) = waiting.pop_front() else { return };
            if !request.is_awaited() {
                continue;
            }
            if self.sent.is_empty() {
                self.heard_at = Instant::now();
            }
            let before = self.output.len();
            request.command.write(&mut self.output);
            let begins_at = self.encoded;
            self.encoded += (self.output.len() - before) as u64;
            self.sent.push_back(Sent { request, begins_at });
        }
    }

    /// Gives each frame received to the oldest request.
    fn answer(&mut self, incoming: &mut Incoming) -> Result<(), Error> {
        self.heard_at = Instant::now();
        while let Some(frame) = incoming.frame()? {
            if let Frame::Push(_) = frame {
                continue;
            }
            let sent =
                self.sent.pop_front().ok_or_else(|| Error::Decode("an answer nobody asked for".into()))?;
            self.answered = true;
            sent.request.answer(Ok(frame));
        }
        Ok(())
    }
}

impl Request {
    /// Whether the caller still waits; it may have run out of time.
    fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    fn answer(self, outcome: Result<Frame, Error>) {
        // The caller may have gone; then nobody wants to know.
        let _ = self.reply.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Options;
    use crate::command::CommandBuilder;

    type Answer = oneshot::Receiver<Result<Frame, Error>>;

    fn request(repeat: Repeat) -> (Request, Answer) {
        let (reply, answer) = oneshot::channel();
        let command = CommandBuilder::new("X").finish(repeat);
        (Request { command, deadline: Instant::now(), reply }, answer)
    }

    /// What becomes of three requests, unsafe, safe and unsafe, when `written` bytes of them had left.
    fn fates(written: u64) -> Vec<&'static str> {
        let target = Target::new("box", Options::default()).unwrap();
        let mut link = Link::new(target, mpsc::channel(1).1);
        let (requests, answers): (Vec<_>, Vec<_>) =
            [Repeat::Unsafe, Repeat::Safe, Repeat::Unsafe].map(request).into_iter().unzip();
        link.waiting.extend(requests);
        let mut flight = Flight::new();
        flight.load(&mut link.waiting);
        assert_eq!(flight.output.len(), 33);
        flight.written = written;
        link.salvage(flight);
        let fate = |mut answer: Answer| match answer.try_recv() {
            Ok(Err(Error::Disconnected)) => "unknown",
            Err(oneshot::error::TryRecvError::Empty) => "again",
            _ => "wrong",
        };
        answers.into_iter().map(fate).collect()
    }

    #[test]
    fn a_request_of_which_no_byte_was_written_is_sent_again() {
        assert_eq!(fates(0), ["again", "again", "again"]);
        assert_eq!(fates(1), ["unknown", "again", "again"]);
        assert_eq!(fates(22), ["unknown", "again", "again"]);
        assert_eq!(fates(23), ["unknown", "again", "unknown"]);
        assert_eq!(fates(33), ["unknown", "again", "unknown"]);
    }
}
