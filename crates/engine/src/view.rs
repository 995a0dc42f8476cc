//! The state as `ql:*` keys, read-only, for clients that look into what used to be Redis. Scratch keys are read here too.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::index::Index;
use crate::job::{Flag, Job, Place, State};
use crate::keyspace::Value;
use crate::score::Score;
use crate::stats::Series;
use crate::tenant::{Cx, Tenant};
use crate::view_task::is_task_list;
use crate::{BodyId, Entry, Failure, Name, QUEUE_THROTTLE_PREFIX, Refusal, Reply, Text};

/// A question about keys.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum KeyQuery {
    /// -> `Type`
    Type { key: Name },
    /// How many of these exist. -> `Count`
    Exist { keys: Vec<Name> },
    /// How long a collection of this type is. -> `Count`
    Length { key: Name, kind: KeyType },
    /// A hash. -> `Pairs`
    Hash { key: Name },
    /// Fields of a hash. -> `Values`
    Fields { key: Name, fields: Vec<Name> },
    /// Positions of a list. -> `Values`
    List { key: Name, start: i64, stop: i64 },
    /// A set. -> `Members`
    Set { key: Name },
    /// Members by rank. -> `Scored`
    Ranks { key: Name, range: RankRange },
    /// Members by score. -> `Scored`
    Scores { key: Name, range: ScoreRange },
    /// -> `Score`
    Score { key: Name, member: Name },
    /// -> `Rank`
    Rank { key: Name, member: Name, reverse: bool },
    /// The first of these hashes that exists. -> `Pairs`
    FirstHash { keys: Vec<Name> },
    /// The first of these lists that exists. -> `Values`
    FirstList { keys: Vec<Name> },
    /// All keys of the tenant. -> `Keys`
    Keys,
}

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum KeyType {
    /// No such key.
    None,
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    Zset,
    /// A hash.
    Hash,
}

/// Ranks, negative ones from the end.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct RankRange {
    pub start: i64,
    pub stop: i64,
    pub reverse: bool,
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct ScoreBound {
    pub value: f64,
    pub exclusive: bool,
}

/// A range of scores, with a limit on what it yields.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct ScoreRange {
    pub min: ScoreBound,
    pub max: ScoreBound,
    pub reverse: bool,
    pub offset: usize,
    pub count: Option<usize>,
}

impl ScoreRange {
    pub(crate) fn holds(&self, score: f64) -> bool {
        let above = if self.min.exclusive { score > self.min.value } else { score >= self.min.value };
        let below = if self.max.exclusive { score < self.max.value } else { score <= self.max.value };
        above && below
    }
}

/// What a key holds.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum KeyView {
    Type(KeyType),
    Count(usize),
    Pairs(Vec<(Name, ViewValue)>),
    Values(Vec<Option<ViewValue>>),
    Members(Vec<Name>),
    Scored(Vec<(Name, f64)>),
    Score(Option<f64>),
    Rank(Option<usize>),
    Keys(Vec<Name>),
}

/// A value inside a key; how it is written is the dialect's business.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum ViewValue {
    Name(Name),
    Text(Text),
    Number(f64),
    /// Written with 20 decimals, as `time` is.
    Moment(f64),
    Names(Vec<Name>),
    Entry(Entry),
    Failure(Failure),
}

impl KeyView {
    pub(crate) fn bodies(&self, each: &mut dyn FnMut(BodyId)) {
        let mut value = |value: &ViewValue| {
            let text = match value {
                ViewValue::Text(text) => Some(text),
                ViewValue::Failure(failure) => Some(&failure.message),
                ViewValue::Entry(Entry { what: crate::What::Log(log), .. }) => log.1.as_ref(),
                _ => None,
            };
            text.and_then(Text::body).into_iter().for_each(&mut *each);
        };
        match self {
            KeyView::Pairs(pairs) => pairs.iter().for_each(|(_, found)| value(found)),
            KeyView::Values(values) => values.iter().flatten().for_each(value),
            _ => {}
        }
    }
}

