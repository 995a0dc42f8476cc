//! The page: plain files, held in the binary, that a browser runs as they are. What they show they ask of the API like
//! anybody else. `session` is how people log in.

pub(super) mod session;

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};

use super::problem;

/// Only what this server serves is run, shown or asked, and nobody else may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($path:literal $kind:expr),* $(,)?) => {
        &[$(Asset { path: $path, kind: $kind, text: include_str!(concat!("../../../ui/", $path)) }),*]
    };
}

/// The first is the page itself.
const ASSETS: &[Asset] = assets! {
    "index.html" "text/html; charset=utf-8",
    "style.css" "text/css; charset=utf-8",
    "icon.svg" "image/svg+xml",
    "app.js" SCRIPT,
    "api.js" SCRIPT,
    "dom.js" SCRIPT,
    "format.js" SCRIPT,
    "chart.js" SCRIPT,
    "json.js" SCRIPT,
    "actions.js" SCRIPT,
    "jobs.js" SCRIPT,
    "overview.js" SCRIPT,
    "queue.js" SCRIPT,
    "job.js" SCRIPT,
    "failures.js" SCRIPT,
    "search.js" SCRIPT,
    "lists.js" SCRIPT,
    "settings.js" SCRIPT,
};

/// One tag for all files: they belong together.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    ASSETS.iter().for_each(|asset| hash.update(asset.text));
    let digits: String = hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
});

/// To the page.
pub(super) async fn home() -> Redirect {
    Redirect::to("/ui/")
}

pub(super) async fn page(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

/// A file; what has no dot in it is a view of the page, which finds out by itself which one.
pub(super) async fn asset(Path(path): Path<String>, headers: HeaderMap) -> Response {
    if path.contains('.') { serve(&path, &headers) } else { serve("index.html", &headers) }
}

fn serve(path: &str, asked: &HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        let message = "there is no such file";
        return problem::Problem::new(StatusCode::NOT_FOUND, "NOROUTE", message).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::ETAG, TAG.as_str()),
        // Asked again each time, answered with 304: a new server's page is never mixed with an old one's.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let known = asked.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|tag| tag.trim() == TAG.as_str())) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, asset.text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Raw;
    use crate::http::rig::Rig;

    #[tokio::test]
    async fn every_file_is_served_strictly_and_known_ones_are_not_sent_again() {
        let rig = Rig::new(Raw::default()).await;
        for path in ASSETS.iter().map(|asset| asset.path).chain(["", "queue", "job"]) {
            let answer = rig.get(&format!("/ui/{path}")).await;
            assert_eq!(answer.status, 200, "{path}");
            for word in ["default-src 'none'", "frame-ancestors 'none'", "nosniff", "etag: \""] {
                assert!(answer.headers.contains(word), "{path} lacks {word}: {}", answer.headers);
            }
            let again = format!("GET /ui/{path}\nconnection: close\nif-none-match: {}", TAG.as_str());
            assert_eq!(rig.ask(&again).await.status, 304, "{path}");
        }
        assert_eq!(rig.get("/ui/none.js").await.status, 404);
        assert_eq!(rig.get("/ui/../Cargo.toml").await.status, 404);
        assert_eq!(rig.get("/").await.status, 303);
    }

    #[test]
    fn the_files_name_nothing_outside_and_run_nothing_inline() {
        for asset in ASSETS {
            let text = asset.text.replace("http://www.w3.org/", "");
            for word in ["http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval("] {
                assert!(!text.contains(word), "{} has {word}", asset.path);
            }
            if asset.path.ends_with(".html") {
                assert!(!text.contains(" style=") && !text.contains(" onclick="), "{}", asset.path);
            }
        }
    }
}
