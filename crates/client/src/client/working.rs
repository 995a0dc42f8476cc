//! Working: taking jobs and saying what became of them.

use super::{Client, reply};
use crate::command::{Command, CommandBuilder, Repeat};
use crate::error::Error;
use crate::job::{Job, Json, State};
use serde::Serialize;
use std::time::Duration;

/// A request for jobs.
#[derive(Debug, Clone)]
pub struct Pop {
    worker: String,
    queues: Vec<String>,
    count: Option<usize>,
    wait: Option<Duration>,
    lock: Option<Duration>,
    round_robin: bool,
    klasses: Vec<String>,
}

impl Pop {
    /// One job for a worker, from the first of these queues that has any.
    pub fn new(worker: impl Into<String>, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let queues = queues.into_iter().map(Into::into).collect();
        let klasses = Vec::new();
        Self {
            worker: worker.into(),
            queues,
            count: None,
            wait: None,
            lock: None,
            round_robin: false,
            klasses,
        }
    }

    /// Up to this many.
    #[must_use]
    pub fn count(mut self, count: usize) -> Self {
        self.count = Some(count);
        self
    }

    /// Waits up to this long for the first one, over a connection of its own.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Holds them this long, instead of the queue's own interval.
    #[must_use]
    pub fn lock(mut self, lock: Duration) -> Self {
        self.lock = Some(lock);
        self
    }

    /// One from each queue in turn, instead of emptying the first one first.
    #[must_use]
    pub fn round_robin(mut self) -> Self {
        self.round_robin = true;
        self
    }

    /// Only jobs of this klass; said several times, of any of them.
    #[must_use]
    pub fn klass(mut self, klass: impl Into<String>) -> Self {
        self.klasses.push(klass.into());
        self
    }

    fn command(&self) -> Command {
        CommandBuilder::new("HAUL.POP")
            .arg(&self.worker)
            .number("COUNT", self.count)
            .duration("WAIT", self.wait)
            .duration("LOCK", self.lock)
            .flag("ROUNDROBIN", self.round_robin)
            .each("KLASS", &self.klasses)
            .arg("QUEUES")
            .args(&self.queues)
            .finish(Repeat::Unsafe)
    }
}

/// A job held, and by whom.
#[derive(Debug, Clone)]
struct Held {
    worker: String,
    jid: String,
    attempt: Option<u64>,
}

impl Held {
    fn command(&self, name: &str) -> CommandBuilder {
        CommandBuilder::new(name).arg(&self.worker).arg(&self.jid)
    }

    /// Naming the attempt makes the command safe to repeat: the second is refused.
    fn finish(&self, command: CommandBuilder) -> Command {
        let repeat = if self.attempt.is_some() { Repeat::Safe } else { Repeat::Unsafe };
        command.number("ATTEMPT", self.attempt).finish(repeat)
    }
}

/// The two ways to say which job a verb is about, for every verb of this file.
macro_rules! about_held_job {
    ($verb:ident { $($field:ident : $value:expr),* }, ($($argument:ident),*)) => {
        impl $verb {
            /// About a job by its id, whichever attempt it is.
            pub fn new(worker: impl Into<String>, jid: impl Into<String> $(, $argument: impl Into<String>)*) -> Self {
                $(let $argument = $argument.into();)*
                let held = Held { worker: worker.into(), jid: jid.into(), attempt: None };
                Self { held, $($field: $value),* }
            }

            /// About the very attempt that was popped: refused with `NOTHELD` if there has been another since.
            pub fn job(worker: impl Into<String>, job: &Job $(, $argument: impl Into<String>)*) -> Self {
                Self::new(worker, &job.jid $(, $argument)*).attempt(job.attempt)
            }

            /// Refused with `NOTHELD` unless it is still this attempt.
            #[must_use]
            pub fn attempt(mut self, attempt: u64) -> Self {
                self.held.attempt = Some(attempt);
                self
            }
        }
    };
}

/// A lock to be renewed.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    held: Held,
    lock: Option<Duration>,
    data: Option<Result<Json, Error>>,
}

about_held_job!(Heartbeat { lock: None, data: None }, ());

