//! A consistent copy of all data, while the server goes on.

use std::io::Write;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use haul_store::Fault;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;

use crate::auth::Role;
use crate::auth::action::Action;
use crate::copy::{Record, Writer, write_end, write_start};
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::schema::Problems;

/// Pieces on their way to the client.
const PIECES_MAX: usize = 4;
/// A client that takes none for this long is cut off: as long as one reads, the base cannot be opened again after a fault.
const STALL_MAX: Duration = Duration::from_secs(60);

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
            tracing::warn!(%error, "a backup was cut off");
            // The client sees that the end is missing.
            drop(reader);
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
    let mut out = Pieces { pieces, runtime: Handle::current(), stall_max: STALL_MAX };
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

/// Sends what is written; waits while the client is slower, within reason.
struct Pieces<'a> {
    pieces: &'a mpsc::Sender<std::io::Result<Bytes>>,
    runtime: Handle,
    stall_max: Duration,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        let sent = self.runtime.block_on(self.pieces.send_timeout(piece, self.stall_max));
        sent.map_err(|error| match error {
            SendTimeoutError::Closed(_) => std::io::Error::other("the client left"),
            SendTimeoutError::Timeout(_) => std::io::Error::other("the client takes nothing"),
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that stopped reading held the base for ever.
    #[test]
    fn a_client_that_takes_nothing_is_cut_off() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let (pieces, mut ready) = mpsc::channel(1);
        let stall_max = Duration::from_millis(10);
        let mut out = Pieces { pieces: &pieces, runtime: runtime.handle().clone(), stall_max };
        assert_eq!(out.write(b"one").unwrap(), 3);
        let told = out.write(b"two").map_err(|error| error.to_string());
        assert_eq!(told, Err("the client takes nothing".to_owned()));
        assert_eq!(ready.try_recv().unwrap().unwrap(), "one");
        assert_eq!(out.write(b"three").unwrap(), 5);
        drop(ready);
        let told = out.write(b"four").map_err(|error| error.to_string());
        assert_eq!(told, Err("the client left".to_owned()));
    }
}
