//! Managing: changing jobs, queues and settings from outside.
//!
//! What sets something to a value is safe to repeat; what answers how much it changed is not, because the answer to the
//! second copy would be wrong.

use super::{Client, reply};
use crate::command::{CommandBuilder, Repeat};
use crate::error::Error;
use crate::resp::Frame;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A limit on how many jobs run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throttle {
    /// Its id, which jobs name.
    pub id: String,
    /// How many may run at once.
    pub max: u64,
    /// Forgotten after this long, if at all.
    pub ttl: Option<Duration>,
}

/// Managing.
impl Client {
    async fn set(&self, command: CommandBuilder) -> Result<Frame, Error> {
        self.request(command.finish(Repeat::Safe)).await
    }

    async fn change(&self, command: CommandBuilder) -> Result<Frame, Error> {
        self.request(command.finish(Repeat::Unsafe)).await
    }

    /// Cancels jobs, all or none; how many were there.
    ///
    /// # Errors
    /// Refused with `NEEDED` if others depend on one of them, or there is no answer.
    pub async fn cancel(&self, jids: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<u64, Error> {
        reply::count(self.change(CommandBuilder::new("HAUL.CANCEL").args(jids)).await?)
    }

    /// Puts failed jobs of a group back into a queue; how many.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn unfail(&self, queue: &str, group: &str, count: u64) -> Result<u64, Error> {
        let command = CommandBuilder::new("HAUL.UNFAIL").arg(queue).arg(group).number("COUNT", Some(count));
        reply::count(self.change(command).await?)
    }