impl Heartbeat {
    /// For this long, instead of the queue's own interval.
    #[must_use]
    pub fn lock(mut self, lock: Duration) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Replaces the job's data: a later attempt begins with it.
    #[must_use]
    pub fn data(mut self, data: &(impl Serialize + ?Sized)) -> Self {
        self.data = Some(Json::of(data));
        self
    }

    fn command(&self) -> Result<Command, Error> {
        let data = self.data.clone().transpose()?;
        let command = self
            .held
            .command("HAUL.HEARTBEAT")
            .duration("LOCK", self.lock)
            .option("DATA", data.as_ref().map(Json::text))
            .number("ATTEMPT", self.held.attempt);
        Ok(command.finish(Repeat::Safe))
    }
}

/// A job to be completed.
#[derive(Debug, Clone)]
pub struct Complete {
    held: Held,
    result: Option<String>,
    data: Option<Result<Json, Error>>,
    next: Option<String>,
    delay: Option<Duration>,
    depends: Vec<String>,
}

about_held_job!(Complete { result: None, data: None, next: None, delay: None, depends: Vec::new() }, ());

impl Complete {
    /// Leaves a result, any text.
    #[must_use]
    pub fn result(mut self, result: impl Into<String>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// Replaces the job's data.
    #[must_use]
    pub fn data(mut self, data: &(impl Serialize + ?Sized)) -> Self {
        self.data = Some(Json::of(data));
        self
    }

    /// Goes on in this queue, instead of being done.
    #[must_use]
    pub fn next(mut self, queue: impl Into<String>) -> Self {
        self.next = Some(queue.into());
        self
    }

    /// In the next queue, not before this long from now.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// In the next queue, not before this other job is complete.
    #[must_use]
    pub fn depends(mut self, jid: impl Into<String>) -> Self {
        self.depends.push(jid.into());
        self
    }

    fn command(&self) -> Result<Command, Error> {
        let data = self.data.clone().transpose()?;
        let mut command = self
            .held
            .command("HAUL.COMPLETE")
            .option("RESULT", self.result.as_ref())
            .option("DATA", data.as_ref().map(Json::text));
        if let Some(next) = &self.next {
            command =
                command.arg("NEXT").arg(next).duration("DELAY", self.delay).each("DEPENDS", &self.depends);
        }
        Ok(self.held.finish(command))
    }
}

/// A job to be failed: nobody tries it again until somebody puts it back.
#[derive(Debug, Clone)]
pub struct Fail {
    held: Held,
    group: String,
    message: String,
    data: Option<Result<Json, Error>>,
}

about_held_job!(Fail { group: group, message: message, data: None }, (group, message));

impl Fail {
    /// Replaces the job's data.
    #[must_use]
    pub fn data(mut self, data: &(impl Serialize + ?Sized)) -> Self {
        self.data = Some(Json::of(data));
        self
    }

    fn command(&self) -> Result<Command, Error> {
        let data = self.data.clone().transpose()?;
        let command = self
            .held
            .command("HAUL.FAIL")
            .arg(&self.group)
            .arg(&self.message)
            .option("DATA", data.as_ref().map(Json::text));
        Ok(self.held.finish(command))
    }
}

/// A job to be tried again, if it has retries left; otherwise it fails.
#[derive(Debug, Clone)]
pub struct Retry {
    held: Held,
    delay: Option<Duration>,
    failure: Option<(String, String)>,
}

about_held_job!(Retry { delay: None, failure: None }, ());

impl Retry {
    /// Not before this long from now.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// What to fail it with when no retries are left.
    #[must_use]
    pub fn failure(mut self, group: impl Into<String>, message: impl Into<String>) -> Self {
        self.failure = Some((group.into(), message.into()));
        self
    }

    fn command(&self) -> Command {
        let mut command = self.held.command("HAUL.RETRY").duration("DELAY", self.delay);
        if let Some((group, message)) = &self.failure {
            command = command.arg("GROUP").arg(group).arg("MESSAGE").arg(message);
        }
        self.held.finish(command)
    }
}

/// Working.
/// Tells what a running job says of itself. What is not given stays as it was.
#[derive(Debug, Clone)]
pub struct Report {
    held: Held,
    percent: Option<f64>,
    message: Option<String>,
    output: Option<(Vec<u8>, u64)>,
    checkpoint: Option<Json>,
}

about_held_job!(Report { percent: None, message: None, output: None, checkpoint: None }, ());

impl Report {
    /// How far it is, from 0 to 100.
    #[must_use]
    pub fn percent(mut self, percent: f64) -> Self {
        self.percent = Some(percent.clamp(0.0, 100.0));
        self
    }

