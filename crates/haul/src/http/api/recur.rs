//! Recurring jobs.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Cron, Listing, Name, RecurChange, RecurPut, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::page::{PageQuery, page};
use super::{document, done, finite};
use crate::clock;
use crate::dialect::json::{Object, push_list};
use crate::dialect::native_shape::push_recur;
use crate::http::body::{Json, Path, Query, Text};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{Problems, PutDoc, RecurDoc, RecursDoc};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRecurring {
    queue: Text,
    klass: Text,
    /// For each of its jobs; null if left out.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    jid: Option<Text>,
    /// Seconds from one job to the next: this, or a cron pattern.
    #[schema(exclusive_minimum = 0)]
    interval: Option<f64>,
    /// Seconds until the first [default: 0]; not with a cron pattern.
    offset: Option<f64>,
    /// When to make a job: minute, hour, day of month, month, day of week; with seconds in front if there are six
    /// parts; or a word such as `@daily`.
    #[schema(max_length = 256, example = "30 9 * * mon-fri")]
    cron: Option<String>,
    /// The time zone of the cron pattern, such as Europe/Berlin [default: UTC].
    #[schema(max_length = 256)]
    timezone: Option<String>,
    priority: Option<f64>,
    retries: Option<f64>,
    /// Missed jobs made up for at most; 0: all [default: 0; with a cron pattern 1, and at most 1000].
    backlog: Option<f64>,
    #[serde(default)]
    tags: Vec<Text>,
    #[serde(default)]
    throttles: Vec<Text>,
}

/// Define a recurring job, or define it anew.
#[utoipa::path(post, path = "/api/v1/recurring", operation_id = "put_recurring", tag = "recurring",
    responses((status = 201, body = PutDoc), Problems))]
pub(super) async fn put(caller: Caller, Json(wanted): Json<NewRecurring>) -> Result<Response, Problem> {
    let cron = cron(wanted.cron.as_deref(), wanted.timezone.as_deref())?;
    let interval = match (finite("interval", wanted.interval)?, &cron) {
        (Some(interval), None) if interval > 0.0 => interval,
        (None, Some(_)) if wanted.offset.is_none() => 0.0,
        (Some(_), None) => return Err(Problem::bad("interval must be greater than 0")),
        (None, None) => return Err(Problem::bad("say how often: interval, or cron")),
        (_, Some(_)) => return Err(Problem::bad("cron goes without interval and offset")),
    };
    let usual = if cron.is_some() { 1.0 } else { 0.0 };
    let jid = wanted.jid.as_ref().map_or_else(|| Ok(clock::new_jid()), |jid| caller.name("jid", jid))?;
    let data = document(&caller, "data", wanted.data.as_deref())?;
    let recur = RecurPut {
        jid: jid.clone(),
        queue: caller.name("queue", &wanted.queue)?,
        klass: caller.name("klass", &wanted.klass)?,
        data: data.unwrap_or_else(|| bytes::Bytes::from_static(b"null")),
        interval,
        cron,
        offset: finite("offset", wanted.offset)?.unwrap_or(0.0),
        priority: finite("priority", wanted.priority)?.unwrap_or(0.0),
        retries: finite("retries", wanted.retries)?.unwrap_or(5.0),
        backlog: finite("backlog", wanted.backlog)?.unwrap_or(usual),
        tags: caller.names("tags", &wanted.tags)?,
        throttles: caller.names("throttles", &wanted.throttles)?,
    };
    caller.ask(Command::Recur(Box::new(recur))).await?;
    made_answer(&jid)
}

/// The schedule of a pattern and a zone.
fn cron(text: Option<&str>, zone: Option<&str>) -> Result<Option<Cron>, Problem> {
    match (text, zone) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::bad("a timezone goes with a cron pattern")),
        (Some(text), zone) => Cron::parse(text, zone.unwrap_or_default()).map(Some).map_err(Problem::bad),
    }
}