/// What stands behind a key.
pub(crate) enum Collection<'a> {
    String,
    Hash(Vec<(Name, ViewValue)>),
    List(Vec<ViewValue>),
    Set(Vec<Name>),
    Zset(Cow<'a, Index>),
}

impl Collection<'_> {
    pub(crate) fn kind(&self) -> KeyType {
        match self {
            Collection::String => KeyType::String,
            Collection::Hash(_) => KeyType::Hash,
            Collection::List(_) => KeyType::List,
            Collection::Set(_) => KeyType::Set,
            Collection::Zset(_) => KeyType::Zset,
        }
    }

    fn len(&self) -> usize {
        match self {
            Collection::String => 1,
            Collection::Hash(pairs) => pairs.len(),
            Collection::List(values) => values.len(),
            Collection::Set(members) => members.len(),
            Collection::Zset(index) => index.len(),
        }
    }
}

impl Tenant {
    pub(crate) fn key(&self, cx: &Cx<'_>, query: &KeyQuery) -> Result<Reply, Refusal> {
        let view = match query {
            KeyQuery::Type { key } => KeyView::Type(self.kind_of(cx, key).unwrap_or(KeyType::None)),
            KeyQuery::Exist { keys } => {
                KeyView::Count(keys.iter().filter(|key| self.kind_of(cx, key).is_some()).count())
            }
            KeyQuery::Length { key, kind: KeyType::List } if is_task_list(key) => {
                KeyView::Count(self.list_len(key))
            }
            KeyQuery::Length { key, kind } => {
                KeyView::Count(self.of(cx, key, *kind)?.map_or(0, |found| found.len()))
            }
            KeyQuery::Hash { key } => KeyView::Pairs(self.hash(cx, key)?),
            KeyQuery::Fields { key, fields } => {
                let pairs = self.hash(cx, key)?;
                let field = |wanted: &Name| {
                    pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
                };
                KeyView::Values(fields.iter().map(field).collect())
            }
            KeyQuery::List { key, start, stop } => KeyView::Values(self.list_range(cx, key, *start, *stop)?),
            KeyQuery::Set { key } => match self.of(cx, key, KeyType::Set)? {
                Some(Collection::Set(members)) => KeyView::Members(members),
                _ => KeyView::Members(Vec::new()),
            },
            KeyQuery::Ranks { key, range } => KeyView::Scored(self.by_rank(cx, key, *range)?),
            KeyQuery::Scores { key, range } => KeyView::Scored(self.by_score(cx, key, range)?),
            KeyQuery::Score { key, member } => KeyView::Score(self.score_of(cx, key, member)?),
            KeyQuery::Rank { key, member, reverse } => {
                KeyView::Rank(self.rank_of(cx, key, member, *reverse)?)
            }
            KeyQuery::FirstHash { keys } => {
                match keys.iter().find(|key| self.collection(cx, key).is_some()) {
                    Some(key) => KeyView::Pairs(self.hash(cx, key)?),
                    None => KeyView::Pairs(Vec::new()),
                }
            }
            KeyQuery::FirstList { keys } => {
                match keys.iter().find(|key| self.collection(cx, key).is_some()) {
                    Some(key) => KeyView::Values(self.list_range(cx, key, 0, -1)?),
                    None => KeyView::Values(Vec::new()),
                }
            }
            KeyQuery::Keys => KeyView::Keys(self.keys(cx)),
        };
        Ok(Reply::Key(view))
    }

    /// Fingerprints of keys: equal as long as nothing changed. Scratch keys have exact versions.
    pub(crate) fn versions(&self, cx: &Cx<'_>, keys: &[Name]) -> Vec<u64> {
        keys.iter().map(|key| self.version(cx, key)).collect()
    }

