//! One connection: bytes to requests, replies to bytes. Requests that arrive together go to the shard together and are
//! answered together, in order.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hashbrown::HashSet;
use haul_client::resp::{
    Args, Frame, Limits as WireLimits, Parse, ProtocolError, parse_request, write_array_header,
};
use haul_engine::{Call, KeyQuery, KeyView, Name, Reply, Rules};
use haul_store::Fault;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::hub::{Inbox, Message};
use super::server::{Limits, Server};
use super::session::{Session, Step};
use crate::auth::audit;
use crate::clock;
use crate::dialect::{Plan, Render, Sheet, glob, keys};
use crate::net::Remote;
use crate::shard::{Delivery, Gone, Outcome};

/// Most requests have no more arguments than this.
const ARGUMENTS_FEW: usize = 16;
/// Requests taken from one read at most; the rest waits for the next turn.
const BATCH_MAX: usize = 1024;
/// Room asked for in the buffer before each read: little at first, for most connections are idle; more when it was filled.
const READ_BYTES_MIN: usize = 1 << 10;
const READ_BYTES_MAX: usize = 16 << 10;
/// A buffer that grew larger than this for one request is given back afterwards.
const BUFFER_KEPT_BYTES: usize = 256 << 10;
/// A client that takes no bytes for this long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// What a key or a channel has besides a name, such as `ql:q:` and `-scheduled`, at most.
const PREFIX_BYTES_MAX: usize = 64;
/// Replies are sent on when this much has gathered.
const FLUSH_BYTES: usize = 256 << 10;

/// How long one may stay who does not show a token.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(30);
/// Arguments of a request before a token was shown, and bytes of each; as in Redis.
const STRANGER_ARGUMENTS_MAX: usize = 10;
const STRANGER_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Why a connection ended; most reasons need no words.
#[derive(Debug)]
pub(crate) enum End {
    Closed,
    Stopping,
    TooSlow,
    Protocol,
    /// What it was let in with is no longer good.
    Revoked,
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        End::Closed
    }
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        End::Stopping
    }
}

/// A connection being served.
pub(crate) struct Conn<S> {
    server: Arc<Server>,
    stream: S,
    session: Session,
    input: BytesMut,
    /// Room asked for before the next read.
    read_bytes: usize,
    output: BytesMut,
    args: Args,
    transaction: Option<Transaction>,
    watched: Vec<(Name, Name, u64)>,
    inbox: Option<Inbox>,
    channels: HashSet<(Name, Bytes)>,
    patterns: HashSet<(Name, Bytes)>,
    /// What is left of a SCAN, and whose keys these are: each cursor is a position in it.
    scan: (Name, Vec<Bytes>),
    /// By when a token must have been shown, if one is needed.
    stranger_until: Instant,
}

/// Commands queued since MULTI.
#[derive(Default)]
struct Transaction {
    queued: Vec<Vec<Bytes>>,
    bytes: usize,
    spoilt: bool,
}

impl Transaction {
    /// Queues all but the commands that end it.
    fn queue(&mut self, step: Step, list: &[&[u8]], limits: &Limits) -> Step {
        let (limit, bytes_max) = (limits.transaction_calls_max, limits.wire.request_bytes_max);
        let bytes: usize = list.iter().map(|arg| arg.len()).sum();
        let complaint = match &step {
            Step::Exec | Step::Discard | Step::Quit | Step::Reset => return step,
            Step::Multi => "ERR MULTI calls can not be nested".to_owned(),
            Step::Watch(_) => "ERR WATCH inside MULTI is not allowed".to_owned(),
            Step::Subscribe { .. } | Step::Unsubscribe { .. } | Step::Scan { .. } => {
                self.spoilt = true;
                "ERR Command not allowed inside a transaction".to_owned()
            }
            Step::Reply(Frame::Error(text)) if is_queueing_fault(text) => {
                self.spoilt = true;
                text.clone()
            }
            _ if self.queued.len() >= limit => {
                self.spoilt = true;
                format!("ERR a transaction holds at most {limit} commands (transaction-calls-max)")
            }
            _ if self.bytes + bytes > bytes_max => {
                self.spoilt = true;
                format!("ERR a transaction holds at most {bytes_max} bytes (request-bytes-max)")
            }
            _ => {
                self.bytes += bytes;
                self.queued.push(list.iter().map(|arg| Bytes::copy_from_slice(arg)).collect());
                return Step::Reply(Frame::Simple("QUEUED".into()));
            }
        };
        Step::Reply(Frame::Error(complaint))
    }
}