/// A recurring job.
#[utoipa::path(get, path = "/api/v1/recurring/{jid}", operation_id = "get_recurring", tag = "recurring",
    responses((status = 200, body = RecurDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let answer = caller.ask(Command::RecurGet { jid: jid.clone() }).await?;
    match answer.reply {
        Reply::Recur(None) => Err(haul_engine::Refusal::NoRecur { jid }.into()),
        _ => super::plain_answer(&answer),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfQueue {
    /// Only those of this queue.
    queue: Option<String>,
    /// Where the page before ended: its `next`.
    #[param(pattern = "^([0-9a-f]{2})+$")]
    cursor: Option<String>,
    /// Rows of a page, at most 1000 [default: 100].
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Recurring jobs, the soonest first, those that are paused last.
#[utoipa::path(get, path = "/api/v1/recurring", operation_id = "recurring", tag = "recurring", params(OfQueue),
    responses((status = 200, body = RecursDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<OfQueue>) -> Result<Response, Problem> {
    let queue = query.queue.as_ref().map(|queue| caller.name("queue", queue)).transpose()?;
    let wanted = PageQuery { cursor: query.cursor, limit: query.limit };
    let page = page(&caller, Listing::Recurring { queue }, &wanted).await?;
    let Reply::Recurs(found) = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::with_capacity(256 * found.len());
    let mut object = Object::json(&mut out);
    push_list(object.key("recurring"), found, "[]", push_recur);
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecurringChange {
    queue: Option<Text>,
    klass: Option<Text>,
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    #[schema(exclusive_minimum = 0)]
    interval: Option<f64>,
    /// A cron pattern instead of the interval.
    #[schema(max_length = 256)]
    cron: Option<String>,
    /// The time zone of the cron pattern [default: UTC].
    #[schema(max_length = 256)]
    timezone: Option<String>,
    /// Make no jobs; false goes on, without making up for what was missed.
    paused: Option<bool>,
    priority: Option<f64>,
    retries: Option<f64>,
    backlog: Option<f64>,
    throttles: Option<Vec<Text>>,
}

/// Change a recurring job. A new interval counts from its last job; what had a cron pattern, from now.
#[utoipa::path(patch, path = "/api/v1/recurring/{jid}", operation_id = "change_recurring", tag = "recurring",
    responses((status = 204), Problems))]
pub(super) async fn change(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<RecurringChange>,
) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let interval = finite("interval", wanted.interval)?;
    if interval.is_some_and(|interval| interval <= 0.0) {
        return Err(Problem::bad("interval must be greater than 0"));
    }
    let cron = cron(wanted.cron.as_deref(), wanted.timezone.as_deref())?;
    if cron.is_some() && interval.is_some() {
        return Err(Problem::bad("cron goes without interval"));
    }
    let queue = wanted.queue.as_ref().map(|queue| caller.name("queue", queue)).transpose()?;
    let klass = wanted.klass.as_ref().map(|klass| caller.name("klass", klass)).transpose()?;
    let throttles = wanted.throttles.as_ref().map(|ids| caller.names("throttles", ids)).transpose()?;
    let changes: Vec<RecurChange> = [
        finite("backlog", wanted.backlog)?.map(RecurChange::Backlog),
        interval.map(RecurChange::Interval),
        cron.map(RecurChange::Cron),
        wanted.paused.map(RecurChange::Paused),
        finite("priority", wanted.priority)?.map(RecurChange::Priority),
        finite("retries", wanted.retries)?.map(RecurChange::Retries),
        document(&caller, "data", wanted.data.as_deref())?.map(RecurChange::Data),
        queue.map(RecurChange::Queue),
        klass.map(RecurChange::Klass),
        throttles.map(RecurChange::Throttles),
    ]
    .into_iter()
    .flatten()
    .collect();
    caller.ask(Command::RecurUpdate { jid, changes }).await?;
    Ok(done())
}

/// Make one of its jobs now. When the next comes by itself stays as it is.
#[utoipa::path(post, path = "/api/v1/recurring/{jid}/run", operation_id = "run_recurring", tag = "recurring",
    responses((status = 201, body = PutDoc), Problems))]
pub(super) async fn run(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let Reply::Name(made) = caller.ask(Command::RecurRun { jid }).await?.reply else {
        return Err(Problem::unexpected());
    };
    made_answer(&made)
}

fn made_answer(jid: &Name) -> Result<Response, Problem> {
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.string("jid", jid.bytes());
    object.raw("existing", b"false");
    object.end();
    Ok(json(StatusCode::CREATED, out))
}

/// End a recurring job. The jobs it has made stay.
#[utoipa::path(delete, path = "/api/v1/recurring/{jid}", operation_id = "end_recurring", tag = "recurring",
    responses((status = 204), Problems))]
