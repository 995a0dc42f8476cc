//! The keys as clients see them (chapter 4), and the scratch keys beside them. Since the model's state has the layout
//! of Redis, most of this is looking a key up. The fields of job hashes are left to the job views.

use haul_engine::{KeyAnswer, KeyCommand, KeyQuery, KeyType, Name, RankWindow, Refusal, ScoreRange, Value};

use super::list::window;
use super::{Cx, Outcome, Tenant};
use crate::answer::{Answer, is_own_lock_set};

impl Tenant {
    pub(super) fn key(&self, cx: &Cx, query: &KeyQuery) -> Outcome {
        Ok(match query {
            KeyQuery::Type { key } => Answer::KeyType(self.kind(cx, key)),
            KeyQuery::Exist { keys } => {
                Answer::KeyCount(keys.iter().filter(|key| self.kind(cx, key) != KeyType::None).count())
            }
            KeyQuery::Length { key, kind } => {
                self.expect(cx, key, *kind)?;
                match kind {
                    KeyType::Zset => Answer::KeyCount(self.zcard(key.bytes())),
                    KeyType::Set => Answer::KeyCount(self.set_members(key).len()),
                    _ => Answer::Unchecked,
                }
            }
            KeyQuery::Set { key } => {
                self.expect(cx, key, KeyType::Set)?;
                Answer::Names(self.set_members(key))
            }
            KeyQuery::Ranks { key, range } => {
                self.expect(cx, key, KeyType::Zset)?;
                let mut order = self.members(key.bytes());
                if range.reverse {
                    order.reverse();
                }
                let shown = window(&order, RankWindow::Ranks { start: range.start, stop: range.stop });
                Answer::KeyScored(self.scored(key, shown))
            }
            KeyQuery::Scores { key, range } => {
                self.expect(cx, key, KeyType::Zset)?;
                Answer::KeyScored(self.by_score(key, range))
            }
            KeyQuery::Score { key, member } => {
                self.expect(cx, key, KeyType::Zset)?;
                Answer::KeyScore(self.zscore(key.bytes(), member))
            }
            KeyQuery::Rank { key, member, reverse } => {
                self.expect(cx, key, KeyType::Zset)?;
                let mut order = self.members(key.bytes());
                if *reverse {
                    order.reverse();
                }
                Answer::KeyRank(order.iter().position(|other| other == member))
            }
            KeyQuery::Keys => {
                let mut keys = self.all_keys(cx);
                keys.retain(|key| !is_own_lock_set(key));
                Answer::Keys(keys)
            }
            KeyQuery::Hash { .. }
            | KeyQuery::Fields { .. }
            | KeyQuery::List { .. }
            | KeyQuery::FirstHash { .. }
            | KeyQuery::FirstList { .. } => Answer::Unchecked,
        })
    }

    fn scored(&self, key: &Name, members: Vec<Name>) -> Vec<(Name, f64)> {
        let score = |member: Name| {
            let score = self.zscore(key.bytes(), &member)?;
            Some((member, score))
        };
        members.into_iter().filter_map(score).collect()
    }

    fn by_score(&self, key: &Name, range: &ScoreRange) -> Vec<(Name, f64)> {
        let above =
            |score: f64| score > range.min.value || (score == range.min.value && !range.min.exclusive);
        let below =
            |score: f64| score < range.max.value || (score == range.max.value && !range.max.exclusive);
        let mut inside: Vec<(f64, Name)> = self
            .zrange(key.bytes())
            .into_iter()
            .filter(|(score, _)| above(*score) && below(*score))
            .collect();
        if range.reverse {
            inside.reverse();
        }
        let taken = inside.into_iter().skip(range.offset).take(range.count.unwrap_or(usize::MAX));
        taken.map(|(score, member)| (member, score)).collect()
    }

    /// The failure groups are a set of names beside their lists.
    fn set_members(&self, key: &Name) -> Vec<Name> {
        if key.bytes() == b"ql:failures" {
            let groups = self.lists.keys().filter_map(|key| key.strip_prefix(b"ql:f:"));
            return groups.map(Name::new).collect();
        }
        self.smembers(key.bytes())
    }

