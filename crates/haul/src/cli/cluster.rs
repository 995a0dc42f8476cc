//! `haul cluster`: nodes and shards of a shared store.

use haul_client::resp::Frame;
use serde_json::Value;

use super::failure::Done;
use super::moment::span;
use super::output::Table;
use super::session::Session;

/// Show the nodes of a shared store, and which of them has which shard
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul cluster
  haul cluster --server node-2:4286 --json

Asks one node what it sees. A shard without a node is on its way from one to another; EPOCH is how often it was opened,
COMMIT what its last commit took, IN FLIGHT its rounds that are not durable yet: its lag.")]
pub(super) struct Cluster {}

impl Cluster {
    pub(super) async fn run(self, session: &Session) -> Done {
        let answer = session.client.call_idempotent(&["HAUL.NODES"]).await?;
        let document: Value = match &answer {
            Frame::Bulk(text) => serde_json::from_slice(text).unwrap_or_default(),
            _ => Value::Null,
        };
        session.out.say(&document, &told(&document))
    }
}

fn told(document: &Value) -> String {
    let Some(store) = document.get("store").and_then(Value::as_str) else {
        return "one server with its data in a folder; `haul serve --store URL` is for many".to_owned();
    };
    let list = |name: &str| document.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, name: &str| match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "-".to_owned(),
    };
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let mut nodes = Table::new(&["NODE", "ADDRESS", "REDIS", "HTTP", "VERSION", "SHARDS", "SEEN", "STATE"]);
    for node in list("nodes") {
        let state = match node.get("leaving").and_then(Value::as_bool) {
            Some(true) => "leaving",
            _ if node.get("id") == document.get("node") => "asked",
            _ => "here",
        };
        let [id, address, redis, http, version, shards] =
            ["id", "address", "redis", "http", "version", "shards"].map(|name| text(&node, name));
        let seen = format!("{} ago", span(number(&node, "seen_seconds_ago")));
        nodes.row([id, address, redis, http, version, shards, seen, state.to_owned()]);
    }
    let mut shards = Table::new(&["SHARD", "NODE", "EPOCH", "JOBS", "IN FLIGHT", "COMMIT"]);
    for shard in list("shards") {
        let [id, node, epoch, jobs, in_flight] =
            ["shard", "node", "epoch", "jobs", "in_flight"].map(|name| text(&shard, name));
        shards.row([id, node, epoch, jobs, in_flight, format!("{:.1}ms", number(&shard, "commit_ms"))]);
    }
    let trouble = match document.get("reached").and_then(Value::as_bool) {
        Some(false) => "  the store does not answer the node that was asked\n",
        _ => "",
    };
    format!("{store}\n{trouble}\n{}\n{}", nodes.text(), shards.text())
}
