//! Failed jobs by group, and what can be done to a whole group at once.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Listing, Name, Put, PutWhen, RankWindow, Reply};
use serde::Deserialize;
use utoipa::ToSchema;

use super::page::{PageQuery, page};
use crate::dialect::json::{Object, push_list};
use crate::http::body::{Json, Path, Query, Text, whole};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{CountDoc, GroupsDoc, Problems};

/// Jobs done together; between two such steps others get their turn.
const STEP_JOBS: usize = 500;

/// Failure groups and their sizes, the largest first.
#[utoipa::path(get, path = "/api/v1/failures", operation_id = "failures", tag = "failures", params(PageQuery),
    responses((status = 200, body = GroupsDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    let page = page(&caller, Listing::Groups, &query).await?;
    let Reply::Groups(groups) = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::with_capacity(64 * groups.len());
    let mut object = Object::json(&mut out);
    push_list(object.key("groups"), groups, "[]", |out, (name, jobs)| {
        let mut object = Object::json(out);
        object.string("name", name.bytes());
        object.count("jobs", *jobs);
        object.end();
    });
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bulk {
    /// At most this many, the newest first [default: all there are now].
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_u64)]
    limit: Option<usize>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkMove {
    /// Into which queue.
    queue: Text,
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_u64)]
    limit: Option<usize>,
}

/// Put all jobs of a group back into the queues they failed in.
#[utoipa::path(post, path = "/api/v1/failures/{group}/retry", operation_id = "retry_failures", tag = "failures",
    responses((status = 200, body = CountDoc), Problems))]
pub(super) async fn retry(
    caller: Caller,
    Path(group): Path<String>,
    Json(wanted): Json<Bulk>,
) -> Result<Response, Problem> {
    each(&caller, &group, wanted.limit, Action::Retry).await
}

/// Put all jobs of a group into another queue.
#[utoipa::path(post, path = "/api/v1/failures/{group}/move", operation_id = "move_failures", tag = "failures",
    responses((status = 200, body = CountDoc), Problems))]
pub(super) async fn move_to(
    caller: Caller,
    Path(group): Path<String>,
    Json(wanted): Json<BulkMove>,
) -> Result<Response, Problem> {
    let queue = caller.name("queue", &wanted.queue)?;
    each(&caller, &group, wanted.limit, Action::Move(queue)).await
}

/// Cancel all jobs of a group. Those that other jobs wait for are left.
#[utoipa::path(post, path = "/api/v1/failures/{group}/cancel", operation_id = "cancel_failures", tag = "failures",
    responses((status = 200, body = CountDoc), Problems))]
pub(super) async fn cancel(
    caller: Caller,
    Path(group): Path<String>,
    Json(wanted): Json<Bulk>,
) -> Result<Response, Problem> {
    each(&caller, &group, wanted.limit, Action::Cancel).await
}

enum Action {
    Retry,
    Move(Name),
    Cancel,
}

/// Does it to the jobs that are in the group now, in steps.
async fn each(
    caller: &Caller,
    group: &str,
    limit: Option<usize>,
    action: Action,
) -> Result<Response, Problem> {
    let group = caller.name("group", group)?;
    let (mut left, mut skip, mut done) = (limit.unwrap_or(usize::MAX), 0, 0);
    let mut first = true;
    while left > 0 {
        let range = RankWindow::Limit { offset: skip, count: Some(left.min(STEP_JOBS)) };
        let Reply::Page { total, jids } =
            caller.ask(Command::Failed { group: group.clone(), range }).await?.reply
        else {
            return Err(Problem::unexpected());
        };
        if std::mem::take(&mut first) {
            left = left.min(total);
        }
        if jids.is_empty() {
            break;
        }
        let asked = jids.len();
        let commands = commands(caller, &action, jids).await?;
        let answers = caller.ask_all(commands).await?;
        let ok = answers.iter().filter(|answer| answer.is_ok()).count();
        done += ok;
        left = left.saturating_sub(asked);
        skip += asked - ok;
    }
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.count("jobs", done);
    object.end();
    Ok(json(StatusCode::OK, out))
}

async fn commands(caller: &Caller, action: &Action, jids: Vec<Name>) -> Result<Vec<Command>, Problem> {
    Ok(match action {
        Action::Cancel => jids.into_iter().map(|jid| Command::Cancel { jids: vec![jid] }).collect(),
        Action::Move(queue) => jids.into_iter().map(|jid| again(jid, queue.clone())).collect(),
        Action::Retry => {
            let Reply::Jobs(jobs) = caller.ask(Command::GetMany { jids }).await?.reply else {
                return Err(Problem::unexpected());
            };
            let queue = |job: &haul_engine::JobView| match &job.failure {
                Some(failure) if job.queue.is_empty() => failure.queue.clone(),
                _ => job.queue.clone(),
            };
            jobs.iter().map(|job| again(job.jid.clone(), queue(job))).collect()
        }
    })
}

pub(super) fn again(jid: Name, queue: Name) -> Command {
    Command::Put(Box::new(Put {
        jid,
        queue,
        worker: None,
        klass: None,
        data: None,
        delay: 0.0,
        priority: None,
        tags: None,
        retries: None,
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Exists,
        trace: None,
    }))
}