/// What a connection was woken by.
enum Arrived {
    Bytes,
    Message(Message),
    Nothing,
    Revoked,
}

/// A reply in the making: known, or the shard's to give.
enum Slot {
    Ready(Frame),
    /// With what the audit log is to say of it.
    Asked(Render, Option<Box<audit::Entry>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conn<S> {
    pub(crate) fn new(server: Arc<Server>, stream: S, remote: Remote, id: u64) -> Self {
        Conn {
            session: Session::new(id, remote, &server),
            server,
            stream,
            input: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            output: BytesMut::new(),
            args: Args::new(),
            transaction: None,
            watched: Vec::new(),
            inbox: None,
            channels: HashSet::new(),
            patterns: HashSet::new(),
            scan: (Name::new(b""), Vec::new()),
            stranger_until: Instant::from_std(clock::instant()) + STRANGER_TIMEOUT,
        }
    }

    /// Serves until the client leaves or breaks the protocol, or the server stops: then what has arrived is answered.
    pub(crate) async fn run(&mut self, mut stop: watch::Receiver<bool>) -> End {
        let mut stopped = std::pin::pin!(async move {
            let _ = stop.changed().await;
        });
        let end = loop {
            let turn = tokio::select! {
                biased;
                arrived = self.arrival() => match arrived {
                    Ok(arrived) => self.handle(arrived).await,
                    Err(end) => Err(end),
                },
                () = &mut stopped => Err(End::Stopping),
            };
            if let Err(end) = turn {
                break end;
            }
            if self.server.is_stopping() {
                break End::Stopping;
            }
        };
        if let Some(inbox) = self.inbox.take() {
            self.server.hub.leave(inbox.id);
        }
        // The last words go to a client that can still hear them; what a slow one did not take is not sent again.
        if matches!(end, End::Protocol | End::Stopping | End::Revoked) {
            let _ = self.flush().await;
        }
        end
    }

    /// Waits for bytes or messages. May be cancelled: nothing is taken before it returns.
    async fn arrival(&mut self) -> Result<Arrived, End> {
        self.make_room();
        let Some(inbox) = &mut self.inbox else {
            let read = self.stream.read_buf(&mut self.input);
            let read = match self.session.access.is_some() {
                true => read.await,
                false => timeout_at(self.stranger_until, read).await.map_err(|_| End::TooSlow)?,
            };
            return if read? == 0 { Err(End::Closed) } else { Ok(Arrived::Bytes) };
        };
        let mut changes = self.server.gate.changes();
        if !self.session.refresh(&self.server) {
            return Ok(Arrived::Revoked);
        }
        tokio::select! {
            read = self.stream.read_buf(&mut self.input) => {
                if read? == 0 { Err(End::Closed) } else { Ok(Arrived::Bytes) }
            }
            message = inbox.next() => message.map(Arrived::Message).ok_or(End::TooSlow),
            _ = changes.changed() => Ok(Arrived::Nothing),
        }
    }

    /// Makes room for the next read: more if the last one left none.
    fn make_room(&mut self) {
        if !self.input.is_empty() && self.input.len() == self.input.capacity() {
            self.read_bytes = READ_BYTES_MAX.min(4 * self.read_bytes);
        }
        self.input.reserve(self.read_bytes);
    }

    async fn handle(&mut self, arrived: Arrived) -> Result<(), End> {
        match arrived {
            Arrived::Bytes => self.requests().await,
            Arrived::Message(message) => {
                self.push_message(&message);
                self.drain_inbox();
                self.flush().await
            }
            Arrived::Nothing => Ok(()),
            Arrived::Revoked => self.revoked(),
        }
    }

    /// Says why the connection ends.
    fn revoked(&mut self) -> Result<(), End> {
        self.reply(Frame::Error("NOAUTH Authentication required.".to_owned()));
        Err(End::Revoked)
    }

    /// What a request may be: little, before a token was shown.
    fn wire_limits(&self) -> WireLimits {
        let wire = self.server.limits.wire.clone();
        match self.session.access.is_some() {
            true => wire,
            false => WireLimits {
                arguments_max: STRANGER_ARGUMENTS_MAX,
                argument_bytes_max: STRANGER_ARGUMENT_BYTES_MAX,
                ..wire
            },
        }
    }

    fn drain_inbox(&mut self) {
        while self.output.len() < FLUSH_BYTES {
            let Some(message) = self.inbox.as_mut().and_then(Inbox::ready) else { break };
            self.push_message(&message);
        }
    }

    fn push_message(&mut self, message: &Message) {
        let mut items = match &message.pattern {
            Some(pattern) => vec![Frame::bulk("pmessage"), Frame::Bulk(pattern.clone())],
            None => vec![Frame::bulk("message")],
        };
        items.extend([Frame::Bulk(message.channel.clone()), Frame::Bulk(message.payload.clone())]);
        Frame::Push(items).encode(self.session.protocol, &mut self.output);
    }

    /// Handles every whole request in the buffer.
    async fn requests(&mut self) -> Result<(), End> {
        loop {
            let wire = self.wire_limits();
            let (mut slots, mut calls) = (Vec::new(), Vec::new());
            let mut more = false;
            while slots.len() < BATCH_MAX {
                match self.next_request(&wire) {
                    Ok(None) => break,
                    Ok(Some(None)) => continue,
                    Ok(Some(Some(step))) => {
                        more = true;
                        self.take(step, &mut slots, &mut calls).await?;
                    }
                    Err(error) => {
                        // What came before the broken request is done and answered first, as in Redis.
                        self.answer(&mut slots, &mut calls).await?;
                        self.reply(Frame::Error(format!("ERR {error}")));
                        return Err(End::Protocol);
                    }
                }
            }
            self.answer(&mut slots, &mut calls).await?;
            self.flush().await?;
            if !more || self.input.is_empty() {
                break;
            }
        }
        if self.input.is_empty() && self.input.capacity() > BUFFER_KEPT_BYTES {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    /// The next step: none if no whole request is there, `Some(None)` if it was blank.
    fn next_request(&mut self, wire: &WireLimits) -> Result<Option<Option<Step>>, ProtocolError> {
        match parse_request(&self.input, wire, &mut self.args)? {
            Parse::Incomplete { .. } => Ok(None),
            Parse::Complete { consumed } => {
                let mut few: [&[u8]; ARGUMENTS_FEW] = [b""; ARGUMENTS_FEW];
                let list = self.args.list(&self.input, &mut few);
                let step = if list.is_empty() {
                    None
                } else {
                    let step = self.session.step(&self.server, &list);
                    Some(match &mut self.transaction {
                        Some(transaction) => transaction.queue(step, &list, &self.server.limits),
                        None => step,
                    })
                };
                self.input.advance(consumed);
                self.args.clear();
                Ok(Some(step))
            }
        }
    }

    /// Collects what can be asked together; does at once what cannot.
    async fn take(&mut self, step: Step, slots: &mut Vec<Slot>, calls: &mut Vec<Call>) -> Result<(), End> {
        match step {
            Step::Reply(frame) => slots.push(Slot::Ready(frame)),
            Step::Call(plan) if plan.wait.is_none() => {
                // Mostly one request comes at a time.
                if calls.is_empty() {
                    slots.reserve_exact(1);
                    calls.reserve_exact(1);
                }
                slots.push(Slot::Asked(plan.render, self.session.entry(&plan.call)));
                calls.push(plan.call);
            }
            step => {
                self.answer(slots, calls).await?;
                self.alone(step).await?;
            }
        }
        Ok(())
    }

    /// Sends the collected calls and writes all the replies, in order.
    async fn answer(&mut self, slots: &mut Vec<Slot>, calls: &mut Vec<Call>) -> Result<(), End> {
        if slots.is_empty() {
            return Ok(());
        }
        Session::count(&self.server, slots.len());
        let asked = std::mem::take(calls);
        let outcomes = match asked.is_empty() {
            true => Vec::new(),
            false => self.server.shard.ask(asked, Vec::new()).await?.outcomes.unwrap_or_default(),
        };
        // What these calls published comes before their replies, also to the caller itself.
        self.drain_inbox();
        let slots = std::mem::take(slots);
        self.write(slots, outcomes).await
    }

    /// Writes replies one by one, so that large ones are never in memory together.
    async fn write(&mut self, slots: Vec<Slot>, outcomes: Vec<Outcome>) -> Result<(), End> {
        let mut outcomes = VecDeque::from(outcomes);
        let mut text = Vec::new();
        for slot in slots {
            match slot {
                Slot::Ready(frame) => frame.encode(self.session.protocol, &mut self.output),
                Slot::Asked(render, entry) => {
                    if let Some(mut entry) = entry {
                        entry.outcome = audit::outcome(outcomes.front());
                        self.server.audit.note(*entry);
                    }
                    if outcomes.front_mut().is_some_and(Outcome::lacks_bodies) {
                        outcomes = self.read_ahead(outcomes).await;
                    }
                    self.finish(render, outcomes.pop_front(), &mut text).await;
                }
            }
            if self.output.len() > FLUSH_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn read_ahead(&self, outcomes: VecDeque<Outcome>) -> VecDeque<Outcome> {
        let count = outcomes.len();
        match crate::shard::read_ahead(outcomes).await {
            Ok(outcomes) => outcomes,
            Err(fault) => (0..count).map(|_| Outcome::Fault(fault.clone())).collect(),
        }
    }

    /// Writes what a call came to; `text` is room to write in.
    async fn finish(&mut self, render: Render, outcome: Option<Outcome>, text: &mut Vec<u8>) {
        let texts = match outcome {
            Some(outcome) => crate::shard::texts(outcome).await.map_err(|fault| fault_frame(&fault)),
            None => Err(Frame::Error("ERR no answer".to_owned())),
        };
        let mut sheet = Sheet { protocol: self.session.protocol, out: &mut self.output, text };
        match texts {
            Ok((reply, texts)) => render.write(reply, &texts, &mut sheet),
            Err(frame) => sheet.frame(&frame),
        }
    }

    fn reply(&mut self, frame: Frame) {
        Session::count(&self.server, 1);
        frame.encode(self.session.protocol, &mut self.output);
    }

    /// A step that cannot be mixed with others.
    async fn alone(&mut self, step: Step) -> Result<(), End> {
        match step {
            Step::Call(plan) => return self.wait(*plan).await,
            Step::Publish { channel, payload } => {
                let receivers = self.publish(&channel, &payload);
                // Its own message comes first, as in Redis.
                self.drain_inbox();
                self.reply(Frame::Int(receivers as i64));
            }
            Step::Subscribe { channels, pattern } => self.subscribe(channels, pattern).await,
            Step::Unsubscribe { channels, pattern } => self.unsubscribe(channels, pattern),
            Step::Multi => {
                self.transaction = Some(Transaction::default());
                self.reply(Frame::ok());
            }
            Step::Exec => return self.exec().await,
            Step::Discard => {
                let frame = match self.transaction.take() {
                    Some(_) => Frame::ok(),
                    None => Frame::Error("ERR DISCARD without MULTI".to_owned()),
                };
                self.watched.clear();
                self.reply(frame);
            }
            Step::Watch(keys) => return self.watch(keys).await,
            Step::Unwatch => {
                self.watched.clear();
                self.reply(Frame::ok());
            }
            Step::Scan { cursor, pattern, count } => return self.scan_keys(cursor, &pattern, count).await,
            Step::Reset => {
                self.reset();
                self.reply(Frame::Simple("RESET".into()));
            }
            Step::Quit => {
                self.reply(Frame::ok());
                self.flush().await?;
                return Err(End::Closed);
            }
            Step::Reply(frame) => self.reply(frame),
        }
        Ok(())
    }

    fn reset(&mut self) {
        if let Some(inbox) = self.inbox.take() {
            self.server.hub.leave(inbox.id);
        }
        self.channels.clear();
        self.patterns.clear();
        self.transaction = None;
        self.watched.clear();
        self.session = Session::new(self.session.id, self.session.remote.clone(), &self.server);
    }

    /// A call that waits for something to be there. The client leaving ends the wait.
    async fn wait(&mut self, plan: Plan) -> Result<(), End> {
        self.flush().await?;
        let Plan { call, render, wait } = plan;
        let shards = self.server.shard.clone();
        let answer = shards.wait(call, wait.unwrap_or(0.0));
        tokio::pin!(answer);
        let mut changes = self.server.gate.changes();
        let delivery: Delivery = loop {
            if !self.session.refresh(&self.server) {
                return self.revoked();
            }
            // Bytes that come meanwhile are kept for later, up to a bound: a client that pipelines behind a blocked
            // call is then simply not read from.
            let readable = self.input.len() < BUFFER_KEPT_BYTES;
            tokio::select! {
                delivery = &mut answer => break delivery?,
                read = self.stream.read_buf(&mut self.input), if readable => {
                    if read? == 0 {
                        return Err(End::Closed);
                    }
                    self.make_room();
                }
                _ = changes.changed() => {}
            }
        };
        let outcome = delivery.outcomes.unwrap_or_default().into_iter().next();
        Session::count(&self.server, 1);
        self.finish(render, outcome, &mut Vec::new()).await;
        Ok(())
    }

    /// Complains about a channel, a pattern or a watched key that is longer than any name can make it.
    fn check_length(&self, bytes: usize) -> Result<(), Frame> {
        let limit = self.server.limits.data.name_bytes_max;
        match bytes > limit + PREFIX_BYTES_MAX {
            true => Err(Frame::Error(format!("ERR {bytes} bytes are too long (name-bytes-max is {limit})"))),
            false => Ok(()),
        }
    }

    fn check_watch(&self, keys: &[Name]) -> Result<(), Frame> {
        let limit = self.server.limits.transaction_calls_max;
        if self.watched.len() + keys.len() > limit {
            let text = format!("ERR a connection watches at most {limit} keys (transaction-calls-max)");
            return Err(Frame::Error(text));
        }
        keys.iter().try_for_each(|key| self.check_length(key.bytes().len()))
    }

    async fn watch(&mut self, keys: Vec<Name>) -> Result<(), End> {
        if let Err(complaint) = self.check_watch(&keys) {
            self.reply(complaint);
            return Ok(());
        }
        let call = self.session.versions(&self.server, keys.clone());
        let outcomes = self.server.shard.ask(vec![call], Vec::new()).await?.outcomes.unwrap_or_default();
        let frame = match outcomes.into_iter().next() {
            Some(Outcome::Done { reply: Ok(Reply::Versions(versions)), .. }) => {
                let tenant = &self.session.tenant;
                let watched =
                    keys.into_iter().zip(versions).map(|(key, version)| (tenant.clone(), key, version));
                self.watched.extend(watched);
                Frame::ok()
            }
            Some(Outcome::Fault(fault)) => fault_frame(&fault),
            _ => Frame::Error("ERR the keys could not be watched".to_owned()),
        };
        self.reply(frame);
        Ok(())
    }

    async fn exec(&mut self) -> Result<(), End> {
        let Some(transaction) = self.transaction.take() else {
            self.reply(Frame::Error("ERR EXEC without MULTI".to_owned()));
            return Ok(());
        };
        let mut watched = std::mem::take(&mut self.watched);
        watched
            .retain(|(tenant, ..)| self.session.access.as_ref().is_some_and(|access| access.admits(tenant)));
        if transaction.spoilt {
            self.reply(Frame::Error(
                "EXECABORT Transaction discarded because of previous errors.".to_owned(),
            ));
            return Ok(());
        }
        let mut slots = Vec::new();
        let mut calls = Vec::new();
        for queued in &transaction.queued {
            let list: Vec<&[u8]> = queued.iter().map(Bytes::as_ref).collect();
            match self.session.step(&self.server, &list) {
                Step::Call(plan) => {
                    slots.push(Slot::Asked(plan.render, self.session.entry(&plan.call)));
                    calls.push(plan.call);
                }
                Step::Publish { channel, payload } => {
                    let receivers = self.publish(&channel, &payload);
                    slots.push(Slot::Ready(Frame::Int(receivers as i64)));
                }
                Step::Reply(frame) => slots.push(Slot::Ready(frame)),
                _ => slots.push(Slot::Ready(Frame::ok())),
            }
        }
        let delivery = match calls.is_empty() && watched.is_empty() {
            true => Delivery { outcomes: Some(Vec::new()) },
            false => self.server.shard.ask(calls, watched).await?,
        };
        let Some(outcomes) = delivery.outcomes else {
            self.reply(Frame::NilArray);
            return Ok(());
        };
        Session::count(&self.server, 1);
        write_array_header(slots.len(), &mut self.output);
        self.write(slots, outcomes).await
    }

    /// A client's message, to subscribers at this node and at all others; how many there are at this one.
    fn publish(&self, channel: &Bytes, payload: &Bytes) -> usize {
        if let Some(outward) = self.server.shard.outward() {
            outward.publish_abroad(&self.session.tenant, channel, payload);
        }
        self.server.hub.publish(&self.session.tenant, channel, payload)
    }

    async fn subscribe(&mut self, channels: Vec<Bytes>, pattern: bool) {
        let id = match &self.inbox {
            Some(inbox) => inbox.id,
            None => {
                let inbox = self.server.hub.join();
                let id = inbox.id;
                self.inbox = Some(inbox);
                if let Some(outward) = self.server.shard.outward() {
                    outward.is_listened().await;
                }
                id
            }
        };
        for channel in channels {
            if let Err(complaint) = self.check_length(channel.len()) {
                self.reply(complaint);
                continue;
            }
            let key = (self.session.tenant.clone(), channel.clone());
            let own = if pattern { &mut self.patterns } else { &mut self.channels };
            if own.len() >= self.server.limits.subscriptions_max && !own.contains(&key) {
                let limit = self.server.limits.subscriptions_max;
                self.reply(Frame::Error(format!(
                    "ERR a connection has at most {limit} subscriptions (subscriptions-max)"
                )));
                continue;
            }
            self.server.hub.subscribe(id, &key.0, &channel, pattern);
            own.insert(key);
            self.confirm(if pattern { "psubscribe" } else { "subscribe" }, Some(channel));
        }
        self.session.subscribed = true;
    }

    fn unsubscribe(&mut self, channels: Vec<Bytes>, pattern: bool) {
        let own = if pattern { &self.patterns } else { &self.channels };
        let mut gone: Vec<(Name, Bytes)> = match channels.is_empty() {
            true => own.iter().cloned().collect(),
            false => channels.into_iter().map(|channel| (self.session.tenant.clone(), channel)).collect(),
        };
        gone.sort_unstable();
        let word = if pattern { "punsubscribe" } else { "unsubscribe" };
        if gone.is_empty() {
            self.confirm(word, None);
        }
        for key in gone {
            let own = if pattern { &mut self.patterns } else { &mut self.channels };
            own.remove(&key);
            if let Some(inbox) = &self.inbox {
                self.server.hub.unsubscribe(inbox.id, &key.0, &key.1, pattern);
            }
            self.confirm(word, Some(key.1));
        }
        if self.channels.is_empty() && self.patterns.is_empty() {
            self.session.subscribed = false;
            self.drain_inbox();
            if let Some(inbox) = self.inbox.take() {
                self.server.hub.leave(inbox.id);
            }
        }
    }

    fn confirm(&mut self, word: &'static str, channel: Option<Bytes>) {
        let count = (self.channels.len() + self.patterns.len()) as i64;
        let channel = channel.map_or(Frame::Nil, Frame::Bulk);
        self.reply(Frame::Push(vec![Frame::bulk(word), channel, Frame::Int(count)]));
    }

    /// A SCAN from 0 takes a snapshot of the keys; its cursors are positions in it.
    async fn scan_keys(&mut self, cursor: u64, pattern: &[u8], count: usize) -> Result<(), End> {
        let start = usize::try_from(cursor).unwrap_or(usize::MAX);
        if start == 0 || self.scan.0 != self.session.tenant {
            let env = self.session.env(&self.server);
            let call = env.call(env.clock, Rules::NATIVE, haul_engine::Command::Key(KeyQuery::Keys));
            let outcomes = self.server.shard.ask(vec![call], Vec::new()).await?.outcomes.unwrap_or_default();
            let keys = match outcomes.into_iter().next() {
                Some(Outcome::Done { reply: Ok(Reply::Key(KeyView::Keys(keys))), .. }) => {
                    keys.iter().take(keys::KEYS_MAX).map(|key| Bytes::copy_from_slice(key.bytes())).collect()
                }
                _ => Vec::new(),
            };
            self.scan = (self.session.tenant.clone(), keys);
        }
        let keys = &self.scan.1;
        let end = start.saturating_add(count).min(keys.len());
        let page = keys.get(start..end).unwrap_or_default();
        let matching: Vec<Frame> = page
            .iter()
            .filter(|key| glob::matches(pattern, key))
            .map(|key| Frame::Bulk(key.clone()))
            .collect();
        let next = if end >= keys.len() { 0 } else { end };
        if next == 0 {
            self.scan.1 = Vec::new();
        }
        self.reply(Frame::Array(vec![Frame::bulk(next.to_string()), Frame::Array(matching)]));
        Ok(())
    }

    /// Sends as much as the system takes without waiting: mostly all.
    async fn write_at_once(&mut self) -> Result<(), End> {
        let (stream, output) = (&mut self.stream, &self.output);
        let written = std::future::poll_fn(|cx| match Pin::new(&mut *stream).poll_write(cx, output) {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => Poll::Ready(Ok(0)),
        });
        let written = written.await?;
        self.output.advance(written);
        Ok(())
    }

    /// Sends what has gathered; a client that takes nothing for long is cut off.
    async fn flush(&mut self) -> Result<(), End> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.write_at_once().await?;
        let inbox = &self.inbox;
        let cut_off = async {
            match inbox {
                Some(inbox) => inbox.cut_off().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(cut_off);
        while !self.output.is_empty() {
            tokio::select! {
                written = tokio::time::timeout(WRITE_TIMEOUT, self.stream.write_buf(&mut self.output)) => match written {
                    Ok(Ok(0)) => return Err(End::Closed),
                    Ok(written) => drop(written?),
                    Err(_) => return Err(End::TooSlow),
                },
                () = &mut cut_off => return Err(End::TooSlow),
            }
        }
        // TLS may hold some of it back; for a plain stream this is nothing, not worth a look at the clock.
        let stream = &mut self.stream;
        let flushed = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_flush(cx))).await;
        match flushed {
            Poll::Ready(flushed) => flushed?,
            Poll::Pending => {
                timeout(WRITE_TIMEOUT, self.stream.flush()).await.map_err(|_| End::TooSlow)??
            }
        }
        self.output.clear();
        if self.output.capacity() > BUFFER_KEPT_BYTES {
            self.output = BytesMut::new();
        }
        Ok(())
    }
}

/// Errors that spoil a transaction when a command is queued: it is unknown, has the wrong number of arguments, or
/// is not permitted.
fn is_queueing_fault(text: &str) -> bool {
    ["ERR unknown command", "ERR wrong number of arguments", "NOPERM", "NOAUTH"]
        .iter()
        .any(|fault| text.starts_with(fault))
}

/// A fault of the store, in a client's terms.
fn fault_frame(fault: &Fault) -> Frame {
    Frame::Error(match fault {
        Fault::Full { .. } => format!("FULL {fault}; make room and send it again"),
        Fault::Corrupt { .. } => format!("ERR {fault}"),
        Fault::TooLarge { .. } => format!("BADARG {fault}"),
        _ => format!("TRYAGAIN {fault}"),
    })
}
