//! Logging in on the page with a token, and who one is. The token is shown once; from then on a cookie that scripts
//! cannot read names the session.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::{Access, tenant_text};
use crate::clock;
use crate::http::body::Json;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::Problems;
use crate::net::Remote;
use crate::net::web::{self, COOKIE};
use crate::resp::Server;

/// Who asks, and what they may do.
#[derive(Serialize, ToSchema)]
#[schema(as = Me)]
pub(crate) struct MeDoc {
    /// The token's name; null where there are no tokens.
    #[schema(required)]
    token: Option<String>,
    /// view, work, operate or admin; each may do what those before it may.
    role: &'static str,
    /// The tenant asked about.
    tenant: String,
    /// Whether another tenant can be chosen, and figures of all tenants seen.
    any_tenant: bool,
    /// Whether the page was logged in to, and can be logged out from.
    session: bool,
}

/// Who you are and what you may do.
#[utoipa::path(get, path = "/api/v1/me", operation_id = "me", tag = "settings",
    responses((status = 200, body = MeDoc), Problems))]
pub(crate) async fn me(caller: Caller, headers: HeaderMap) -> Result<Response, Problem> {
    let is_session = web::session(&headers).is_some() && !headers.contains_key(header::AUTHORIZATION);
    let access = &caller.access;
    let document = MeDoc {
        token: access.token().map(str::to_owned),
        role: access.role.text(),
        tenant: tenant_text(&caller.tenant),
        any_tenant: access.is_server_wide(),
        session: is_session && access.token().is_some(),
    };
    let text = serde_json::to_vec(&document).map_err(|_| Problem::unexpected())?;
    Ok(json(StatusCode::OK, text))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    token: String,
}

/// Log in to the page: the answer sets a cookie. Where there are no tokens, nobody needs to.
#[utoipa::path(post, path = "/ui/login", operation_id = "login", tag = "page",
    responses((status = 204), Problems))]
pub(crate) async fn login(
    State(server): State<Arc<Server>>,
    Extension(remote): Extension<Remote>,
    Json(wanted): Json<Login>,
) -> Result<Response, Problem> {
    let access: Access = match server.gate.enter_unnamed() {
        Some(_) => return Ok(StatusCode::NO_CONTENT.into_response()),
        None => web::enter(&server, wanted.token.trim().as_bytes(), &remote).map_err(|refused| refused.0)?,
    };
    let id = server.sessions.begin(access, clock::now()).map_err(|error| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "ENTROPY", format!("no session can begin: {error}"))
    })?;
    Ok(with_cookie(&server, &id, None))
}

/// Log out of the page: the session ends and the cookie goes.
#[utoipa::path(post, path = "/ui/logout", operation_id = "logout", tag = "page",
    responses((status = 204), Problems))]
pub(crate) async fn logout(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    if let Some(id) = web::session(&headers) {
        server.sessions.end(id);
    }
    with_cookie(&server, "", Some(0))
}

/// Sent to this server only, on no request that another site began, unreadable for scripts.
fn with_cookie(server: &Server, id: &str, age: Option<u32>) -> Response {
    let secure = if server.tls.is_some() { "; Secure" } else { "" };
    let age = age.map_or_else(String::new, |age| format!("; Max-Age={age}"));
    let cookie = format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}
