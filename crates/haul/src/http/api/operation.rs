//! Retry, move or cancel all jobs that match, as an operation of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, JobView, Name};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::failure::again;
use super::job::own_queue;
use super::overview::answer;
use super::search::{SearchQuery, Walk};
use super::{finite, search};
use crate::auth::Role;
use crate::clock;
use crate::dialect::plain::to_text;
use crate::http::body::{Json, Path, Text};
use crate::http::caller::{Caller, json};
use crate::http::operations::{NewOperation, Operation, State};
use crate::http::problem::Problem;
use crate::http::schema::Problems;

/// Seconds until it begins, unless said otherwise: it can be called back until then.
const DELAY: f64 = 5.0;
const DELAY_MAX: f64 = 3600.0;

/// Which jobs. All that is given must hold, and something must be.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<crate::http::schema::StateDoc>)]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    klass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// Put failed jobs back into the queues they failed in.
    Retry,
    /// Put jobs into another queue.
    Move,
    Cancel,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Action::Retry => "retry",
            Action::Move => "move",
            Action::Cancel => "cancel",
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    action: Action,
    filter: Filter,
    /// Into which queue jobs are moved.
    queue: Option<Text>,
    /// Seconds until it begins; until then it can be called back without a trace [default: 5].
    #[schema(minimum = 0, maximum = 3600)]
    delay: Option<f64>,
}

/// Something that is done to many jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = Operation)]
pub(super) struct OperationDoc {
    id: u64,
    action: String,
    filter: serde_json::Value,
    #[schema(required)]
    queue: Option<String>,
    /// Whose token; none without authentication.
    #[schema(required)]
    token: Option<String>,
    /// waiting, running, done, stopped or broken.
    state: &'static str,
    /// When it begins or began, in seconds since 1970.
    starts_at: f64,
    #[schema(required)]
    ended_at: Option<f64>,
    /// Jobs it was done to.
    done: u64,
    /// Jobs it could not be done to.
    refused: u64,
    /// Why it broke.
    #[schema(required)]
    message: Option<String>,
}

/// Operations, the newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Operations)]
pub(super) struct OperationsDoc {
    operations: Vec<OperationDoc>,
}

fn told(operation: &Operation) -> OperationDoc {
    let progress = operation.progress();
    OperationDoc {
        id: operation.id,
        action: operation.what.action.clone(),
        filter: operation.what.filter.clone(),
        queue: operation.what.queue.clone(),
        token: operation.what.token.clone(),
        state: progress.state.word(),
        starts_at: operation.what.starts_at,
        ended_at: progress.ended_at,
        done: progress.done,
        refused: progress.refused,
        message: progress.message,
    }
}

impl Wanted {
    /// The walk over the jobs it is done to.
    fn walk(&self, caller: &Caller) -> Result<Walk, Problem> {
        let filter = &self.filter;
        let given = [&filter.state, &filter.queue, &filter.klass, &filter.tag, &filter.worker, &filter.group];
        if given.iter().all(|it| it.is_none()) && filter.text.is_none() {
            return Err(Problem::bad("the filter is empty: say which jobs"));
        }
        let state = match (self.action, filter.state.as_deref()) {
            (Action::Retry, None | Some("failed")) => Some("failed".to_owned()),
            (Action::Retry, Some(_)) => return Err(Problem::bad("only failed jobs are retried")),
            (_, state) => state.map(str::to_owned),
        };
        let query = SearchQuery {
            state,
            queue: filter.queue.clone(),
            klass: filter.klass.clone(),
            tag: filter.tag.clone(),
            worker: filter.worker.clone(),
            group: filter.group.clone(),
            text: filter.text.clone(),
            since: None,
            // What comes to match while it is at work, its own doing perhaps, is left.
            until: None,
            cursor: None,
            limit: Some(search::WALK_JOBS),
        };
        Walk::new(&query, caller)
    }
}

/// Retry, move or cancel all jobs that match a filter. Needs the role operate.
///
/// It begins after `delay` seconds and can be stopped at any time; what was done by then stays done.
#[utoipa::path(post, path = "/api/v1/operations", operation_id = "begin_operation", tag = "failures",
    responses((status = 202, body = OperationDoc), Problems))]