    fn kind(&self, cx: &Cx, key: &Name) -> KeyType {
        if let Some(value) = self.scratch_value(cx, key) {
            return match value {
                Value::String(_) => KeyType::String,
                Value::List(_) => KeyType::List,
                Value::Hash(_) => KeyType::Hash,
                Value::Set(_) => KeyType::Set,
                Value::Scored(_) => KeyType::Zset,
            };
        }
        let bytes = key.bytes();
        let is_hash = || self.all_keys(cx).contains(key);
        match bytes {
            _ if self.zsets.contains_key(bytes) => KeyType::Zset,
            _ if !self.set_members(key).is_empty() => KeyType::Set,
            _ if self.lists.contains_key(bytes) => KeyType::List,
            _ if bytes.starts_with(b"ql:j:") && bytes.ends_with(b"-history") && is_hash() => KeyType::List,
            _ if is_hash() => KeyType::Hash,
            _ => KeyType::None,
        }
    }

    fn expect(&self, cx: &Cx, key: &Name, kind: KeyType) -> Result<(), Refusal> {
        let found = self.kind(cx, key);
        if found == kind || found == KeyType::None { Ok(()) } else { Err(Refusal::WrongType) }
    }

    fn all_keys(&self, cx: &Cx) -> Vec<Name> {
        let collections = self.zsets.keys().chain(self.sets.keys()).chain(self.lists.keys());
        let mut keys: Vec<Name> = collections.map(|key| Name::new(key)).collect();
        if keys.iter().any(|key| key.bytes().starts_with(b"ql:f:")) {
            keys.push("ql:failures".into());
        }
        if !self.config.is_empty() {
            keys.push("ql:config".into());
        }
        for job in &self.jobs {
            keys.push(format!("ql:j:{}", job.jid).into());
            keys.push(format!("ql:j:{}-history", job.jid).into());
        }
        keys.extend(self.recurs.iter().map(|recur| format!("ql:r:{}", recur.jid).into()));
        let defined = self.throttles.keys().filter(|id| self.defined(cx, id).is_some());
        keys.extend(defined.map(|id| format!("ql:th:{id}").into()));
        for ((day, queue), stats) in &self.days {
            let counted = [stats.failures, stats.failed, stats.retries].iter().any(Option::is_some);
            let kinds =
                [("wait", !stats.wait.is_empty()), ("run", !stats.run.is_empty()), ("stats", counted)];
            let there = kinds.iter().filter(|(_, there)| *there);
            keys.extend(there.map(|(kind, _)| format!("ql:s:{kind}:{day}:{queue}").into()));
        }
        keys.extend(self.scratch.keys().filter(|key| self.scratch_value(cx, key).is_some()).cloned());
        keys.sort();
        keys
    }

    fn scratch_value(&self, cx: &Cx, key: &Name) -> Option<&Value> {
        let (value, ends_at) = self.scratch.get(key)?;
        ends_at.is_none_or(|end| end > cx.clock).then_some(value)
    }

    pub(super) fn keyspace(&mut self, cx: &Cx, command: &KeyCommand) -> Outcome {
        // What has ended is gone before anything looks.
        self.scratch.retain(|_, (_, ends_at)| ends_at.is_none_or(|end| end > cx.clock));
        self.keyspace_answer(cx, command).map(Answer::Keyspace)
    }