pub(super) async fn end(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    match caller.ask(Command::Unrecur { jid: jid.clone() }).await?.reply {
        Reply::Bool(false) => Err(haul_engine::Refusal::NoRecur { jid }.into()),
        _ => Ok(done()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::config::Raw;
    use crate::http::rig::Rig;

    async fn send(rig: &Rig, method: &str, path: &str, body: &str) -> (u16, Value) {
        let head = format!(
            "{method} /api/v1/recurring{path}\nconnection: close\ncontent-type: application/json\ncontent-length: {}",
            body.len()
        );
        let answer = rig.ask(&format!("{head}\n\n{body}")).await;
        (answer.status, serde_json::from_str(&answer.text).unwrap_or_default())
    }

    async fn get(rig: &Rig) -> Value {
        serde_json::from_str(&rig.get("/api/v1/recurring/r").await.text).unwrap()
    }

    #[tokio::test]
    async fn a_schedule_is_told_in_words_paused_changed_and_run_by_hand() {
        let rig = Rig::new(Raw::default()).await;
        let new = r#"{"queue":"q","klass":"k","jid":"r","cron":"30 9 * * *","timezone":"Europe/Berlin"}"#;
        assert_eq!(send(&rig, "POST", "", new).await.0, 201);
        let found = get(&rig).await;
        assert_eq!((&found["cron"], &found["timezone"]), (&"30 9 * * *".into(), &"Europe/Berlin".into()));
        assert_eq!((&found["backlog"], &found["paused"]), (&1.into(), &false.into()));
        assert_eq!(found["words"], "At 09:30 (Europe/Berlin)");
        assert_eq!(found["upcoming"].as_array().map(Vec::len), Some(5));
        assert_eq!(found["upcoming"][0], found["next"]);

        let (status, made) = send(&rig, "POST", "/r/run", "{}").await;
        assert_eq!((status, &made["jid"]), (201, &"r-1".into()));
        assert!(rig.get("/api/v1/jobs/r-1").await.text.contains("\"spawned_from\":\"r\""));

        assert_eq!(send(&rig, "PATCH", "/r", r#"{"paused":true}"#).await.0, 204);
        let paused = get(&rig).await;
        assert_eq!((&paused["paused"], &paused["upcoming"]), (&true.into(), &Value::Array(vec![])));
        assert_eq!(send(&rig, "PATCH", "/r", r#"{"paused":false,"cron":"@hourly"}"#).await.0, 204);
        assert_eq!(get(&rig).await["timezone"], "UTC");
        assert_eq!(send(&rig, "PATCH", "/r", r#"{"interval":60}"#).await.0, 204);
        let found = get(&rig).await;
        assert_eq!((&found["cron"], &found["interval"]), (&Value::Null, &60.into()));
    }

    #[tokio::test]
    async fn how_often_is_said_once_and_as_it_can_be_understood() {
        let rig = Rig::new(Raw::default()).await;
        for rest in [
            "",
            r#","interval":60,"cron":"@daily""#,
            r#","cron":"@daily","offset":5"#,
            r#","interval":60,"timezone":"UTC""#,
            r#","cron":"nonsense""#,
            r#","cron":"@daily","timezone":"Nowhere/City""#,
            r#","cron":"0 0 30 2 *""#,
            r#","cron":"@daily","backlog":1001"#,
            r#","interval":0"#,
        ] {
            let body = format!(r#"{{"queue":"q","klass":"k"{rest}}}"#);
            let (status, answer) = send(&rig, "POST", "", &body).await;
            assert_eq!((status, &answer["error"]["code"]), (400, &"BADARG".into()), "{body}: {answer}");
        }
        assert_eq!(send(&rig, "POST", "/none/run", "{}").await.0, 404);
        rig.say("RECUR q k {} CRON @daily TIMEZONE Asia/Tokyo JID r").await;
        assert_eq!(get(&rig).await["timezone"], "Asia/Tokyo");
    }
}