    fn version(&self, cx: &Cx<'_>, key: &Name) -> u64 {
        if let Some(version) = self.task_version(key) {
            return version;
        }
        if let Some(slot) = self.indexes.keyspace.slot(key.bytes(), cx.clock) {
            return slot.version;
        }
        let mut hasher = DefaultHasher::new();
        match self.collection(cx, key) {
            None => return 0,
            Some(Collection::Zset(index)) => index.iter().for_each(|entry| entry.hash(&mut hasher)),
            Some(Collection::Set(members)) => members.hash(&mut hasher),
            Some(Collection::Hash(pairs)) => format!("{pairs:?}").hash(&mut hasher),
            Some(Collection::List(values)) => format!("{values:?}").hash(&mut hasher),
            Some(Collection::String) => {}
        }
        hasher.finish() | 1
    }

    /// The collection of a key, refused if it is of another type.
    fn of<'a>(&'a self, cx: &Cx<'_>, key: &Name, kind: KeyType) -> Result<Option<Collection<'a>>, Refusal> {
        match self.collection(cx, key) {
            Some(found) if found.kind() != kind => Err(Refusal::WrongType),
            found => Ok(found),
        }
    }

    fn hash(&self, cx: &Cx<'_>, key: &Name) -> Result<Vec<(Name, ViewValue)>, Refusal> {
        Ok(match self.of(cx, key, KeyType::Hash)? {
            Some(Collection::Hash(pairs)) => pairs,
            _ => Vec::new(),
        })
    }

    fn list_range(
        &self,
        cx: &Cx<'_>,
        key: &Name,
        start: i64,
        stop: i64,
    ) -> Result<Vec<Option<ViewValue>>, Refusal> {
        if is_task_list(key) {
            let (skip, take) = crate::RankWindow::Ranks { start, stop }.resolve(self.list_len(key));
            let part = self.list_part(key, skip, take).into_iter();
            return Ok(part.map(|id| Some(ViewValue::Name(id))).collect());
        }
        let Some(Collection::List(values)) = self.of(cx, key, KeyType::List)? else { return Ok(Vec::new()) };
        let (skip, take) = crate::RankWindow::Ranks { start, stop }.resolve(values.len());
        Ok(values.into_iter().skip(skip).take(take).map(Some).collect())
    }

    fn zset<'a>(&'a self, cx: &Cx<'_>, key: &Name) -> Result<Cow<'a, Index>, Refusal> {
        Ok(match self.of(cx, key, KeyType::Zset)? {
            Some(Collection::Zset(index)) => index,
            _ => Cow::Owned(Index::new()),
        })
    }

    fn by_rank(&self, cx: &Cx<'_>, key: &Name, range: RankRange) -> Result<Vec<(Name, f64)>, Refusal> {
        let index = self.zset(cx, key)?;
        let (skip, take) =
            crate::RankWindow::Ranks { start: range.start, stop: range.stop }.resolve(index.len());
        let pair = |(score, name): &(Score, Name)| (name.clone(), score.get());
        Ok(match range.reverse {
            true => index.iter().rev().skip(skip).take(take).map(pair).collect(),
            false => index.iter().skip(skip).take(take).map(pair).collect(),
        })
    }

    fn by_score(&self, cx: &Cx<'_>, key: &Name, range: &ScoreRange) -> Result<Vec<(Name, f64)>, Refusal> {
        let index = self.zset(cx, key)?;
        let inside =
            |(score, name): &(Score, Name)| range.holds(score.get()).then(|| (name.clone(), score.get()));
        let count = range.count.unwrap_or(usize::MAX);
        Ok(match range.reverse {
            true => index.iter().rev().filter_map(inside).skip(range.offset).take(count).collect(),
            false => {
                let from = index.range((Score::new(range.min.value), Name::new(b""))..);
                from.take_while(|(score, _)| score.get() <= range.max.value)
                    .filter_map(inside)
                    .skip(range.offset)
                    .take(count)
                    .collect()
            }
        })
    }

