//! An HTTP connection, and what every request goes through before a route sees it: rate, size, origin, token.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tower::ServiceExt;

use super::Limits;
use super::accept::Protocol;
use super::peers::Remote;
use crate::auth::{Access, Denied};
use crate::http::problem::Problem;
use crate::http::serverless;
use crate::resp::Server;

/// A client that takes no bytes for this long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Headers of a request.
const HEADERS_MAX: usize = 100;
/// What needs no token: whether the server lives, and what it offers.
const OPEN: &[&str] = &["/healthz", "/readyz", "/openapi.json"];
/// Figures of all tenants together.
const SERVER_WIDE: &[&str] = &["/metrics"];
/// What another site may have a link to: looking at it changes nothing.
const PAGES: &str = "/ui/";
/// What people log in and out with.
const DOORS: &[&str] = &["/ui/login", "/ui/logout"];
/// Where a browser keeps its session.
pub(crate) const COOKIE: &str = "haul_session";
/// What a request that changes something must have besides the cookie: another site's page cannot add it.
const PAGE_HEADER: &str = "x-haul-page";

/// HTTP.
#[derive(Clone)]
pub(crate) struct Web {
    router: Router,
    request_timeout: Duration,
    header_bytes_max: usize,
}

impl Web {
    /// Serves these routes, each request checked first.
    pub(crate) fn new(router: Router, server: &Arc<Server>) -> Self {
        Web {
            router: guarded(router, server),
            request_timeout: Duration::from_secs(server.net.request_seconds_max as u64),
            header_bytes_max: server.net.header_bytes_max,
        }
    }
}

impl Protocol for Web {
    // Closing the connection ends these documents, so neither says how long it is.
    const TOO_MANY: &'static [u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
        content-type: application/json\r\n\r\n\
        {\"error\":{\"code\":\"CONNECTIONS\",\"message\":\"there are too many connections\"}}\n";
    const NEEDS_TLS: &'static [u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
        content-type: application/json\r\n\r\n\
        {\"error\":{\"code\":\"TLS\",\"message\":\"this port speaks TLS: use https\"}}\n";

    async fn serve<S>(self, stream: S, remote: Remote, mut stop: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    {
        let address = remote.address;
        let router = self.router;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(remote.address));
            request.extensions_mut().insert(remote.clone());
            router.clone().oneshot(request.map(Body::new))
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.request_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(self.header_bytes_max);
        let io = TokioIo::new(Patient { stream, deadline: None });
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        let end = tokio::select! {
            end = &mut connection => end,
            _ = stop.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = end {
            tracing::debug!(peer = %address, %error, "connection ended");
        }
    }
}

/// A stream whose writes must get on.
struct Patient<S> {
    stream: S,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Patient<S> {
    fn judge<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(polled, context)
    }
}

/// The routes behind the checks.
pub(crate) fn guarded(router: Router, server: &Arc<Server>) -> Router {
    // The document's size is checked here, for every route and however the route reads it.
    router
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(server.clone(), guard))
}

async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let origin = match check_origin(&server, request.method(), request.uri().path(), request.headers()) {
        Ok(origin) => origin,
        Err(problem) => return problem.into_response(),
    };
    let mut response = match (&origin, request.headers().get(header::ACCESS_CONTROL_REQUEST_METHOD)) {
        (Some(_), Some(_)) if request.method() == Method::OPTIONS => preflight(request.headers()),
        _ => checked(&server, request, next).await,
    };
    if let Some(origin) = origin {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

async fn checked(server: &Arc<Server>, mut request: Request, next: Next) -> Response {
    // Each interface has its own words for a refusal.
    let told = match serverless::is_path(request.uri().path()) {
        true => serverless::refused,
        false => Problem::into_response,
    };
    if let Err(problem) = check(server, &mut request) {
        let (status, wait) = (problem.0.status, problem.1);
        let mut response = told(problem.0);
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"haul\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        return response;
    }
    let verdict = Arc::new(AtomicU8::new(FINE));
    let limits = &server.net;
    let request = request.map(|body| match body.is_end_stream() {
        true => body,
        false => Body::new(Measured::new(body, limits, verdict.clone())),
    });
    let response = next.run(request).await;
    match verdict.load(Ordering::Relaxed) {
        TOO_LARGE => told(too_large(limits.body_bytes_max)),
        TOO_LATE => told(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "TIMEOUT",
            format!(
                "the document did not arrive within {} seconds (request-seconds-max)",
                limits.request_seconds_max
            ),
        )),
        _ => response,
    }
}

fn too_large(max: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "TOOLARGE",
        format!("the document has more than {max} bytes (body-bytes-max)"),
    )
}

/// A problem, and the seconds to wait if waiting helps.
type Refused = (Problem, Option<u64>);

fn check(server: &Server, request: &mut Request) -> Result<(), Refused> {
    let limits = &server.net;
    let remote = request.extensions().get::<Remote>().cloned();
    if let Some(remote) = &remote {
        remote.peer.request().map_err(|seconds| {
            let message =
                format!("more than {} requests a second (peer-requests-max)", limits.peer_requests_max);
            let wait = (seconds.ceil() as u64).max(1);
            (Problem::new(StatusCode::TOO_MANY_REQUESTS, "RATE", message), Some(wait))
        })?;
    }
    let url = request.uri().path_and_query().map_or(0, |text| text.as_str().len());
    if url > limits.url_bytes_max {
        let message = format!("the URL has {url} bytes, more than {} (url-bytes-max)", limits.url_bytes_max);
        return Err((Problem::new(StatusCode::URI_TOO_LONG, "URL", message), None));
    }
    if !is_open(request.method(), request.uri().path()) {
        let access = authenticate(server, request.method(), request.headers(), remote.as_ref())?;
        if SERVER_WIDE.contains(&request.uri().path()) && !access.is_server_wide() {
            let message = "these figures are of all tenants together and need a token for the tenant *";
            return Err((Problem::new(StatusCode::FORBIDDEN, "NOPERM", message), None));
        }
        request.extensions_mut().insert(access);
    }
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > limits.body_bytes_max as u64) {
        return Err((too_large(limits.body_bytes_max), None));
    }
    Ok(())
}

