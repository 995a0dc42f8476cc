//! A consistent copy of all data, while the server goes on.

use std::io::Write;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use haul_store::Fault;
use tokio::sync::mpsc;

use crate::auth::Role;
use crate::auth::action::Action;
use crate::copy::{Record, Writer, write_end, write_start};
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::schema::Problems;

/// Pieces on their way to the client.
const PIECES_MAX: usize = 4;

/// How many records will come, roughly; 0: that is not known.
const RECORDS: header::HeaderName = header::HeaderName::from_static("x-haul-records");

/// Everything there is, as of one moment, for `haul restore`. `X-Haul-Records` says roughly how many records will come. Needs the role admin and a token for every tenant. Where nodes
/// share a store, read that instead: `haul backup --store URL`.
#[utoipa::path(get, path = "/api/v1/backup", operation_id = "backup", tag = "settings",
    responses((status = 200, description = "The backup", content_type = "application/octet-stream", body = Vec<u8>), Problems))]
pub(super) async fn backup(caller: Caller) -> Result<Response, Problem> {
    caller.permit(Role::Admin)?;
    if !caller.access.is_server_wide() {
        let message = "this token is for one tenant; a backup has everybody's jobs";
        return Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message));
    }
    let Some(shard) = caller.server.shard.only() else {
        let message = "the nodes share a store: read that, with `haul backup FILE --store URL`";
        return Err(Problem::new(StatusCode::CONFLICT, "SHARED", message));
    };
    caller.audit(Action::new("backup", []));
    let reader = shard.reader();
    let about = reader.about();
    let (pieces, ready) = mpsc::channel::<std::io::Result<Bytes>>(PIECES_MAX);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = write(reader.as_ref(), &pieces) {
            // The client sees that the end is missing.
            let _ = pieces.blocking_send(Err(error));
        }
    });
    let stream =
        futures_util::stream::unfold(ready, async |mut ready| ready.recv().await.map(|piece| (piece, ready)));
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (RECORDS, about.unwrap_or(0).to_string()),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

fn write(
    reader: &dyn haul_store::Bodies,
    pieces: &mpsc::Sender<std::io::Result<Bytes>>,
) -> std::io::Result<()> {
    let mut out = Pieces(pieces);
    write_start(&mut out, 1)?;
    let mut writer = Writer::new(out);
    let copied = reader.copy(&mut |space, key, value| {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        let put = writer.put(Record { shard: 0, space, key, value });
        put.map_err(|error| Fault::Retry { what: error.to_string() })
    });
    copied.map_err(std::io::Error::other)?;
    let (out, records) = writer.finish()?;
    write_end(out, records)
}

/// Sends what is written; waits while the client is slower.
struct Pieces<'a>(&'a mpsc::Sender<std::io::Result<Bytes>>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        self.0.blocking_send(piece).map_err(|_| std::io::Error::other("the client left"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