    fn score_of(&self, cx: &Cx<'_>, key: &Name, member: &Name) -> Result<Option<f64>, Refusal> {
        // The indexes of a queue can be long; the job itself knows its score.
        let scheduled =
            key.bytes().strip_prefix(b"blueque_scheduled_tasks_").map(|queue| (queue, Place::Scheduled));
        if let Some((queue, place)) = queue_index(key.bytes()).or(scheduled) {
            let job = self.jobs.get(member).filter(|job| job.place == place && job.queue.bytes() == queue);
            return Ok(job.map(|job| job.score));
        }
        let index = self.zset(cx, key)?;
        Ok(index.iter().find(|(_, name)| name == member).map(|(score, _)| score.get()))
    }

    fn rank_of(
        &self,
        cx: &Cx<'_>,
        key: &Name,
        member: &Name,
        reverse: bool,
    ) -> Result<Option<usize>, Refusal> {
        let index = self.zset(cx, key)?;
        let rank = index.iter().position(|(_, name)| name == member);
        Ok(rank.map(|rank| if reverse { index.len() - 1 - rank } else { rank }))
    }

    pub(crate) fn collection_exists(&self, cx: &Cx<'_>, key: &Name) -> bool {
        self.collection(cx, key).is_some()
    }

    pub(crate) fn collection<'a>(&'a self, cx: &Cx<'_>, key: &Name) -> Option<Collection<'a>> {
        let scratch = self.indexes.keyspace.value(key.bytes(), cx.clock).map(|value| match value {
            Value::String(_) => Collection::String,
            Value::List(list) => Collection::List(list.iter().cloned().map(ViewValue::Name).collect()),
            Value::Hash(pairs) => {
                Collection::Hash(pairs.iter().map(|(k, v)| (k.clone(), ViewValue::Name(v.clone()))).collect())
            }
            Value::Set(members) => Collection::Set(members.iter().cloned().collect()),
            Value::Scored(scores) => Collection::Zset(Cow::Owned(
                scores.iter().map(|(name, score)| (Score::new(*score), name.clone())).collect(),
            )),
        });
        let found = match key.bytes().strip_prefix(b"ql:") {
            Some(rest) => scratch.or_else(|| self.virtual_key(cx, rest)),
            None if crate::is_task_key(key.bytes()) => self.task_collection(key).or(scratch),
            None => scratch,
        };
        found.filter(|found| found.len() > 0)
    }

    /// A key behind `ql:`.
    fn virtual_key<'a>(&'a self, cx: &Cx<'_>, rest: &[u8]) -> Option<Collection<'a>> {
        let indexes = &self.indexes;
        let sorted = |pairs: Vec<(f64, &Name)>| {
            Collection::Zset(Cow::Owned(
                pairs.into_iter().map(|(at, name)| (Score::new(at), name.clone())).collect(),
            ))
        };
        Some(match rest {
            b"config" => Collection::Hash(
                indexes.config.options.iter().map(|(k, v)| (k.clone(), ViewValue::Name(v.clone()))).collect(),
            ),
            b"queues" => sorted(
                indexes.queues.iter().filter_map(|(name, queue)| Some((queue.seen_at?, name))).collect(),
            ),
            b"paused_queues" => {
                let mut paused: Vec<Name> = indexes
                    .queues
                    .iter()
                    .filter(|(_, queue)| queue.paused)
                    .map(|(name, _)| name.clone())
                    .collect();
                paused.sort_unstable();
                Collection::Set(paused)
            }
            b"workers" => sorted(
                indexes.workers.iter().filter_map(|(name, worker)| Some((worker.seen_at?, name))).collect(),
            ),
            b"failures" => Collection::Set(indexes.groups.keys().cloned().collect()),
            b"completed" => Collection::Zset(Cow::Borrowed(&indexes.completed)),
            b"tracked" => sorted(indexes.tracked.iter().map(|(jid, at)| (*at, jid)).collect()),
            b"tags" => sorted(
                indexes.tags.iter().filter_map(|(name, tag)| Some((tag.count? as f64, name))).collect(),
            ),
            _ => return self.named_key(cx, rest),
        })
    }