/// The page itself is no secret; what it shows is.
fn is_open(method: &Method, path: &str) -> bool {
    let is_page = method.is_safe() && (path.starts_with(PAGES) || path == "/ui");
    OPEN.contains(&path) || DOORS.contains(&path) || is_page
}

fn unauthorized(message: &str) -> Refused {
    (Problem::new(StatusCode::UNAUTHORIZED, "NOAUTH", message.to_owned()), None)
}

fn authenticate(
    server: &Server,
    method: &Method,
    headers: &HeaderMap,
    remote: Option<&Remote>,
) -> Result<Access, Refused> {
    if let Some(access) = server.gate.enter_unnamed() {
        return Ok(access);
    }
    if let Some(id) = session(headers).filter(|_| !headers.contains_key(header::AUTHORIZATION)) {
        return resume(server, id, method, headers);
    }
    let Some(secret) = token(headers) else {
        return Err(unauthorized(
            "a token is needed: Authorization: Bearer TOKEN (made with `haul token add`)",
        ));
    };
    let Some(remote) = remote else { return Err(unauthorized("nobody knows where this came from")) };
    enter(server, secret, remote)
}

/// Lets in who shows a token.
pub(crate) fn enter(server: &Server, secret: &[u8], remote: &Remote) -> Result<Access, Refused> {
    server.gate.enter(None, secret, &remote.peer).map_err(|denied| match denied {
        Denied::Wrong => unauthorized("there is no such token, or it has ended"),
        Denied::TooOften => {
            let message = "too many wrong tokens from this address; try again in a few seconds";
            (Problem::new(StatusCode::TOO_MANY_REQUESTS, "RATE", message), Some(2))
        }
    })
}

