//! Reading what a request says: its JSON document, its query, its path. All complaints are [`Problem`]s.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Bytes of a request's document.
pub(crate) struct Document(pub(crate) Bytes);

/// A request's document, understood.
pub(crate) struct Json<T>(pub(crate) T);

/// The parameters of the URL.
pub(crate) struct Query<T>(pub(crate) T);

/// The variable parts of the path.
pub(crate) struct Path<T>(pub(crate) T);

/// Whether the document is said to be of this type; a browser's form cannot say so, which keeps other sites' pages
/// from posting here.
pub(crate) fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted)
}

/// Complains about a document that is not said to be JSON.
pub(crate) fn wrong_type() -> Problem {
    let message = "the document must be JSON and say so: Content-Type: application/json (curl: --json)";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MEDIATYPE", message)
}

/// Understands an object; what is not JSON is 400, what is JSON of the wrong shape is 422.
pub(crate) fn parse_object<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    // A list in the order of the fields would be taken as well.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "BADARG",
            "the document must be an object",
        ));
    }
    parse(bytes)
}

/// Understands a document.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "BADARG", error.to_string())
        } else {
            Problem::bad(format!("the document is not JSON: {error}"))
        }
    })
}

impl<S: Send + Sync> FromRequest<S> for Document {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Document).map_err(|rejection| {
            let code =
                if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE { "TOOLARGE" } else { "BADARG" };
            Problem::new(rejection.status(), code, rejection.body_text())
        })
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let is_json = is_type(request.headers(), "application/json");
        // Read in any case: a connection with an unread document on it cannot be used again.
        let Document(bytes) = Document::from_request(request, state).await?;
        if !is_json {
            return Err(wrong_type());
        }
        parse_object(&bytes).map(Json)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Query(query)),
            Err(rejection) => Err(Problem::bad(rejection.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) => Ok(Path(path)),
            Err(rejection) => Err(Problem::bad(rejection.body_text())),
        }
    }
}

/// A name in a document: not empty.
#[derive(Clone, serde::Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(as = Name, value_type = String)]
pub(crate) struct Text(String);

impl TryFrom<String> for Text {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        if text.is_empty() { Err("a name is empty") } else { Ok(Text(text)) }
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A whole number, `3.0` too: in JSON they are the same.
pub(crate) fn whole<'de, D: serde::Deserializer<'de>, N: TryFrom<u64>>(
    input: D,
) -> Result<Option<N>, D::Error> {
    let Some(number) = <Option<f64> as serde::Deserialize>::deserialize(input)? else { return Ok(None) };
    let fits = number.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&number);
    let whole = fits.then(|| N::try_from(number as u64).ok()).flatten();
    whole
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom(format!("{number} is not a whole number in range")))
}