    /// A key behind `ql:` with a name in it.
    fn named_key<'a>(&'a self, cx: &Cx<'_>, rest: &[u8]) -> Option<Collection<'a>> {
        let indexes = &self.indexes;
        let borrowed = |index: &'a Index| Collection::Zset(Cow::Borrowed(index));
        if let Some(name) = rest.strip_prefix(b"j:") {
            return self.job_key(name);
        }
        if let Some(name) = rest.strip_prefix(b"q:") {
            let (queue, part) = split_suffix(name)?;
            let queue = indexes.queues.get(queue)?;
            return Some(borrowed(match part {
                b"work" => &queue.work,
                b"locks" => &queue.locks,
                b"scheduled" => &queue.scheduled,
                b"depends" => &queue.depends,
                b"recur" => &queue.recurring,
                b"throttled" => &queue.throttled,
                _ => return None,
            }));
        }
        if let Some(name) = rest.strip_prefix(b"w:") {
            return indexes.workers.get(name.strip_suffix(b":jobs")?).map(|worker| borrowed(&worker.jobs));
        }
        if let Some(group) = rest.strip_prefix(b"f:") {
            let jids = indexes.groups.get(group)?;
            return Some(Collection::List(jids.values().rev().cloned().map(ViewValue::Name).collect()));
        }
        if let Some(tag) = rest.strip_prefix(b"t:") {
            return indexes.tags.get(tag).map(|tag| borrowed(&tag.jobs));
        }
        if let Some(jid) = rest.strip_prefix(b"r:") {
            return self.recur_key(jid);
        }
        if let Some(id) = rest.strip_prefix(b"th:") {
            return self.throttle_key(cx, id);
        }
        self.stats_key(rest.strip_prefix(b"s:")?)
    }