    fn keyspace_answer(&mut self, cx: &Cx, command: &KeyCommand) -> Result<KeyAnswer, Refusal> {
        match command {
            KeyCommand::Get { key } => match self.scratch.get(key) {
                None if self.kind(cx, key) != KeyType::None => Err(Refusal::WrongType),
                None => Ok(KeyAnswer::Nil),
                Some((Value::String(text), _)) => Ok(KeyAnswer::Text(text.clone())),
                Some(_) => Err(Refusal::WrongType),
            },
            KeyCommand::Set { key, value, ttl, only_if } => {
                if only_if.is_some_and(|wanted| wanted != self.scratch.contains_key(key)) {
                    return Ok(KeyAnswer::Nil);
                }
                let ends_at = ttl.map(|ttl| cx.clock + ttl);
                self.scratch.insert(key.clone(), (Value::String(value.clone()), ends_at));
                Ok(KeyAnswer::Ok)
            }
            KeyCommand::Del { keys } => {
                let removed = keys.iter().filter(|key| self.scratch.remove(*key).is_some()).count();
                Ok(KeyAnswer::Int(removed as i64))
            }
            KeyCommand::Push { key, values, left } => self.push(key, values, *left),
            KeyCommand::Pop { keys, left } => self.pop_key(keys, *left),
            KeyCommand::HashSet { key, pairs } => self.hash_set(key, pairs),
            KeyCommand::HashReplace { key, pairs, also_remove } => {
                self.replace(key, also_remove, (!pairs.is_empty()).then(|| Value::Hash(pairs.clone())))
            }
            KeyCommand::ListReplace { key, values, also_remove } => self.replace(
                key,
                also_remove,
                (!values.is_empty()).then(|| Value::List(values.clone().into())),
            ),
            KeyCommand::Ttl { key } => Ok(KeyAnswer::Seconds(match self.scratch.get(key) {
                None => -2.0,
                Some((_, None)) => -1.0,
                Some((_, Some(end))) => end - cx.clock,
            })),
            KeyCommand::Expire { key, seconds } => match self.scratch.get_mut(key) {
                None => Ok(KeyAnswer::Int(0)),
                Some((_, ends_at)) => {
                    *ends_at = Some(cx.clock + seconds);
                    Ok(KeyAnswer::Int(1))
                }
            },
        }
    }

    fn replace(
        &mut self,
        key: &Name,
        also_remove: &Name,
        value: Option<Value>,
    ) -> Result<KeyAnswer, Refusal> {
        self.scratch.remove(also_remove);
        self.scratch.remove(key);
        if let Some(value) = value {
            self.scratch.insert(key.clone(), (value, None));
        }
        Ok(KeyAnswer::Ok)
    }

    fn push(&mut self, key: &Name, values: &[Name], left: bool) -> Result<KeyAnswer, Refusal> {
        let slot = self.scratch.entry(key.clone()).or_insert_with(|| (Value::List([].into()), None));
        let (Value::List(list), _) = slot else { return Err(Refusal::WrongType) };
        for value in values {
            if left { list.push_front(value.clone()) } else { list.push_back(value.clone()) }
        }
        Ok(KeyAnswer::Int(list.len() as i64))
    }

    fn pop_key(&mut self, keys: &[Name], left: bool) -> Result<KeyAnswer, Refusal> {
        for key in keys {
            let Some((value, _)) = self.scratch.get_mut(key) else { continue };
            let Value::List(list) = value else { return Err(Refusal::WrongType) };
            let taken = if left { list.pop_front() } else { list.pop_back() };
            if list.is_empty() {
                self.scratch.remove(key);
            }
            if let Some(value) = taken {
                return Ok(KeyAnswer::Popped(key.clone(), value));
            }
        }
        Ok(KeyAnswer::Nil)
    }

    fn hash_set(&mut self, key: &Name, pairs: &[(Name, Name)]) -> Result<KeyAnswer, Refusal> {
        let slot = self.scratch.entry(key.clone()).or_insert_with(|| (Value::Hash(Vec::new()), None));
        let (Value::Hash(fields), _) = slot else { return Err(Refusal::WrongType) };
        let before = fields.len();
        for (field, value) in pairs {
            match fields.iter_mut().find(|(name, _)| name == field) {
                Some((_, old)) => *old = value.clone(),
                None => fields.push((field.clone(), value.clone())),
            }
        }
        Ok(KeyAnswer::Int((fields.len() - before) as i64))
    }
}