    /// What it is doing.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The last part of its output, and how long the output was in all.
    #[must_use]
    pub fn output(mut self, last_part: impl Into<Vec<u8>>, bytes: u64) -> Self {
        self.output = Some((last_part.into(), bytes));
        self
    }

    /// What the next attempt is to begin with.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: Json) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    fn command(&self) -> Command {
        self.held
            .command("HAUL.REPORT")
            .number("PERCENT", self.percent)
            .option("MESSAGE", self.message.as_ref())
            .option("OUTPUT", self.output.as_ref().map(|(part, _)| part))
            .number("OUTPUTBYTES", self.output.as_ref().map(|(_, bytes)| bytes))
            .option("CHECKPOINT", self.checkpoint.as_ref().map(Json::text))
            .number("ATTEMPT", self.held.attempt)
            .finish(Repeat::Safe)
    }
}

impl Client {
    /// Tells what a running job says of itself.
    ///
    /// # Errors
    /// The job is not held by this worker (any more), or there is no answer.
    pub async fn report(&self, report: &Report) -> Result<(), Error> {
        reply::unit(self.request(report.command()).await?)
    }

    /// A sign of life of a worker with what it says of itself, a JSON object. `is_new`: it has just started, so nobody
    /// has asked this one to drain. `draining`: it takes no more jobs of its own accord. Answers whether it is to take no
    /// more jobs.
    ///
    /// # Errors
    /// The server refused, or there is no answer.
    pub async fn register(
        &self,
        worker: &str,
        facts: &Json,
        is_new: bool,
        draining: bool,
    ) -> Result<bool, Error> {
        let command = CommandBuilder::new("HAUL.WORKER").arg("REGISTER").arg(worker).arg(facts.text());
        let command = command.flag("NEW", is_new).flag("DRAINING", draining).finish(Repeat::Safe);
        reply::int(self.request(command).await?).map(|drain| drain == 1)
    }

    /// Asks a worker to take no more jobs, or takes that back. Answers whether there is such a worker.
    ///
    /// # Errors
    /// The server refused, or there is no answer.
    pub async fn drain(&self, worker: &str, drain: bool) -> Result<bool, Error> {
        let word = if drain { "DRAIN" } else { "UNDRAIN" };
        let command = CommandBuilder::new("HAUL.WORKER").arg(word).arg(worker).finish(Repeat::Safe);
        reply::int(self.request(command).await?).map(|known| known == 1)
    }

    /// Takes jobs; none came if the list is empty. A pop whose answer is lost leaves its jobs locked until their locks run
    /// out, so it is not repeated.
    ///
    /// # Errors
    /// Refused with `BADARG`, or there is no answer.
    pub async fn pop(&self, pop: &Pop) -> Result<Vec<Job>, Error> {
        let frame = match pop.wait {
            Some(wait) if !wait.is_zero() => self.request_waiting(pop.command(), wait).await?,
            _ => self.request(pop.command()).await?,
        };
        reply::jsons(frame)
    }

    /// Renews a lock; how long it now lasts.
    ///
    /// # Errors
    /// [`Error::is_lock_lost`]: stop working on the job. Or there is no answer.
    pub async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Duration, Error> {
        reply::count(self.request(heartbeat.command()?).await?).map(Duration::from_secs)
    }

    /// Renews many locks, each for its queue's own interval; for each in order how long it now lasts, or the refusal.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn heartbeat_many(
        &self,
        worker: &str,
        jids: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Result<Duration, Error>>, Error> {
        let command = CommandBuilder::new("HAUL.MHEARTBEAT").arg(worker).args(jids).finish(Repeat::Safe);
        let frame = self.request(command).await?;
        reply::each(frame, |text| Duration::try_from_secs_f64(text.parse().ok()?).ok())
    }

    /// Completes a job; its new state.
    ///
    /// # Errors
    /// [`Error::is_lock_lost`]: it is no longer the worker's. Or there is no answer.
    pub async fn complete(&self, complete: &Complete) -> Result<State, Error> {
        reply::text(self.request(complete.command()?).await?).map(|text| State::from_text(&text))
    }

