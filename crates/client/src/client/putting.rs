//! Putting: how jobs get in.

use super::{Client, reply};
use crate::command::{Command, CommandBuilder, Repeat};
use crate::error::Error;
use crate::job::Json;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// A job to be put.
#[derive(Debug, Clone)]
pub struct Put {
    queue: String,
    klass: String,
    /// Kept with its error, so that building stays a chain; putting reports it.
    data: Result<Json, Error>,
    jid: Option<String>,
    priority: Option<i64>,
    delay: Option<Duration>,
    retries: Option<u32>,
    tags: Vec<String>,
    depends: Vec<String>,
    throttles: Vec<String>,
    nx: bool,
    trace: Option<String>,
}

impl Put {
    /// A job of a type in a queue, about some data.
    pub fn new(queue: impl Into<String>, klass: impl Into<String>, data: &(impl Serialize + ?Sized)) -> Self {
        Self {
            queue: queue.into(),
            klass: klass.into(),
            data: Json::of(data),
            jid: None,
            priority: None,
            delay: None,
            retries: None,
            tags: Vec::new(),
            depends: Vec::new(),
            throttles: Vec::new(),
            nx: false,
            trace: None,
        }
    }

    /// Names the job; otherwise the server does.
    #[must_use]
    pub fn jid(mut self, jid: impl Into<String>) -> Self {
        self.jid = Some(jid.into());
        self
    }

    /// A larger one runs sooner.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Not before this long from now.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// How often it may be retried.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Not before this other job is complete.
    #[must_use]
    pub fn depends(mut self, jid: impl Into<String>) -> Self {
        self.depends.push(jid.into());
        self
    }

    /// Subject to this throttle.
    #[must_use]
    pub fn throttle(mut self, id: impl Into<String>) -> Self {
        self.throttles.push(id.into());
        self
    }

    /// Refused with `EXISTS` if there is a job of that id, instead of putting it again.
    #[must_use]
    pub fn nx(mut self) -> Self {
        self.nx = true;
        self
    }

    /// Carries a W3C trace context (`traceparent`) to whoever runs it: [`crate::Job::trace`].
    #[must_use]
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    fn command(&self) -> Result<Command, Error> {
        let data = self.data.as_ref().map_err(Clone::clone)?;
        let command = CommandBuilder::new("HAUL.PUT").arg(&self.queue).arg(&self.klass).arg(data.text());
        Ok(command
            .option("JID", self.jid.as_ref())
            .number("PRIORITY", self.priority)
            .duration("DELAY", self.delay)
            .number("RETRIES", self.retries)
            .each("TAG", &self.tags)
            .each("DEPENDS", &self.depends)
            .each("THROTTLE", &self.throttles)
            .flag("NX", self.nx)
            .option("TRACE", self.trace.as_ref())
            // Put again, a job another worker has meanwhile taken would be taken away from it.
            .finish(Repeat::Unsafe))
    }

    /// The form `HAUL.MPUT` takes.
    fn json(&self) -> Result<String, Error> {
        let body = PutJson {
            queue: &self.queue,
            klass: &self.klass,
            data: self.data.as_ref().map_err(Clone::clone)?,
            jid: self.jid.as_deref(),
            priority: self.priority,
            delay: self.delay.map(|delay| delay.as_secs_f64()),
            retries: self.retries,
            tags: &self.tags,
            depends: &self.depends,
            throttles: &self.throttles,
            nx: self.nx,
            trace: self.trace.as_deref(),
        };
        serde_json::to_string(&body).map_err(|error| Error::Encode(error.to_string()))
    }
}

#[derive(Serialize)]
struct PutJson<'a> {
    queue: &'a str,
    klass: &'a str,
    data: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    jid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    depends: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    throttles: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nx: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

/// A job to be moved to a queue; what is not named stays.
#[derive(Debug, Clone)]
pub struct Move {
    jid: String,
    queue: String,
    priority: Option<i64>,
    delay: Option<Duration>,
    retries: Option<u32>,
    tags: Vec<String>,
    depends: Vec<String>,
}

impl Move {
    /// This job, to this queue.
    pub fn new(jid: impl Into<String>, queue: impl Into<String>) -> Self {
        Self {
            jid: jid.into(),
            queue: queue.into(),
            priority: None,
            delay: None,
            retries: None,
            tags: Vec::new(),
            depends: Vec::new(),
        }
    }

