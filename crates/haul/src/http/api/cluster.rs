//! The nodes and the shards of a shared store.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Role;
use crate::cluster::Keeper;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::Problems;

/// All nodes and all shards, as this node sees them.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClusterDoc {
    /// The store that the nodes share; none: the data is in a folder of this one's.
    store: Option<String>,
    /// This node.
    node: Option<String>,
    /// Whether the store answered this node lately.
    reached: bool,
    nodes: Vec<NodeDoc>,
    shards: Vec<ShardDoc>,
}

#[derive(Serialize, ToSchema)]
struct NodeDoc {
    id: String,
    /// Where the other nodes find it.
    address: String,
    redis: String,
    http: Option<String>,
    version: String,
    /// Seconds since 1970, by its own clock.
    started_at: f64,
    /// It gives its shards away.
    leaving: bool,
    /// Seconds since it last gave a sign of life, by the store's clock.
    seen_seconds_ago: f64,
    shards: usize,
}

#[derive(Serialize, ToSchema)]
struct ShardDoc {
    shard: u32,
    /// The node that has it; none: it is on its way.
    node: Option<String>,
    /// How often it was opened.
    epoch: u64,
    jobs: usize,
    /// Rounds that are not durable yet.
    in_flight: usize,
    /// What its last commit took, in milliseconds.
    commit_ms: f64,
}

impl ClusterDoc {
    /// As the keeper sees it.
    pub(crate) fn of(keeper: Option<&Keeper>) -> Self {
        let Some(keeper) = keeper else {
            return ClusterDoc {
                store: None,
                node: None,
                reached: true,
                nodes: Vec::new(),
                shards: Vec::new(),
            };
        };
        let seen = keeper.nodes();
        let shards = (0..keeper.shards()).map(|shard| {
            let held = seen.iter().flat_map(|(node, _)| node.shards.iter().map(move |held| (node, held)));
            let latest = held.filter(|(_, held)| held.shard == shard).max_by_key(|(_, held)| held.epoch);
            let held = latest.map(|(_, held)| held.clone()).unwrap_or_default();
            ShardDoc {
                shard,
                node: latest.map(|(node, _)| node.id.clone()),
                epoch: held.epoch,
                jobs: held.jobs,
                in_flight: held.in_flight,
                commit_ms: held.commit_ms,
            }
        });
        let shards = shards.collect();
        let nodes = seen.iter().map(|(node, age_ms)| NodeDoc {
            id: node.id.clone(),
            address: node.address.clone(),
            redis: node.redis.clone(),
            http: node.http.clone(),
            version: node.version.clone(),
            started_at: node.started_at,
            leaving: node.leaving,
            seen_seconds_ago: *age_ms as f64 / 1000.0,
            shards: node.shards.len(),
        });
        ClusterDoc {
            store: Some(keeper.place().url().to_owned()),
            node: Some(keeper.me().to_owned()),
            reached: keeper.is_reached(),
            nodes: nodes.collect(),
            shards,
        }
    }
}

/// The nodes and shards of a shared store: who owns what, since which epoch, how long commits take.
/// Both lists are empty where the data is in a folder. Needs a token for every tenant.
#[utoipa::path(get, path = "/api/v1/cluster", operation_id = "cluster", tag = "settings",
    responses((status = 200, body = ClusterDoc), Problems))]
pub(super) async fn cluster(caller: Caller) -> Result<Response, Problem> {
    caller.permit(Role::View)?;
    if !caller.access.is_server_wide() {
        let message = "this token is for one tenant; the nodes are everybody's";
        return Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message));
    }
    let document = ClusterDoc::of(caller.server.shard.keeper());
    serde_json::to_vec(&document).map(|text| json(StatusCode::OK, text)).map_err(|_| Problem::unexpected())
}