    /// Completes many jobs; for each in order its new state, or the refusal.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn complete_many(
        &self,
        worker: &str,
        jids: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Result<State, Error>>, Error> {
        let command = CommandBuilder::new("HAUL.MCOMPLETE").arg(worker).args(jids).finish(Repeat::Unsafe);
        let known = |text: &str| Some(State::from_text(text)).filter(|state| *state != State::Unknown);
        reply::each(self.request(command).await?, known)
    }

    /// Fails a job.
    ///
    /// # Errors
    /// [`Error::is_lock_lost`]: it is no longer the worker's. Or there is no answer.
    pub async fn fail(&self, fail: &Fail) -> Result<(), Error> {
        reply::unit(self.request(fail.command()?).await?)
    }

    /// Gives a job back to be tried again; how many retries are left, none if it has failed for good.
    ///
    /// # Errors
    /// [`Error::is_lock_lost`]: it is no longer the worker's. Or there is no answer.
    pub async fn retry(&self, retry: &Retry) -> Result<Option<u64>, Error> {
        let left = reply::int(self.request(retry.command()).await?)?;
        Ok(u64::try_from(left).ok())
    }

    /// Takes the locks of these jobs away, whoever holds them; they are next in line.
    ///
    /// # Errors
    /// Refused with `NOJOB` or `NOTRUNNING`, or there is no answer.
    pub async fn release(&self, jids: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error> {
        let command = CommandBuilder::new("HAUL.RELEASE").args(jids).finish(Repeat::Unsafe);
        reply::unit(self.request(command).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    fn words(command: &Command) -> String {
        let mut out = BytesMut::new();
        command.write(&mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let words: Vec<_> = text.split("\r\n").filter(|part| !part.starts_with(['$', '*'])).collect();
        words.join(" ").trim().to_owned()
    }

    #[test]
    fn verbs_are_written_as_documented() {
        let second = Duration::from_secs(1);
        let pop = Pop::new("w", ["a", "b"]).count(3).wait(second / 2).lock(second * 60).round_robin();
        assert_eq!(words(&pop.command()), "HAUL.POP w COUNT 3 WAIT 0.5 LOCK 60 ROUNDROBIN QUEUES a b");
        assert_eq!(
            words(&Pop::new("w", ["a"]).klass("k").klass("l").command()),
            "HAUL.POP w KLASS k KLASS l QUEUES a"
        );
        let report = Report::new("w", "j").percent(40.0).message("m").output("o", 7).attempt(2);
        assert_eq!(
            words(&report.command()),
            "HAUL.REPORT w j PERCENT 40 MESSAGE m OUTPUT o OUTPUTBYTES 7 ATTEMPT 2"
        );
        let heartbeat = Heartbeat::new("w", "j").lock(second).data(&1).attempt(2);
        assert_eq!(words(&heartbeat.command().unwrap()), "HAUL.HEARTBEAT w j LOCK 1 DATA 1 ATTEMPT 2");
        let complete =
            Complete::new("w", "j").result("r").data(&2).next("n").delay(second).depends("d").attempt(3);
        assert_eq!(
            words(&complete.command().unwrap()),
            "HAUL.COMPLETE w j RESULT r DATA 2 NEXT n DELAY 1 DEPENDS d ATTEMPT 3"
        );
        let fail = Fail::new("w", "j", "g", "m").data(&3).attempt(4);
        assert_eq!(words(&fail.command().unwrap()), "HAUL.FAIL w j g m DATA 3 ATTEMPT 4");
        let retry = Retry::new("w", "j").delay(second).failure("g", "m").attempt(5);
        assert_eq!(words(&retry.command()), "HAUL.RETRY w j DELAY 1 GROUP g MESSAGE m ATTEMPT 5");
    }

    #[test]
    fn only_a_named_attempt_is_repeated() {
        assert_eq!(Complete::new("w", "j").command().unwrap().repeat, Repeat::Unsafe);
        assert_eq!(Complete::new("w", "j").attempt(1).command().unwrap().repeat, Repeat::Safe);
        assert_eq!(Retry::new("w", "j").command().repeat, Repeat::Unsafe);
        assert_eq!(Heartbeat::new("w", "j").command().unwrap().repeat, Repeat::Safe);
    }
}