    /// With another priority.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Not before this long from now.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// With another number of retries.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// With this tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Not before this other job is complete.
    #[must_use]
    pub fn depends(mut self, jid: impl Into<String>) -> Self {
        self.depends.push(jid.into());
        self
    }

    fn command(&self) -> Command {
        CommandBuilder::new("HAUL.MOVE")
            .arg(&self.jid)
            .arg(&self.queue)
            .number("PRIORITY", self.priority)
            .duration("DELAY", self.delay)
            .number("RETRIES", self.retries)
            .each("TAG", &self.tags)
            .each("DEPENDS", &self.depends)
            .finish(Repeat::Unsafe)
    }
}

/// A recurring job to be put.
#[derive(Debug, Clone)]
pub struct Recur {
    put: Put,
    interval: Option<Duration>,
    cron: Option<String>,
    timezone: Option<String>,
    offset: Option<Duration>,
    backlog: Option<u32>,
}

impl Recur {
    /// A job like this one, once every interval. Its delay, dependencies and `nx` mean nothing here.
    #[must_use]
    pub fn new(job: Put, interval: Duration) -> Self {
        Self { interval: Some(interval), ..Self::blank(job) }
    }

    /// A job like this one whenever a cron pattern says so, in UTC: minute, hour, day of month, month, day of week.
    #[must_use]
    pub fn cron(job: Put, pattern: impl Into<String>) -> Self {
        Self { cron: Some(pattern.into()), ..Self::blank(job) }
    }

    fn blank(job: Put) -> Self {
        Self { put: job, interval: None, cron: None, timezone: None, offset: None, backlog: None }
    }

    /// The time zone of the cron pattern, such as Europe/Berlin.
    #[must_use]
    pub fn timezone(mut self, zone: impl Into<String>) -> Self {
        self.timezone = Some(zone.into());
        self
    }

    /// The first one this long from now.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = Some(offset);
        self
    }

    /// How many missed ones are made up for.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = Some(backlog);
        self
    }

    fn command(&self) -> Result<Command, Error> {
        let put = &self.put;
        let data = put.data.as_ref().map_err(Clone::clone)?;
        Ok(CommandBuilder::new("HAUL.RECUR")
            .arg(&put.queue)
            .arg(&put.klass)
            .arg(data.text())
            .duration("INTERVAL", self.interval)
            .option("CRON", self.cron.as_ref())
            .option("TIMEZONE", self.timezone.as_ref())
            .option("JID", put.jid.as_ref())
            .duration("OFFSET", self.offset)
            .number("PRIORITY", put.priority)
            .number("RETRIES", put.retries)
            .number("BACKLOG", self.backlog)
            .each("TAG", &put.tags)
            .each("THROTTLE", &put.throttles)
            .finish(Repeat::Unsafe))
    }
}

/// Putting.
impl Client {
    /// Puts a job; its id comes back.
    ///
    /// # Errors
    /// Refused with `EXISTS` under [`Put::nx`], or with `BADARG`; or there is no answer.
    pub async fn put(&self, put: &Put) -> Result<String, Error> {
        reply::text(self.request(put.command()?).await?)
    }