/// Lets in who logged in on the page. A cookie goes along with requests that the person did not make, so it alone
/// changes nothing.
fn resume(server: &Server, id: &str, method: &Method, headers: &HeaderMap) -> Result<Access, Refused> {
    let access = server.sessions.access(id, crate::clock::now());
    let Some(access) = access.and_then(|access| server.gate.renew(&access)) else {
        return Err(unauthorized("the session has ended: log in again"));
    };
    if !method.is_safe() && !headers.contains_key(PAGE_HEADER) {
        let message = "with a cookie, a request that changes something needs the header X-Haul-Page";
        return Err((Problem::new(StatusCode::FORBIDDEN, "PAGE", message), None));
    }
    Ok(access)
}

fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().as_bytes())
}

/// The session that the cookie names.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// A page of another site must not act through its reader's browser: with an `Origin` that is neither this server nor
/// named in `cors-origin` nothing is done. Without authentication, a name that is not this machine's own is not trusted
/// either, because whoever owns a name can point it here.
fn check_origin(
    server: &Server,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Option<HeaderValue>, Problem> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(&header::HOST).unwrap_or_default();
    let origin = headers.get(header::ORIGIN);
    let refused = |message: String| Problem::new(StatusCode::FORBIDDEN, "ORIGIN", message);
    let named = |origin: &str| server.net.cors_origins.iter().any(|known| known == origin);
    if let Some(value) = origin {
        let origin = value.to_str().unwrap_or_default();
        if named(origin) {
            return Ok(Some(value.clone()));
        }
        let site = origin.split_once("://").map_or("", |(_, site)| site);
        if site.is_empty() || bare(site) != bare(host) {
            return Err(refused(format!(
                "pages of {} may not use this server; allow them with --cors-origin",
                origin.escape_debug()
            )));
        }
    }
    let is_page = method == Method::GET && path.starts_with(PAGES);
    let is_foreign = matches!(
        headers.get("sec-fetch-site").map(HeaderValue::as_bytes),
        Some(b"cross-site" | b"same-site")
    );
    if is_foreign && !is_page {
        return Err(refused(
            "pages of another site may not use this server; allow them with --cors-origin".to_owned(),
        ));
    }
    let is_browser = origin.is_some() || headers.contains_key("sec-fetch-site");
    let is_probe = method == Method::GET && OPEN.contains(&path);
    if is_browser && !is_probe && !is_own_name(host) && !server.gate.is_required() {
        let named = server.net.cors_origins.iter().any(|known| known.ends_with(&format!("://{host}")));
        if !named {
            return Err(refused(format!(
                "{} is not known to be this server: make a token, or name it with --cors-origin",
                host.escape_debug()
            )));
        }
    }
    Ok(None)
}

/// Without the port that goes without saying.
fn bare(host: &str) -> &str {
    host.strip_suffix(":80").or_else(|| host.strip_suffix(":443")).unwrap_or(host)
}

/// An address, or a name that always means this machine.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.ends_with(".localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

fn preflight(headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let answer = response.headers_mut();
    answer.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE"),
    );
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

const FINE: u8 = 0;
const TOO_LARGE: u8 = 1;
const TOO_LATE: u8 = 2;

/// A document that has a limit in bytes and in time.
struct Measured {
    body: Body,
    bytes_left: usize,
    deadline: Pin<Box<Sleep>>,
    verdict: Arc<AtomicU8>,
}

impl Measured {
    fn new(body: Body, limits: &Limits, verdict: Arc<AtomicU8>) -> Self {
        let deadline = Box::pin(sleep(Duration::from_secs(limits.request_seconds_max as u64)));
        Measured { body, bytes_left: limits.body_bytes_max, deadline, verdict }
    }

    fn end(
        &self,
        verdict: u8,
        words: &'static str,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        self.verdict.store(verdict, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new(io::Error::other(words)))))
    }
}

impl hyper::body::Body for Measured {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Pending if self.deadline.as_mut().poll(context).is_ready() => {
                return self.end(TOO_LATE, "the document did not arrive in time");
            }
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
                match self.bytes_left.checked_sub(bytes) {
                    Some(left) => self.bytes_left = left,
                    None => return self.end(TOO_LARGE, "the document is too large"),
                }
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::config::Raw;

    /// Says how long the document was, after as many milliseconds as the query says.
    async fn echo(uri: axum::http::Uri, body: bytes::Bytes) -> String {
        let wait = uri.query().and_then(|query| query.parse().ok()).unwrap_or(0);
        sleep(Duration::from_millis(wait)).await;
        body.len().to_string()
    }

