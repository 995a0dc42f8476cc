//! Looking: what there is. Nothing here changes anything, so all of it is safe to repeat.

use super::{Client, reply};
use crate::command::{CommandBuilder, Repeat};
use crate::error::Error;
use crate::job::{Job, Listing, QueueCounts, State, Tracked};
use crate::resp::Frame;
use serde_json::Value;
use std::collections::BTreeMap;

/// Rows of a list asked for at once.
const PAGE_ROWS: u64 = 1000;

/// Which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// How many to skip.
    pub offset: u64,
    /// How many to list at most.
    pub count: u64,
}

impl Default for Range {
    /// The first 25.
    fn default() -> Self {
        Self { offset: 0, count: 25 }
    }
}

/// A question for the jobs in a state.
#[derive(Debug, Clone)]
pub struct Jobs {
    state: State,
    queue: Option<String>,
    range: Range,
}

impl Jobs {
    /// The first 25 jobs in a state. Every state but `complete` needs a queue.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self { state, queue: None, range: Range::default() }
    }

    /// Those of this queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Another part of the list.
    #[must_use]
    pub fn range(mut self, range: Range) -> Self {
        self.range = range;
        self
    }
}

/// Looking.
impl Client {
    async fn look(&self, command: CommandBuilder) -> Result<Frame, Error> {
        self.request(command.finish(Repeat::Safe)).await
    }

    /// A whole list, asked for page by page: the server answers only so many rows at once.
    async fn pages<T: serde::de::DeserializeOwned>(
        &self,
        command: &'static str,
        mut all: T,
        add: impl Fn(&mut T, &mut T),
        rows: impl Fn(&T) -> usize,
    ) -> Result<T, Error> {
        let mut offset = 0;
        loop {
            let range = Range { offset, count: PAGE_ROWS };
            let mut page: T = reply::json(self.look(ranged(CommandBuilder::new(command), range)).await?)?;
            let found = rows(&page) as u64;
            add(&mut all, &mut page);
            if found < PAGE_ROWS {
                return Ok(all);
            }
            offset += found;
        }
    }

    /// A job, if there is one of that id.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get(&self, jid: &str) -> Result<Option<Job>, Error> {
        reply::optional_json(self.look(CommandBuilder::new("HAUL.GET").arg(jid)).await?)
    }

    /// Many jobs; for each id in order the job, if there is one.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get_many(
        &self,
        jids: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Option<Job>>, Error> {
        let frame = self.look(CommandBuilder::new("HAUL.MGET").args(jids)).await?;
        reply::array(frame)?.into_iter().map(reply::optional_json).collect()
    }

    /// The result a job's completion left.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn result(&self, jid: &str) -> Result<Option<String>, Error> {
        reply::optional_text(self.look(CommandBuilder::new("HAUL.RESULT").arg(jid)).await?)
    }

    /// The jobs that would be popped next.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn peek(&self, queue: &str, count: usize) -> Result<Vec<Job>, Error> {
        reply::jsons(
            self.look(CommandBuilder::new("HAUL.PEEK").arg(queue).number("COUNT", Some(count))).await?,
        )
    }

    /// Every queue and how many jobs it has.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn queues(&self) -> Result<Vec<QueueCounts>, Error> {
        self.pages("HAUL.QUEUES", Vec::new(), Vec::append, Vec::len).await
    }

    /// One queue and how many jobs it has.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn queue(&self, queue: &str) -> Result<QueueCounts, Error> {
        reply::json(self.look(CommandBuilder::new("HAUL.QUEUES").arg(queue)).await?)
    }

    /// The ids of the jobs in a state.
    ///
    /// # Errors
    /// Refused with `BADARG`, or there is no answer.
    pub async fn jobs(&self, jobs: &Jobs) -> Result<Vec<String>, Error> {
        let command =
            CommandBuilder::new("HAUL.JOBS").arg(jobs.state.as_str()).option("QUEUE", jobs.queue.as_ref());
        reply::texts(self.look(ranged(command, jobs.range)).await?)
    }

    /// The ids of the recurring jobs that put into a queue.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn recurring(&self, queue: &str, range: Range) -> Result<Vec<String>, Error> {
        let command = CommandBuilder::new("HAUL.JOBS").arg("recurring").option("QUEUE", Some(queue));
        reply::texts(self.look(ranged(command, range)).await?)
    }

    /// How many jobs a queue has.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn length(&self, queue: &str) -> Result<u64, Error> {
        reply::count(self.look(CommandBuilder::new("HAUL.LENGTH").arg(queue)).await?)
    }

    /// Statistics of a queue for one day: today, or the day of this time in seconds since 1970.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn stats(&self, queue: &str, date: Option<u64>) -> Result<Value, Error> {
        reply::json(self.look(CommandBuilder::new("HAUL.STATS").arg(queue).number("DATE", date)).await?)
    }

    /// How many jobs have failed, by group.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn failed_groups(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.pages("HAUL.FAILED", BTreeMap::new(), BTreeMap::append, BTreeMap::len).await
    }

    /// The jobs that failed with a group.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn failed(&self, group: &str, range: Range) -> Result<Listing, Error> {
        reply::json(self.look(ranged(CommandBuilder::new("HAUL.FAILED").arg(group), range)).await?)
    }

    /// Every worker.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn workers(&self) -> Result<Value, Error> {
        let all: Vec<Value> = self.pages("HAUL.WORKERS", Vec::new(), Vec::append, Vec::len).await?;
        Ok(Value::Array(all))
    }

    /// One worker and its jobs.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn worker(&self, worker: &str) -> Result<Value, Error> {
        reply::json(self.look(CommandBuilder::new("HAUL.WORKERS").arg(worker)).await?)
    }

    /// The jobs that are tracked.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn tracked(&self) -> Result<Tracked, Error> {
        let none = Tracked { jobs: Vec::new(), expired: Vec::new() };
        let add = |all: &mut Tracked, page: &mut Tracked| {
            all.jobs.append(&mut page.jobs);
            all.expired.append(&mut page.expired);
        };
        self.pages("HAUL.TRACKED", none, add, |page| page.jobs.len() + page.expired.len()).await
    }

    /// The jobs with a tag.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn tagged(&self, tag: &str, range: Range) -> Result<Listing, Error> {
        reply::json(self.look(ranged(CommandBuilder::new("HAUL.TAGGED").arg(tag), range)).await?)
    }

    /// The tags most used.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn tags(&self, range: Range) -> Result<Vec<String>, Error> {
        reply::texts(self.look(ranged(CommandBuilder::new("HAUL.TAGS"), range)).await?)
    }
}

fn ranged(command: CommandBuilder, range: Range) -> CommandBuilder {
    command.number("OFFSET", Some(range.offset)).number("COUNT", Some(range.count))
}