    /// Puts many jobs, all or none; their ids come back in order.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn put_many<'a>(&self, puts: impl IntoIterator<Item = &'a Put>) -> Result<Vec<String>, Error> {
        let jobs = puts.into_iter().map(Put::json).collect::<Result<Vec<_>, _>>()?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        reply::texts(self.request(CommandBuilder::new("HAUL.MPUT").args(jobs).finish(Repeat::Unsafe)).await?)
    }

    /// Moves a job to a queue, taking its lock away; its id comes back.
    ///
    /// # Errors
    /// Refused with `NOJOB` or `BADARG`, or there is no answer.
    pub async fn move_job(&self, to: &Move) -> Result<String, Error> {
        reply::text(self.request(to.command()).await?)
    }

    /// Puts a recurring job; its id comes back.
    ///
    /// # Errors
    /// Refused with `BADARG`, or there is no answer.
    pub async fn recur(&self, recur: &Recur) -> Result<String, Error> {
        reply::text(self.request(recur.command()?).await?)
    }

    /// Ends a recurring job; whether it was there.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn unrecur(&self, jid: &str) -> Result<bool, Error> {
        let command = CommandBuilder::new("HAUL.UNRECUR").arg(jid).finish(Repeat::Unsafe);
        Ok(reply::int(self.request(command).await?)? > 0)
    }

    /// Makes one of a recurring job's jobs now; its id comes back.
    ///
    /// # Errors
    /// Refused with `NORECUR`, or there is no answer.
    pub async fn run_recur(&self, jid: &str) -> Result<String, Error> {
        let command = CommandBuilder::new("HAUL.RUNRECUR").arg(jid).finish(Repeat::Unsafe);
        reply::text(self.request(command).await?)
    }

    /// Has a recurring job make no more jobs, or go on with the next moment to come.
    ///
    /// # Errors
    /// Refused with `NORECUR`, or there is no answer.
    pub async fn pause_recur(&self, jid: &str, paused: bool) -> Result<(), Error> {
        let word = if paused { "HAUL.PAUSERECUR" } else { "HAUL.UNPAUSERECUR" };
        self.request(CommandBuilder::new(word).arg(jid).finish(Repeat::Safe)).await?;
        Ok(())
    }

    /// A recurring job, if there is one of that id.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get_recur(&self, jid: &str) -> Result<Option<Value>, Error> {
        reply::optional_json(
            self.request(CommandBuilder::new("HAUL.GETRECUR").arg(jid).finish(Repeat::Safe)).await?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use serde_json::json;

    fn words(command: &Command) -> String {
        let mut out = BytesMut::new();
        command.write(&mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let words: Vec<_> = text.split("\r\n").filter(|part| !part.starts_with(['$', '*'])).collect();
        words.join(" ").trim().to_owned()
    }

    fn full() -> Put {
        Put::new("q", "k", &json!({"a": 1}))
            .jid("j")
            .priority(-2)
            .delay(Duration::from_millis(500))
            .retries(3)
            .tag("t")
            .tag("u")
            .depends("d")
            .throttle("h")
            .nx()
            .trace("00-a-b-01")
    }

    #[test]
    fn a_put_is_written_as_documented() {
        assert_eq!(words(&Put::new("q", "k", &()).command().unwrap()), "HAUL.PUT q k null");
        assert_eq!(
            words(&full().command().unwrap()),
            r#"HAUL.PUT q k {"a":1} JID j PRIORITY -2 DELAY 0.5 RETRIES 3 TAG t TAG u DEPENDS d THROTTLE h NX TRACE 00-a-b-01"#
        );
    }

    #[test]
    fn a_put_among_many_is_an_object() {
        assert_eq!(Put::new("q", "k", "x").json().unwrap(), r#"{"queue":"q","klass":"k","data":"x"}"#);
        let object: Value = serde_json::from_str(&full().json().unwrap()).unwrap();
        let expected = json!({"queue": "q", "klass": "k", "data": {"a": 1}, "jid": "j", "priority": -2, "delay": 0.5,
            "retries": 3, "tags": ["t", "u"], "depends": ["d"], "throttles": ["h"], "nx": true,
            "trace": "00-a-b-01"});
        assert_eq!(object, expected);
    }

    #[test]
    fn moves_and_recurring_jobs_are_written_as_documented() {
        let to =
            Move::new("j", "q").priority(1).delay(Duration::from_secs(2)).retries(3).tag("t").depends("d");
        assert_eq!(words(&to.command()), "HAUL.MOVE j q PRIORITY 1 DELAY 2 RETRIES 3 TAG t DEPENDS d");
        let recur = Recur::new(Put::new("q", "k", &1).jid("j").throttle("h"), Duration::from_secs(60))
            .offset(Duration::from_secs(5))
            .backlog(9);
        assert_eq!(
            words(&recur.command().unwrap()),
            "HAUL.RECUR q k 1 INTERVAL 60 JID j OFFSET 5 BACKLOG 9 THROTTLE h"
        );
        let cron = Recur::cron(Put::new("q", "k", &1).jid("j"), "@daily").timezone("Europe/Berlin");
        assert_eq!(
            words(&cron.command().unwrap()),
            "HAUL.RECUR q k 1 CRON @daily TIMEZONE Europe/Berlin JID j"
        );
    }

    #[test]
    fn data_that_is_not_json_is_reported_when_put() {
        let bad = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(matches!(Put::new("q", "k", &bad).command(), Err(Error::Encode(_))));
    }
}