    fn job_key(&self, name: &[u8]) -> Option<Collection<'static>> {
        if let Some(job) = self.jobs.get(name) {
            return Some(Collection::Hash(self.job_hash(job)));
        }
        let (jid, part) = split_suffix(name)?;
        let job = self.jobs.get(jid)?;
        let more = job.more.as_deref();
        Some(match part {
            b"history" => Collection::List(job.history.to_vec().into_iter().map(ViewValue::Entry).collect()),
            b"dependents" => Collection::Set(more?.dependents.iter().cloned().collect()),
            b"dependencies" => Collection::Set(more?.dependencies.iter().cloned().collect()),
            _ => return None,
        })
    }

    fn job_hash(&self, job: &Job) -> Vec<(Name, ViewValue)> {
        let view = self.indexes.view(job);
        let expires = match job.state {
            State::Failed => ViewValue::Name(Name::new(b"")),
            _ => ViewValue::Number(job.expires()),
        };
        let mut pairs: Vec<(&str, ViewValue)> = vec![
            ("jid", ViewValue::Name(view.jid)),
            ("klass", ViewValue::Name(view.klass)),
            ("data", ViewValue::Text(view.data)),
            ("priority", ViewValue::Number(view.priority)),
            ("tags", ViewValue::Names(view.tags)),
            ("state", ViewValue::Name(job.state.word().into())),
            ("worker", ViewValue::Name(view.worker)),
            ("expires", expires),
            ("queue", ViewValue::Name(view.queue)),
            ("retries", ViewValue::Number(view.retries)),
            ("remaining", ViewValue::Number(view.remaining)),
            ("time", ViewValue::Moment(job.time)),
        ];
        match view.failure {
            Some(failure) => pairs.push(("failure", ViewValue::Failure(failure))),
            // A completion resets it to an empty object.
            None if job.history.has_done() => {
                pairs.push(("failure", ViewValue::Name("{}".into())));
            }
            None => {}
        }
        if job.flags.has(Flag::Warned) {
            pairs.push(("grace", ViewValue::Number(1.0)));
        }
        if let Some(at) = job.more.as_deref().and_then(|more| more.scheduled) {
            pairs.push(("scheduled", ViewValue::Number(at)));
        }
        if let Some(parent) = view.spawned_from {
            pairs.push(("spawned_from_jid", ViewValue::Name(parent)));
        }
        if job.more.as_deref().is_some_and(|more| !more.throttles.is_empty()) {
            pairs.push(("throttles", ViewValue::Names(view.throttles)));
        }
        pairs.into_iter().map(|(field, value)| (field.into(), value)).collect()
    }

    fn recur_key(&self, jid: &[u8]) -> Option<Collection<'static>> {
        let recur = self.indexes.recurs.get(jid)?;
        let pairs = [
            ("jid", ViewValue::Name(recur.jid.clone())),
            ("klass", ViewValue::Name(recur.klass.clone())),
            ("data", ViewValue::Name(recur.data.clone())),
            ("priority", ViewValue::Number(recur.priority)),
            ("tags", ViewValue::Names(recur.tags.clone())),
            ("state", ViewValue::Name("recur".into())),
            ("queue", ViewValue::Name(recur.queue.clone())),
            ("type", ViewValue::Name("interval".into())),
            ("count", ViewValue::Number(recur.count as f64)),
            ("interval", ViewValue::Number(recur.interval)),
            ("retries", ViewValue::Number(recur.retries)),
            ("backlog", ViewValue::Number(recur.backlog)),
        ];
        Some(Collection::Hash(pairs.into_iter().map(|(field, value)| (field.into(), value)).collect()))
    }

    fn throttle_key<'a>(&'a self, cx: &Cx<'_>, name: &[u8]) -> Option<Collection<'a>> {
        let throttles = &self.indexes.throttles;
        if let Some(found) = throttles.get(name).filter(|found| found.is_defined(cx.clock)) {
            let maximum = ViewValue::Number(found.maximum.unwrap_or(0.0));
            return Some(Collection::Hash(vec![
                ("id".into(), ViewValue::Name(name.into())),
                ("maximum".into(), maximum),
            ]));
        }
        let (id, part) = split_suffix(name)?;
        match part {
            b"locks" => {
                let (id, one) = (id.into(), Score::new(1.0));
                let holders = self.lock_holders(&id).map(|jid| (one, jid.clone()));
                Some(Collection::Zset(Cow::Owned(holders.collect())))
            }
            b"pending" => Some(Collection::Zset(Cow::Borrowed(&throttles.get(id)?.pending))),
            _ => None,
        }
    }

    /// `wait:D:Q`, `run:D:Q`, `stats:D:Q`.
    fn stats_key(&self, rest: &[u8]) -> Option<Collection<'static>> {
        let mut parts = rest.splitn(3, |byte| *byte == b':');
        let (kind, day, queue) = (parts.next()?, parts.next()?, parts.next()?);
        let day = self.indexes.stats.get(&(Score::new(crate::parse_number(day)?), queue.into()))?;
        Some(Collection::Hash(match kind {
            b"wait" => series_hash(&day.wait),
            b"run" => series_hash(&day.run),
            b"stats" => [("failures", day.failures), ("failed", day.failed), ("retries", day.retries)]
                .into_iter()
                .filter_map(|(field, count)| Some((field.into(), ViewValue::Number(count? as f64))))
                .collect(),
            _ => return None,
        }))
    }

    /// How many keys there are.
    pub(crate) fn key_count(&self, cx: &Cx<'_>) -> usize {
        // A job is two keys, its hash and its history; the rest is few.
        let links = |job: &Job| {
            job.more.as_deref().map_or(0, |more| {
                usize::from(!more.dependents.is_empty()) + usize::from(!more.dependencies.is_empty())
            })
        };
        let hash = |job: &Job| usize::from(job.task().is_some_and(|task| !task.fields.is_empty()));
        let jobs: usize = self.jobs.values().map(|job| 2 + links(job) + hash(job)).sum();
        jobs + self.few_keys(cx).len()
    }

    fn keys(&self, cx: &Cx<'_>) -> Vec<Name> {
        let mut keys = self.few_keys(cx);
        for (jid, job) in self.jobs.iter() {
            let mut key = |suffix: &[u8]| keys.push(Name::new(&[b"ql:j:", jid.bytes(), suffix].concat()));
            key(b"");
            key(b"-history");
            if let Some(more) = job.more.as_deref() {
                if !more.dependents.is_empty() {
                    key(b"-dependents");
                }
                if !more.dependencies.is_empty() {
                    key(b"-dependencies");
                }
                if more.task.as_deref().is_some_and(|task| !task.fields.is_empty()) {
                    keys.push(Name::new(&[b"blueque_task_", jid.bytes()].concat()));
                }
            }
        }
        keys.sort_unstable();
        keys
    }

    /// All keys but those of jobs.
    fn few_keys(&self, cx: &Cx<'_>) -> Vec<Name> {
        let indexes = &self.indexes;
        let mut keys: Vec<Name> =
            ["config", "queues", "paused_queues", "workers", "failures", "completed", "tracked", "tags"]
                .iter()
                .map(|name| Name::from(format!("ql:{name}")))
                .collect();
        let mut key = |parts: &[&[u8]]| keys.push(Name::new(&parts.concat()));
        for queue in indexes.queues.keys() {
            for part in ["work", "locks", "scheduled", "depends", "recur", "throttled"] {
                key(&[b"ql:q:", queue.bytes(), b"-", part.as_bytes()]);
            }
            // Where nobody uses throttles, the queues' own are not shown.
            if !indexes.throttles.is_empty() {
                key(&[b"ql:th:", QUEUE_THROTTLE_PREFIX, queue.bytes(), b"-locks"]);
            }
        }
        indexes.workers.keys().for_each(|name| key(&[b"ql:w:", name.bytes(), b":jobs"]));
        indexes.groups.keys().for_each(|name| key(&[b"ql:f:", name.bytes()]));
        indexes.tags.keys().for_each(|name| key(&[b"ql:t:", name.bytes()]));
        indexes.recurs.keys().for_each(|name| key(&[b"ql:r:", name.bytes()]));
        for id in indexes.throttles.keys() {
            key(&[b"ql:th:", id.bytes()]);
            key(&[b"ql:th:", id.bytes(), b"-pending"]);
            key(&[b"ql:th:", id.bytes(), b"-locks"]);
        }
        for (day, queue) in indexes.stats.keys() {
            for kind in ["wait", "run", "stats"] {
                key(&[format!("ql:s:{kind}:{}:", day.get()).as_bytes(), queue.bytes()]);
            }
        }
        keys.extend(indexes.keyspace.slots.keys().cloned());
        keys.extend(self.task_keys());
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.collection(cx, key).is_some());
        keys
    }
}

fn series_hash(series: &Series) -> Vec<(Name, ViewValue)> {
    if series.total == 0.0 {
        return Vec::new();
    }
    let moments = [("total", series.total), ("mean", series.mean), ("vk", series.vk)];
    let mut pairs: Vec<(Name, ViewValue)> =
        moments.into_iter().map(|(field, value)| (field.into(), ViewValue::Number(value))).collect();
    pairs.extend(
        series.sparse().into_iter().map(|(field, count)| (field.into(), ViewValue::Number(count as f64))),
    );
    pairs
}

/// `name-part` at the last dash.
fn split_suffix(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dash = name.iter().rposition(|byte| *byte == b'-')?;
    Some((name.get(..dash)?, name.get(dash + 1..)?))
}

/// The queue and place that `ql:q:Q-part` names, for the parts that hold jobs.
fn queue_index(key: &[u8]) -> Option<(&[u8], Place)> {
    let (queue, part) = split_suffix(key.strip_prefix(b"ql:q:")?)?;
    let place = match part {
        b"work" => Place::Work,
        b"locks" => Place::Locks,
        b"scheduled" => Place::Scheduled,
        b"depends" => Place::Depends,
        b"throttled" => Place::Throttled,
        _ => return None,
    };
    Some((queue, place))
}
