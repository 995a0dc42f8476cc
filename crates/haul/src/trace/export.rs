//! The task that sends spans: gathers them for a moment, posts them, and never lets the collector's troubles be felt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::span::Span;
use super::{Figures, Sent, otlp};

/// Spans of one post.
const BATCH_MAX: usize = 512;
/// How long spans are gathered for one post.
const GATHER_FOR: Duration = Duration::from_secs(2);
/// How long a post may take.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the collector is.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `host:port`, to connect to and to name.
    host: String,
    path: String,
    headers: Vec<(String, String)>,
}

/// Without the headers: they may hold a token.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

impl Endpoint {
    /// Reads `http://host:4318` and `name=value,name=value`.
    pub(crate) fn parse(url: &str, headers: &str) -> anyhow::Result<Endpoint> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!(
                "otlp-endpoint takes an address such as http://127.0.0.1:4318, not {url}; for https, run a collector beside the server"
            );
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let named =
            host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !plain(rest) || host.contains('@') {
            bail!("otlp-endpoint takes an address such as http://127.0.0.1:4318, not {url}");
        }
        let host = if named { host.to_owned() } else { format!("{host}:4318") };
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { "/v1/traces".to_owned() } else { format!("/{path}/v1/traces") };
        let mut list = Vec::new();
        for pair in headers.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            // What is wrong is not shown: it may be a token.
            let (name, value) =
                pair.split_once('=').context("HAUL_OTLP_HEADERS takes name=value,name=value")?;
            let (name, value) = (name.trim(), value.trim());
            let printable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            if name.is_empty() || !plain(name) || name.contains(':') || !printable {
                bail!("HAUL_OTLP_HEADERS has a header that cannot be sent");
            }
            list.push((name.to_owned(), value.to_owned()));
        }
        Ok(Endpoint { host, path, headers: list })
    }
}

pub(super) async fn run(endpoint: Endpoint, mut queue: mpsc::Receiver<Sent>, figures: Arc<Figures>) {
    let mut failing = false;
    while let Some(first) = queue.recv().await {
        let (batch, finish) = gather(&mut queue, first).await;
        if !batch.is_empty() {
            let outcome = match tokio::time::timeout(POST_TIMEOUT, post(&endpoint, &batch)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(anyhow::anyhow!("no answer in time")),
            };
            match outcome {
                Ok(()) => {
                    figures.exported.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    failing = false;
                }
                Err(error) => {
                    figures.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    // Said once, not every few seconds for as long as it lasts.
                    if !failing {
                        tracing::warn!(collector = ?endpoint, %error, "spans cannot be sent; they are dropped");
                    }
                    failing = true;
                }
            }
        }
        if let Some(done) = finish {
            let _ = done.send(());
        }
    }
}

/// What arrives within a moment, up to a bound; and who wants to know when it is sent.
async fn gather(queue: &mut mpsc::Receiver<Sent>, first: Sent) -> (Vec<Span>, Option<oneshot::Sender<()>>) {
    let mut batch = Vec::new();
    let mut next = Some(first);
    let moment = tokio::time::sleep(GATHER_FOR);
    tokio::pin!(moment);
    loop {
        match next {
            Some(Sent::Span(span)) => batch.push(*span),
            Some(Sent::Finish(done)) => return (batch, Some(done)),
            None => return (batch, None),
        }
        if batch.len() >= BATCH_MAX {
            return (batch, None);
        }
        next = tokio::select! {
            sent = queue.recv() => sent,
            () = &mut moment => return (batch, None),
        };
    }
}

/// One post on a connection of its own: once in a few seconds that costs nothing.
async fn post(endpoint: &Endpoint, batch: &[Span]) -> anyhow::Result<()> {
    let body = otlp::encode(batch);
    let mut head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\nUser-Agent: haul/{}\r\nConnection: close\r\n",
        endpoint.path,
        endpoint.host,
        body.len(),
        env!("CARGO_PKG_VERSION"),
    );
    for (name, value) in &endpoint.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut stream = TcpStream::connect(&endpoint.host).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    let mut line = String::new();
    BufReader::new(tokio::io::AsyncReadExt::take(stream, 1024)).read_line(&mut line).await?;
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(()),
        Some(status) => bail!("the collector answered {}", status.trim()),
        None => bail!("the collector answered nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_headers_are_never_shown() {
        let endpoint =
            Endpoint::parse("http://collector", "authorization=Bearer secret, x-team = a").unwrap();
        assert_eq!(format!("{endpoint:?}"), "http://collector:4318/v1/traces");
        assert_eq!(endpoint.headers.len(), 2);
        assert_eq!(
            format!("{:?}", Endpoint::parse("http://h:1/base/", "").unwrap()),
            "http://h:1/base/v1/traces"
        );
        for (url, headers) in [
            ("https://collector:4318", ""),
            ("collector:4318", ""),
            ("http://", ""),
            ("http://user:password@h", ""),
            ("http://h\r\nx: y", ""),
            ("http://h", "secret"),
            ("http://h", "a b=secret"),
            ("http://h", "a=secret\r\nb: c"),
        ] {
            let error = Endpoint::parse(url, headers).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
