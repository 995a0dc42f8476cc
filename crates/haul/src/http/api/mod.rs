//! The native interface: everything the engine can do, as JSON under `/api/v1`. `/openapi.json` describes it and is made
//! from the same lines that route it.

mod job;

use std::sync::Arc;

use axum::Router;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::resp::Server;

#[derive(OpenApi)]
#[openapi(info(
    title = "Haul",
    description = "A durable job queue: what is acknowledged is never lost, and nothing runs twice at once."
))]
struct Api;

/// The routes and their description.
pub(super) fn routes() -> (Router<Arc<Server>>, Description) {
    OpenApiRouter::with_openapi(Api::openapi()).routes(routes!(job::get))
        .routes(routes!(crate::http::events::stream))
        .split_for_parts()
}
