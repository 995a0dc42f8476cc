//! One line a request, for who looks closely (`--log-level debug`), a number for it to be spoken of by, and its span.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::clock;
use crate::resp::Server;
use crate::trace::{Context, Kind, Span};

/// Names the request in the answer and in the log.
const ID_HEADER: &str = "x-request-id";

/// Counts a request and logs it: the route, never the query or the document, which may hold what is not ours to show.
pub(super) async fn request(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let number = server.next_connection.fetch_add(1, Ordering::Relaxed);
    let id = format!("{:x}-{number:x}", (server.started_at * 1000.0) as u64);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "none".to_owned());
    let given = request.headers().get("traceparent").and_then(|value| Context::parse(value.as_bytes()));
    let span = span_context(&server, &method, given);
    if let Some(context) = span.or(given) {
        // A job that is put carries it: `Caller::trace`.
        request.extensions_mut().insert(context);
    }
    let (began_at, began) = (clock::now(), clock::instant());
    let mut response = next.run(request).await;
    let (status, took) = (response.status(), began.elapsed().as_secs_f64());
    server.http_requests.count(status);
    let (code, took_ms) = (status.as_u16(), took * 1000.0);
    tracing::debug!(request = %id, %method, route, status = code, took_ms, "request");
    if let Some(context) = span {
        let parent = given.map(|given| given.span);
        server.tracer.take(Span {
            context,
            parent,
            name: format!("{method} {route}"),
            kind: Kind::Server,
            began_at,
            ended_at: began_at + took,
            attributes: Span::of_request(&method, route, status),
            error: status.is_server_error().then(|| code.to_string()),
        });
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(ID_HEADER, id);
    }
    response
}

/// The request's own span: of the trace it comes with, or the root of a new one where it changes something.
fn span_context(server: &Server, method: &Method, given: Option<Context>) -> Option<Context> {
    if !server.tracer.is_on() {
        return None;
    }
    match given {
        Some(given) => given.sampled.then(|| given.child()),
        None => (!matches!(*method, Method::GET | Method::HEAD)).then(Context::root),
    }
}

impl Span {
    fn of_request(
        method: &Method,
        route: String,
        status: StatusCode,
    ) -> Vec<(&'static str, crate::trace::Value)> {
        use crate::trace::Value;
        vec![
            ("http.request.method", Value::Text(method.to_string())),
            ("http.route", Value::Text(route)),
            ("http.response.status_code", Value::Int(i64::from(status.as_u16()))),
        ]
    }
}