    /// Changes a job's priority.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn priority(&self, jid: &str, priority: i64) -> Result<(), Error> {
        let command = CommandBuilder::new("HAUL.PRIORITY").arg(jid).arg(priority.to_string());
        reply::unit(self.set(command).await?)
    }

    /// Adds tags to a job; all its tags.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn tag(
        &self,
        jid: &str,
        tags: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<String>, Error> {
        reply::texts(self.set(CommandBuilder::new("HAUL.TAG").arg(jid).args(tags)).await?)
    }

    /// Takes tags from a job; all its tags.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn untag(
        &self,
        jid: &str,
        tags: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<String>, Error> {
        reply::texts(self.set(CommandBuilder::new("HAUL.UNTAG").arg(jid).args(tags)).await?)
    }

    /// Asks to be told about a job; whether that changed anything.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn track(&self, jid: &str) -> Result<bool, Error> {
        Ok(reply::int(self.change(CommandBuilder::new("HAUL.TRACK").arg(jid)).await?)? > 0)
    }

    /// No longer asks to be told about a job; whether that changed anything.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn untrack(&self, jid: &str) -> Result<bool, Error> {
        Ok(reply::int(self.change(CommandBuilder::new("HAUL.UNTRACK").arg(jid)).await?)? > 0)
    }

    /// Adds a line to a job's history.
    ///
    /// # Errors
    /// Refused with `NOJOB`, or there is no answer.
    pub async fn log(&self, jid: &str, message: &str) -> Result<(), Error> {
        reply::unit(self.change(CommandBuilder::new("HAUL.LOG").arg(jid).arg(message)).await?)
    }

    /// Adds a line with data to a job's history.
    ///
    /// # Errors
    /// As [`Client::log`], or the data cannot be written as JSON.
    pub async fn log_with(
        &self,
        jid: &str,
        message: &str,
        data: &(impl Serialize + ?Sized),
    ) -> Result<(), Error> {
        let data = crate::job::Json::of(data)?;
        let command = CommandBuilder::new("HAUL.LOG").arg(jid).arg(message).arg(data.text());
        reply::unit(self.change(command).await?)
    }

    /// Lets a job that waits for others wait for these too.
    ///
    /// # Errors
    /// Refused with `NOTDEPENDS` or `NOJOB`, or there is no answer.
    pub async fn depends_on(
        &self,
        jid: &str,
        on: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<(), Error> {
        reply::unit(self.change(CommandBuilder::new("HAUL.DEPENDS").arg(jid).arg("ON").args(on)).await?)
    }

    /// Lets a job no longer wait for these.
    ///
    /// # Errors
    /// Refused with `NOTDEPENDS` or `NOJOB`, or there is no answer.
    pub async fn depends_off(
        &self,
        jid: &str,
        off: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<(), Error> {
        reply::unit(self.change(CommandBuilder::new("HAUL.DEPENDS").arg(jid).arg("OFF").args(off)).await?)
    }

    /// Lets a job no longer wait for any other.
    ///
    /// # Errors
    /// Refused with `NOTDEPENDS` or `NOJOB`, or there is no answer.
    pub async fn depends_off_all(&self, jid: &str) -> Result<(), Error> {
        self.depends_off(jid, ["ALL"]).await
    }

    /// Stops handing out jobs of these queues.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn pause(&self, queues: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error> {
        reply::unit(self.set(CommandBuilder::new("HAUL.PAUSE").args(queues)).await?)
    }

    /// Hands out jobs of these queues again.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn unpause(&self, queues: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error> {
        reply::unit(self.set(CommandBuilder::new("HAUL.UNPAUSE").args(queues)).await?)
    }

    /// Takes queues off the list of queues.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn forget(&self, queues: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error> {
        reply::unit(self.set(CommandBuilder::new("HAUL.FORGET").args(queues)).await?)
    }

    /// Takes workers off the list of workers.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn deregister(&self, workers: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error> {
        reply::unit(self.set(CommandBuilder::new("HAUL.DEREGISTER").args(workers)).await?)
    }

    /// Every setting.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn config(&self) -> Result<BTreeMap<String, Value>, Error> {
        reply::json(self.set(CommandBuilder::new("HAUL.CONFIG").arg("GET")).await?)
    }

    /// One setting, if it has a value.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn config_get(&self, option: &str) -> Result<Option<String>, Error> {
        reply::optional_text(self.set(CommandBuilder::new("HAUL.CONFIG").arg("GET").arg(option)).await?)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// Refused with `BADARG`, or there is no answer.
    pub async fn config_set(&self, option: &str, value: &str) -> Result<(), Error> {
        let command = CommandBuilder::new("HAUL.CONFIG").arg("SET").arg(option).arg(value);
        reply::unit(self.set(command).await?)
    }

    /// Gives a setting its default back.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn config_unset(&self, option: &str) -> Result<(), Error> {
        reply::unit(self.set(CommandBuilder::new("HAUL.CONFIG").arg("UNSET").arg(option)).await?)
    }

    /// Makes or changes a throttle.
    ///
    /// # Errors
    /// Refused with `BADARG`, or there is no answer.
    pub async fn throttle_set(&self, throttle: &Throttle) -> Result<(), Error> {
        let command = CommandBuilder::new("HAUL.THROTTLE")
            .arg("SET")
            .arg(&throttle.id)
            .arg(throttle.max.to_string())
            .duration("TTL", throttle.ttl);
        reply::unit(self.set(command).await?)
    }

    /// A throttle, if there is one of that id.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn throttle_get(&self, id: &str) -> Result<Option<Value>, Error> {
        reply::optional_json(self.set(CommandBuilder::new("HAUL.THROTTLE").arg("GET").arg(id)).await?)
    }

    /// Removes a throttle.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn throttle_delete(&self, id: &str) -> Result<(), Error> {
        reply::unit(self.set(CommandBuilder::new("HAUL.THROTTLE").arg("DELETE").arg(id)).await?)
    }

    /// The jobs that run under a throttle.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn throttle_locks(&self, id: &str) -> Result<Vec<String>, Error> {
        reply::texts(self.set(CommandBuilder::new("HAUL.THROTTLE").arg("LOCKS").arg(id)).await?)
    }

    /// The jobs that wait for a throttle.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn throttle_pending(&self, id: &str) -> Result<Vec<String>, Error> {
        reply::texts(self.set(CommandBuilder::new("HAUL.THROTTLE").arg("PENDING").arg(id)).await?)
    }

    /// Takes jobs out of a throttle's count.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn throttle_release(
        &self,
        id: &str,
        jids: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<(), Error> {
        let command = CommandBuilder::new("HAUL.THROTTLE").arg("RELEASE").arg(id).args(jids);
        reply::unit(self.change(command).await?)
    }
}