pub(super) async fn begin(caller: Caller, Json(wanted): Json<Wanted>) -> Result<Response, Problem> {
    caller.permit(Role::Operate)?;
    let delay = finite("delay", wanted.delay)?.unwrap_or(DELAY);
    if !(0.0..=DELAY_MAX).contains(&delay) {
        return Err(Problem::bad(format!("delay is from 0 to {DELAY_MAX} seconds")));
    }
    let target = wanted.queue.as_ref().map(|queue| caller.name("queue", queue)).transpose()?;
    if (wanted.action == Action::Move) != target.is_some() {
        return Err(Problem::bad("a move, and nothing else, needs a queue to move to"));
    }
    let walk = wanted.walk(&caller)?;
    let operation = caller.server.operations.add(NewOperation {
        tenant: caller.tenant.clone(),
        token: caller.access.token().map(str::to_owned),
        action: wanted.action.word().to_owned(),
        filter: serde_json::to_value(&wanted.filter).unwrap_or_default(),
        queue: target.as_ref().map(|queue| to_text(queue.bytes()).into_owned()),
        starts_at: clock::now() + delay,
    });
    let Some(operation) = operation else {
        let message = "too many operations are under way; wait for one to end";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "TOOMANY", message));
    };
    let text = serde_json::to_vec(&told(&operation)).map_err(|_| Problem::unexpected())?;
    tokio::spawn(run(Work { caller, walk, action: wanted.action, target, operation, delay }));
    Ok(json(StatusCode::ACCEPTED, text))
}

/// Operations of the tenant, the newest first; the last hundred of all tenants are remembered.
#[utoipa::path(get, path = "/api/v1/operations", operation_id = "operations", tag = "failures",
    responses((status = 200, body = OperationsDoc), Problems))]
pub(super) async fn list(caller: Caller) -> Result<Response, Problem> {
    let found = caller.server.operations.of(&caller.tenant);
    answer(&OperationsDoc { operations: found.iter().map(|operation| told(operation)).collect() })
}

fn find(caller: &Caller, id: u64) -> Result<Arc<Operation>, Problem> {
    caller.server.operations.find(&caller.tenant, id).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "NOOPERATION", format!("there is no operation {id}"))
    })
}

/// An operation, and how far it is.
#[utoipa::path(get, path = "/api/v1/operations/{id}", operation_id = "operation", tag = "failures",
    responses((status = 200, body = OperationDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(id): Path<u64>) -> Result<Response, Problem> {
    answer(&told(&*find(&caller, id)?))
}

/// Stop an operation, or call it back before it begins. Needs the role operate.
#[utoipa::path(delete, path = "/api/v1/operations/{id}", operation_id = "stop_operation", tag = "failures",
    responses((status = 204), Problems))]
pub(super) async fn stop(caller: Caller, Path(id): Path<u64>) -> Result<Response, Problem> {
    caller.permit(Role::Operate)?;
    find(&caller, id)?.stop();
    Ok(super::done())
}

struct Work {
    caller: Caller,
    walk: Walk,
    action: Action,
    target: Option<Name>,
    operation: Arc<Operation>,
    delay: f64,
}

async fn run(mut work: Work) {
    let mut stop = work.operation.stopping();
    let wait = Duration::from_secs_f64(work.delay);
    let is_stopped = tokio::time::timeout(wait, stop.wait_for(|stop| *stop)).await.is_ok();
    let (state, message) = if is_stopped {
        (State::Stopped, None)
    } else {
        work.operation.began();
        work.caller.server.operations.save();
        match work.all().await {
            Ok(state) => (state, None),
            Err(problem) => (State::Broken, Some(problem.message)),
        }
    };
    work.operation.ended(state, message, clock::now());
    work.caller.server.operations.save();
}

impl Work {
    async fn all(&mut self) -> Result<State, Problem> {
        self.walk.until(clock::now());
        let stop = self.operation.stopping();
        loop {
            if *stop.borrow() {
                return Ok(State::Stopped);
            }
            if self.caller.server.is_stopping() {
                return Err(Problem::stopping());
            }
            // A token that was taken away ends it.
            let access = self.caller.server.gate.renew(&self.caller.access);
            self.caller.access = access.ok_or_else(|| Problem::bad("the token has ended"))?;
            let Some(jobs) = self.walk.step(&self.caller).await? else { return Ok(State::Done) };
            let commands: Vec<Command> = jobs.iter().filter_map(|job| self.command(job)).collect();
            let skipped = (jobs.len() - commands.len()) as u64;
            let answers = self.caller.ask_all(commands).await?;
            let done = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
            self.operation.count(done, answers.len() as u64 - done + skipped);
            tokio::task::yield_now().await;
        }
    }

