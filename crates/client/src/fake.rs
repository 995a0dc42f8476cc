//! A server for tests, at the level of the protocol: either each step is taken by the test ([`Fake::accept`]), or a
//! function answers every request ([`Fake::serve`]).

use crate::resp::{Args, Frame, Limits, Parse, Protocol, parse_request};
use bytes::{Buf, BytesMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};

pub(crate) struct Fake {
    listener: TcpListener,
    pub(crate) address: String,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        Peer { stream, buf: BytesMut::new() }
    }

    /// Answers every request with what `answer` says, on any number of connections; no answer closes the connection.
    pub(crate) fn serve(self, answer: impl FnMut(&[String]) -> Option<Frame> + Send + 'static) -> Served {
        let (published, _) = broadcast::channel(16);
        let (seen, _) = watch::channel(Vec::new());
        let served = Served { address: self.address.clone(), seen: Arc::new(seen), published };
        let (copy, answer) = (served.clone(), Arc::new(Mutex::new(answer)));
        tokio::spawn(async move {
            loop {
                let peer = self.accept().await;
                tokio::spawn(copy.clone().talk(peer, answer.clone()));
            }
        });
        served
    }
}

/// One connection, in the hands of the test.
pub(crate) struct Peer {
    stream: TcpStream,
    buf: BytesMut,
}

impl Peer {
    /// The next request as words; `None` when the client has gone.
    pub(crate) async fn request(&mut self) -> Option<Vec<String>> {
        let mut args = Args::new();
        loop {
            if let Parse::Complete { consumed } =
                parse_request(&self.buf, &Limits::for_replies(), &mut args).unwrap()
            {
                let words =
                    args.iter(&self.buf).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
                self.buf.advance(consumed);
                return Some(words);
            }
            if self.stream.read_buf(&mut self.buf).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next request in one line.
    pub(crate) async fn line(&mut self) -> String {
        self.request().await.unwrap_or_default().join(" ")
    }

    pub(crate) async fn reply(&mut self, frame: Frame) {
        let mut out = BytesMut::new();
        frame.encode(Protocol::Resp2, &mut out);
        // The client may have gone on purpose.
        let _ = self.stream.write_all(&out).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Waits until something has arrived, without taking it.
    pub(crate) async fn readable(&self) {
        self.stream.readable().await.unwrap();
    }

    pub(crate) async fn reply_text(&mut self, text: &str) {
        self.reply(Frame::bulk(text.to_owned())).await;
    }
}

/// A server that answers by itself.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) address: String,
    seen: Arc<watch::Sender<Vec<String>>>,
    published: broadcast::Sender<(String, String)>,
}

impl Served {
    async fn talk<A>(self, mut peer: Peer, answer: Arc<Mutex<A>>)
    where
        A: FnMut(&[String]) -> Option<Frame>,
    {
        while let Some(words) = peer.request().await {
            if words[0] == "SUBSCRIBE" {
                let published = self.published.subscribe();
                self.seen.send_modify(|seen| seen.push(words.join(" ")));
                return forward(peer, &words[1], published).await;
            }
            let frame = answer.lock().unwrap()(&words);
            self.seen.send_modify(|seen| seen.push(words.join(" ")));
            // What the real server does with WAIT, in short.
            if words[0] == "HAUL.POP" && frame == Some(Frame::Array(Vec::new())) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            match frame {
                Some(frame) => peer.reply(frame).await,
                None => return,
            }
        }
    }

    pub(crate) fn publish(&self, channel: &str, payload: &str) {
        self.published.send((channel.to_owned(), payload.to_owned())).unwrap();
    }

    /// The requests so far that start with this text.
    pub(crate) fn seen(&self, start: &str) -> Vec<String> {
        self.seen.borrow().iter().filter(|line| line.starts_with(start)).cloned().collect()
    }

    /// Waits until a request has come that starts with this text.
    pub(crate) async fn expect(&self, start: &str) -> String {
        let mut seen = self.seen.subscribe();
        let found = async {
            let lines =
                seen.wait_for(|lines| lines.iter().any(|line| line.starts_with(start))).await.unwrap();
            lines.iter().find(|line| line.starts_with(start)).cloned().unwrap()
        };
        within(found).await
    }
}

async fn forward(mut peer: Peer, channel: &str, mut published: broadcast::Receiver<(String, String)>) {
    let bulks = |words: [&str; 3]| Frame::Array(words.map(|word| Frame::bulk(word.to_owned())).to_vec());
    peer.reply(bulks(["subscribe", channel, "1"])).await;
    loop {
        tokio::select! {
            request = peer.request() => match request {
                Some(_) => peer.reply(bulks(["pong", "", ""])).await,
                None => return,
            },
            message = published.recv() => match message {
                Ok((name, payload)) if name == channel => peer.reply(bulks(["message", channel, &payload])).await,
                Ok(_) => {}
                Err(_) => return,
            },
        }
    }
}

/// So that a test that waits in vain fails instead of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("took too long")
}

pub(crate) fn texts(words: &[&str]) -> Frame {
    Frame::Array(words.iter().map(|word| Frame::bulk((*word).to_owned())).collect())
}