    /// A connection to a server with these settings, and what stops it.
    fn open(settings: Raw) -> (tokio::io::DuplexStream, watch::Sender<bool>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let server = crate::auth::tests::server(folder.path(), settings);
        let web = Web::new(Router::new().route("/echo", post(echo)), &server);
        let (near, far) = tokio::io::duplex(1 << 20);
        let stop = watch::Sender::new(false);
        tokio::spawn(web.serve(far, Remote::none(), stop.subscribe()));
        (near, stop, folder)
    }

    async fn rest(mut stream: tokio::io::DuplexStream) -> String {
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        tokio::time::timeout(Duration::from_secs(20), read).await.unwrap().unwrap();
        text
    }

    #[tokio::test]
    async fn a_document_in_parts_has_the_same_limit() {
        for (bytes, status) in [(1000, "200 OK"), (1001, "413 Payload Too Large")] {
            let (mut stream, _stop, _folder) = open(Raw { body_bytes_max: Some(1000), ..Raw::default() });
            let head =
                "POST /echo HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
            let document = "x".repeat(bytes - 500);
            let chunks =
                format!("1f4\r\n{}\r\n{:x}\r\n{document}\r\n0\r\n\r\n", "x".repeat(500), bytes - 500);
            stream.write_all(format!("{head}{chunks}").as_bytes()).await.unwrap();
            let answer = rest(stream).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{bytes}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_document_that_does_not_arrive_is_not_waited_for() {
        let (mut stream, _stop, _folder) = open(Raw { request_seconds_max: Some(1), ..Raw::default() });
        let head = "POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc";
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = rest(stream).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request-seconds-max"), "{answer}");
    }

    #[tokio::test]
    async fn what_is_under_way_when_the_server_stops_is_finished_and_the_connection_closed() {
        let (mut stream, stop, _folder) = open(Raw::default());
        let head = "POST /echo?300 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
        stream.write_all(head.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        stop.send_replace(true);
        let answer = rest(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with('3'), "{answer}");
    }

    #[tokio::test]
    async fn pages_of_other_sites_and_names_that_could_be_anybodys_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let origins = vec!["https://ops.example.com".to_owned()];
        let server =
            crate::auth::tests::server(folder.path(), Raw { cors_origin: origins, ..Raw::default() });
        let judge = |headers: &[(&'static str, &str)]| {
            let pairs = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
            check_origin(&server, &Method::POST, "/api/v1/jobs", &pairs.collect())
                .map(|origin| origin.is_some())
        };
        for (headers, allowed) in [
            (vec![("host", "127.0.0.1:4285")], Some(false)),
            (vec![("host", "haul.internal:4285")], Some(false)),
            (vec![("host", "localhost:4285"), ("origin", "http://localhost:4285")], Some(false)),
            (vec![("host", "[::1]:4285"), ("origin", "http://[::1]:4285")], Some(false)),
            (vec![("host", "localhost:4285"), ("origin", "https://ops.example.com")], Some(true)),
            (vec![("host", "localhost:4285"), ("origin", "https://evil.example")], None),
            (vec![("host", "localhost:4285"), ("origin", "http://localhost:99")], None),
            (vec![("host", "localhost:4285"), ("origin", "null")], None),
            (vec![("host", "evil.example:4285"), ("origin", "http://evil.example:4285")], None),
            (vec![("host", "evil.example:4285"), ("sec-fetch-site", "same-origin")], None),
            (vec![("host", "ops.example.com"), ("sec-fetch-site", "same-origin")], Some(false)),
            (vec![("host", "localhost:4285"), ("sec-fetch-site", "same-origin")], Some(false)),
            (vec![("host", "localhost:4285"), ("sec-fetch-site", "none")], Some(false)),
            (vec![("host", "localhost:4285"), ("sec-fetch-site", "cross-site")], None),
            (vec![("host", "localhost:4285"), ("sec-fetch-site", "same-site")], None),
        ] {
            assert_eq!(judge(&headers).ok(), allowed, "{headers:?}");
        }
    }
}