    fn command(&self, job: &JobView) -> Option<Command> {
        Some(match (self.action, &self.target) {
            (Action::Cancel, _) => Command::Cancel { jids: vec![job.jid.clone()] },
            (_, Some(queue)) => again(job.jid.clone(), queue.clone()),
            (_, None) => again(job.jid.clone(), own_queue(job).ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::config::Raw;
    use crate::http::rig::{Answer, Rig};

    async fn post(rig: &Rig, body: &str) -> Answer {
        let head = format!(
            "POST /api/v1/operations\nconnection: close\ncontent-type: application/json\ncontent-length: {}",
            body.len()
        );
        rig.ask(&format!("{head}\n\n{body}")).await
    }

    async fn ended(rig: &Rig, id: u64) -> Value {
        for _ in 0..500 {
            let text = rig.get(&format!("/api/v1/operations/{id}")).await.text;
            let found: Value = serde_json::from_str(&text).unwrap();
            if found["ended_at"].is_number() {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the operation {id} does not end");
    }

    async fn fail(rig: &Rig, count: usize) {
        for number in 0..count {
            rig.say(&format!("PUT q k {{}} JID j{number}")).await;
            rig.say("POP w QUEUES q").await;
            rig.say(&format!("FAIL w j{number} oops message")).await;
        }
    }

    #[tokio::test]
    async fn all_that_match_are_retried_moved_or_cancelled() {
        let rig = Rig::new(Raw::default()).await;
        fail(&rig, 30).await;
        let begun = post(&rig, r#"{"action":"retry","filter":{"group":"oops","text":"j1"},"delay":0}"#).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
        let found = ended(&rig, 1).await;
        assert_eq!((&found["state"], found["done"].as_u64()), (&Value::from("done"), Some(11)));
        post(&rig, r#"{"action":"move","queue":"other","filter":{"queue":"q","state":"waiting"},"delay":0}"#)
            .await;
        assert_eq!(ended(&rig, 2).await["done"], 11);
        post(&rig, r#"{"action":"cancel","filter":{"state":"failed"},"delay":0}"#).await;
        assert_eq!(ended(&rig, 3).await["done"], 19);
        let queue = rig.get("/api/v1/queues/other").await.text;
        assert!(queue.contains("\"waiting\":11"), "{queue}");
        assert!(rig.get("/api/v1/failures").await.text.contains("\"groups\":[]"));
    }

    #[tokio::test]
    async fn one_that_is_called_back_has_done_nothing() {
        let rig = Rig::new(Raw::default()).await;
        fail(&rig, 2).await;
        post(&rig, r#"{"action":"cancel","filter":{"group":"oops"},"delay":60}"#).await;
        let answer = rig.ask("DELETE /api/v1/operations/1\nconnection: close").await;
        assert_eq!(answer.status, 204);
        let found = ended(&rig, 1).await;
        assert_eq!((&found["state"], found["done"].as_u64()), (&Value::from("stopped"), Some(0)));
        assert!(rig.get("/api/v1/failures").await.text.contains("\"jobs\":2"));
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_refused() {
        let rig = Rig::new(Raw::default()).await;
        for body in [
            r#"{"action":"cancel","filter":{}}"#,
            r#"{"action":"retry","filter":{"state":"waiting"}}"#,
            r#"{"action":"move","filter":{"queue":"q"}}"#,
            r#"{"action":"cancel","queue":"x","filter":{"queue":"q"}}"#,
            r#"{"action":"cancel","filter":{"queue":"q"},"delay":4000}"#,
            r#"{"action":"cancel","filter":{"queue":""}}"#,
        ] {
            assert_eq!(post(&rig, body).await.status, 400, "{body}");
        }
        assert_eq!(rig.get("/api/v1/operations/9").await.status, 404);
    }
}
