//! Errors: a fitting status, a stable code, one clear sentence.

use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use haul_engine::Refusal;
use haul_store::Fault;

use super::caller::json;
use crate::dialect::json::Object;
use crate::dialect::refusal;

/// Why a request was not done. Nothing was changed.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Problem { status, code, message: message.into() }
    }

    /// The request is not one.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "BADARG", message)
    }

    pub(crate) fn no_job(jid: &haul_engine::Name) -> Self {
        Problem::from(&Refusal::NoJob { jid: jid.clone() })
    }

    pub(crate) fn stopping() -> Self {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "STOPPING",
            "the server is stopping; ask again in a moment",
        )
    }

    /// What the engine answered does not fit the command. A defect of ours.
    pub(crate) fn unexpected() -> Self {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "the answer was not of the kind expected")
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let status = match refusal {
            Refusal::NoJob { .. } | Refusal::NoRecur { .. } | Refusal::NotDepends { state: None, .. } => {
                StatusCode::NOT_FOUND
            }
            Refusal::Exists { .. }
            | Refusal::NotRunning { .. }
            | Refusal::NotHeld { .. }
            | Refusal::WrongQueue { .. }
            | Refusal::NotDepends { .. }
            | Refusal::Needed { .. } => StatusCode::CONFLICT,
            Refusal::NeitherOnNorOff | Refusal::WrongType | Refusal::NotInteger | Refusal::BadArgument(_) => {
                StatusCode::BAD_REQUEST
            }
        };
        Problem::new(status, refusal.code(), refusal::plain(refusal))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Problem::from(&refusal)
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Self {
        let (status, code) = match fault {
            Fault::Full { .. } => (StatusCode::INSUFFICIENT_STORAGE, "FULL"),
            Fault::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE"),
            Fault::Corrupt { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "CORRUPT"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "TRYAGAIN"),
        };
        Problem::new(status, code, fault.to_string())
    }
}

impl From<crate::shard::Gone> for Problem {
    fn from(_: crate::shard::Gone) -> Self {
        Problem::stopping()
    }
}

/// `{"code": ..., "message": ...}`.
pub(crate) fn push_error(out: &mut Vec<u8>, code: &str, message: &str) {
    let mut object = Object::json(out);
    object.string("code", code.as_bytes());
    object.string("message", message.as_bytes());
    object.end();
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut out = Vec::with_capacity(128);
        let mut object = Object::json(&mut out);
        push_error(object.key("error"), self.code, &self.message);
        object.end();
        let mut response = json(self.status, out);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        // The document was not read, or not to its end: the connection cannot be used again, and the client is told.
        if matches!(
            self.status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::TOO_MANY_REQUESTS
        ) {
            response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        response
    }
}

/// For a path that is none.
pub(crate) async fn no_route(uri: Uri) -> Problem {
    let message = format!("there is nothing at {}; /openapi.json lists what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "NOROUTE", message)
}

/// For a path that takes other methods.
pub(crate) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let message = format!("{} does not take {method}; /openapi.json lists what it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD", message)
}
