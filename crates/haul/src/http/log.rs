//! One line a request, for who looks closely (`--log-level debug`), and a number for it to be spoken of by.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;

use crate::clock;
use crate::resp::Server;

/// Names the request in the answer and in the log.
const ID_HEADER: &str = "x-request-id";

/// Counts a request and logs it: the route, never the query or the document, which may hold what is not ours to show.
pub(super) async fn request(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let number = server.next_connection.fetch_add(1, Ordering::Relaxed);
    let id = format!("{:x}-{number:x}", (server.started_at * 1000.0) as u64);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let began = clock::instant();
    let mut response = next.run(request).await;
    server.http_requests.count(response.status());
    let route = route.as_deref().unwrap_or("none");
    let (status, took_ms) = (response.status().as_u16(), began.elapsed().as_secs_f64() * 1000.0);
    tracing::debug!(request = %id, %method, route, status, took_ms, "request");
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(ID_HEADER, id);
    }
    response
}
