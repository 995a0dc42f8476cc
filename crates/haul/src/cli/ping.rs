//! `haul ping`: is the server there, and what kind of server is it.

use haul_client::resp::Frame;
use serde_json::json;

use super::failure::{Done, Failure};
use super::moment::span;
use super::output::fields;
use super::session::Session;
use crate::clock;

/// Ask whether the server is there: its version, uptime and durability
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul ping
  haul ping --server db-1:4286 --json
  until haul ping; do sleep 1; done")]
pub(super) struct Ping {}

impl Ping {
    pub(super) async fn run(self, session: &Session) -> Done {
        let began = clock::instant();
        session.client.call_idempotent(&["PING"]).await?;
        let round_trip_ms = began.elapsed().as_secs_f64() * 1000.0;
        let Frame::Bulk(info) = session.client.call_idempotent(&["INFO"]).await? else {
            return Err(not_haul(session, "an unknown server"));
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let field = |name: &str| {
            info.lines().find_map(|line| {
                line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned())
            })
        };
        let text = |name: &str| field(name).unwrap_or_default();
        let number = |name: &str| field(name).and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
        // A token for one tenant is not told what all do together.
        let figure = |name: &str| field(name).and_then(|value| value.parse::<f64>().ok());
        let Some(version) = field("haul_version") else {
            return Err(not_haul(session, &format!("Redis {}", text("redis_version"))));
        };
        let value = json!({
            "address": session.address,
            "version": version,
            "uptime_seconds": number("uptime_in_seconds"),
            "durability": text("haul_durability"),
            "data": text("haul_data"),
            "jobs": figure("haul_jobs"),
            "clients": figure("connected_clients"),
            "disk_full": number("haul_disk_full") > 0.0,
            "round_trip_ms": round_trip_ms,
        });
        let pairs = [
            ("up for", span(number("uptime_in_seconds"))),
            ("durability", text("haul_durability")),
            ("data", text("haul_data")),
            ("jobs", text("haul_jobs")),
            ("clients", text("connected_clients")),
            ("round trip", format!("{round_trip_ms:.2}ms")),
        ];
        let pairs: Vec<_> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let full =
            if number("haul_disk_full") > 0.0 { "  the disk is full: nothing can be put\n" } else { "" };
        session.out.say(&value, &format!("haul {version} at {}\n{}{full}", session.address, fields(&pairs)))
    }
}

fn not_haul(session: &Session, what: &str) -> Failure {
    Failure::Refused {
        code: "NOTHAUL",
        message: format!("what answers at {} is {what}, not Haul", session.address),
        next: "name a Haul server with --server or HAUL_SERVER".to_owned(),
    }
}
