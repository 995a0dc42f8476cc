//! The scratch keyspace: plain Redis values for the few keys that clients keep beside their jobs.
//!
//! Small by intent; each key is one record. Queue patterns (`ql:qp:*`, the old `qmore:*`) live here too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{Name, Refusal, ScoreRange};

/// What a scratch key holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// A string.
    String(Name),
    /// A list.
    List(VecDeque<Name>),
    /// A hash, in order of insertion.
    Hash(Vec<(Name, Name)>),
    /// A set.
    Set(BTreeSet<Name>),
    /// Scores of members.
    Scored(BTreeMap<Name, f64>),
}

/// A scratch key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slot {
    pub(crate) value: Value,
    /// Server time at which it ends.
    pub(crate) ends_at: Option<f64>,
    /// Changes with every write, for watching.
    pub(crate) version: u64,
}

/// A command on the scratch keyspace.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum KeyCommand {
    /// -> `Text`
    Get { key: Name },
    /// -> `Ok`, or `Nil` if the condition did not hold.
    Set { key: Name, value: Name, ttl: Option<f64>, only_if: Option<bool> },
    /// -> `Int`
    Del { keys: Vec<Name> },
    /// -> `Int`, the length.
    Push { key: Name, values: Vec<Name>, left: bool },
    /// The first key with an element gives it. -> `Popped` or `Nil`
    Pop { keys: Vec<Name>, left: bool },
    /// -> `Int`, new fields.
    HashSet { key: Name, pairs: Vec<(Name, Name)> },
    /// Replaces the whole hash; empty removes it. -> `Ok`
    HashReplace { key: Name, pairs: Vec<(Name, Name)>, also_remove: Name },
    /// Replaces the whole list; empty removes it. -> `Ok`
    ListReplace { key: Name, values: Vec<Name>, also_remove: Name },
    /// -> `Seconds`: -1 no end, -2 no key.
    Ttl { key: Name },
    /// -> `Int`
    Expire { key: Name, seconds: f64 },
}

/// What a keyspace command answers.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum KeyAnswer {
    /// Done.
    Ok,
    /// Nothing there.
    Nil,
    /// A count.
    Int(i64),
    /// A value.
    Text(Name),
    /// Which key gave which value.
    Popped(Name, Name),
    /// A span of time.
    Seconds(f64),
    /// A score.
    Score(f64),
}

/// All scratch keys of a tenant.
#[derive(Default, Debug)]
pub(crate) struct Keyspace {
    pub(crate) slots: BTreeMap<Name, Slot>,
    version: u64,
}

/// Which keys a command changed.
pub(crate) type Touched = Vec<Name>;

impl Keyspace {
    /// The value under a key that has not ended.
    pub(crate) fn value(&self, key: &[u8], clock: f64) -> Option<&Value> {
        self.slot(key, clock).map(|slot| &slot.value)
    }

    pub(crate) fn slot(&self, key: &[u8], clock: f64) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| slot.ends_at.is_none_or(|end| end > clock))
    }

    pub(crate) fn adopt(&mut self, key: Name, slot: Slot) {
        self.version = self.version.max(slot.version);
        self.slots.insert(key, slot);
    }

    /// Does a command; says which keys changed.
    pub(crate) fn apply(&mut self, command: KeyCommand, clock: f64) -> Result<(KeyAnswer, Touched), Refusal> {
        match command {
            KeyCommand::Get { key } => match self.value(key.bytes(), clock) {
                None => Ok((KeyAnswer::Nil, vec![])),
                Some(Value::String(text)) => Ok((KeyAnswer::Text(text.clone()), vec![])),
                Some(_) => Err(Refusal::WrongType),
            },
            KeyCommand::Set { key, value, ttl, only_if } => {
                let there = self.slot(key.bytes(), clock).is_some();
                if only_if.is_some_and(|wanted| wanted != there) {
                    return Ok((KeyAnswer::Nil, vec![]));
                }
                self.write(key.clone(), Value::String(value), ttl.map(|ttl| clock + ttl));
                Ok((KeyAnswer::Ok, vec![key]))
            }
            KeyCommand::Del { keys } => Ok(self.delete(keys, clock)),
            KeyCommand::Push { key, values, left } => self.push(key, values, left, clock),
            KeyCommand::Pop { keys, left } => self.pop(&keys, left, clock),
            KeyCommand::HashSet { key, pairs } => self.hash_set(key, pairs, clock),
            KeyCommand::HashReplace { key, pairs, also_remove } => {
                let value = (!pairs.is_empty()).then_some(Value::Hash(pairs));
                Ok(self.replace(key, value, also_remove))
            }
            KeyCommand::ListReplace { key, values, also_remove } => {
                let value = (!values.is_empty()).then(|| Value::List(values.into()));
                Ok(self.replace(key, value, also_remove))
            }
            KeyCommand::Ttl { key } => Ok((KeyAnswer::Seconds(self.ttl(&key, clock)), vec![])),
            KeyCommand::Expire { key, seconds } => Ok(self.expire(key, seconds, clock)),
        }
    }

    fn write(&mut self, key: Name, value: Value, ends_at: Option<f64>) {
        self.version += 1;
        let version = self.version;
        self.slots.insert(key, Slot { value, ends_at, version });
    }

    fn replace(&mut self, key: Name, value: Option<Value>, also_remove: Name) -> (KeyAnswer, Touched) {
        self.slots.remove(&also_remove);
        match value {
            Some(value) => self.write(key.clone(), value, None),
            None => drop(self.slots.remove(&key)),
        }
        (KeyAnswer::Ok, vec![key, also_remove])
    }

    fn delete(&mut self, keys: Vec<Name>, clock: f64) -> (KeyAnswer, Touched) {
        let mut removed = 0;
        for key in &keys {
            let there = self.slot(key.bytes(), clock).is_some();
            self.slots.remove(key);
            removed += i64::from(there);
        }
        (KeyAnswer::Int(removed), keys)
    }

    fn push(
        &mut self,
        key: Name,
        values: Vec<Name>,
        left: bool,
        clock: f64,
    ) -> Result<(KeyAnswer, Touched), Refusal> {
        let (mut list, ends_at) = match self.slot(key.bytes(), clock) {
            None => (VecDeque::new(), None),
            Some(Slot { value: Value::List(list), ends_at, .. }) => (list.clone(), *ends_at),
            Some(_) => return Err(Refusal::WrongType),
        };
        for value in values {
            if left { list.push_front(value) } else { list.push_back(value) }
        }
        let len = list.len() as i64;
        self.write(key.clone(), Value::List(list), ends_at);
        Ok((KeyAnswer::Int(len), vec![key]))
    }

    fn pop(&mut self, keys: &[Name], left: bool, clock: f64) -> Result<(KeyAnswer, Touched), Refusal> {
        for key in keys {
            match self.slot(key.bytes(), clock).map(|slot| &slot.value) {
                None => continue,
                Some(Value::List(_)) => {}
                Some(_) => return Err(Refusal::WrongType),
            }
            let Some(Slot { value: Value::List(list), version, .. }) = self.slots.get_mut(key) else {
                continue;
            };
            let taken = if left { list.pop_front() } else { list.pop_back() };
            self.version += 1;
            *version = self.version;
            if list.is_empty() {
                self.slots.remove(key);
            }
            if let Some(value) = taken {
                return Ok((KeyAnswer::Popped(key.clone(), value), vec![key.clone()]));
            }
        }
        Ok((KeyAnswer::Nil, vec![]))
    }

    fn hash_set(
        &mut self,
        key: Name,
        pairs: Vec<(Name, Name)>,
        clock: f64,
    ) -> Result<(KeyAnswer, Touched), Refusal> {
        let (mut fields, ends_at) = match self.slot(key.bytes(), clock) {
            None => (Vec::new(), None),
            Some(Slot { value: Value::Hash(fields), ends_at, .. }) => (fields.clone(), *ends_at),
            Some(_) => return Err(Refusal::WrongType),
        };
        let mut added = 0;
        for (field, value) in pairs {
            match fields.iter_mut().find(|(name, _)| *name == field) {
                Some((_, old)) => *old = value,
                None => {
                    fields.push((field, value));
                    added += 1;
                }
            }
        }
        self.write(key.clone(), Value::Hash(fields), ends_at);
        Ok((KeyAnswer::Int(added), vec![key]))
    }

    fn ttl(&self, key: &Name, clock: f64) -> f64 {
        match self.slot(key.bytes(), clock) {
            None => -2.0,
            Some(slot) => slot.ends_at.map_or(-1.0, |end| end - clock),
        }
    }

    fn expire(&mut self, key: Name, seconds: f64, clock: f64) -> (KeyAnswer, Touched) {
        if self.slot(key.bytes(), clock).is_none() {
            return (KeyAnswer::Int(0), vec![]);
        }
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.ends_at = Some(clock + seconds);
        }
        (KeyAnswer::Int(1), vec![key])
    }

    /// A version no key has had.
    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// A version that is in use.
    pub(crate) fn saw_version(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Everything went; versions are not used again.
    pub(crate) fn go_on_from(&mut self, old: &Keyspace) {
        self.version = old.version;
    }

    /// Whether a set holds a member.
    pub(crate) fn has(&self, key: &Name, member: &Name) -> bool {
        matches!(self.slots.get(key), Some(Slot { value: Value::Set(set), .. }) if set.contains(member))
    }

    /// The members of a set.
    pub(crate) fn members(&self, key: &Name) -> Vec<Name> {
        match self.slots.get(key).map(|slot| &slot.value) {
            Some(Value::Set(set)) => set.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The entries of a list.
    pub(crate) fn entries(&self, key: &Name) -> Vec<Name> {
        match self.slots.get(key).map(|slot| &slot.value) {
            Some(Value::List(list)) => list.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Takes a member out of a set; says whether it was there.
    pub(crate) fn remove_member(&mut self, key: &Name, member: &Name) -> bool {
        let removed = self.change(key, |value| match value {
            Value::Set(set) => Ok(usize::from(set.remove(member))),
            _ => Ok(0),
        });
        removed.is_ok_and(|count| count > 0)
    }

    pub(crate) fn add_members(&mut self, key: &Name, members: &[Name]) -> Result<usize, Refusal> {
        self.make(key, || Value::Set(BTreeSet::new()));
        self.change(key, |value| match value {
            Value::Set(set) => Ok(members.iter().filter(|member| set.insert((*member).clone())).count()),
            _ => Err(Refusal::WrongType),
        })
    }

    /// The new members.
    pub(crate) fn set_scores(&mut self, key: &Name, members: &[(f64, Name)]) -> Result<usize, Refusal> {
        self.make(key, || Value::Scored(BTreeMap::new()));
        let mut added = 0;
        self.change(key, |value| match value {
            Value::Scored(scores) => Ok(members
                .iter()
                .filter(|(score, member)| {
                    let old = scores.insert(member.clone(), *score);
                    added += i64::from(old.is_none());
                    old != Some(*score)
                })
                .count()),
            _ => Err(Refusal::WrongType),
        })?;
        Ok(usize::try_from(added).unwrap_or(0))
    }

    pub(crate) fn score(&self, key: &Name, member: &Name) -> Result<Option<f64>, Refusal> {
        match self.slots.get(key).map(|slot| &slot.value) {
            None => Ok(None),
            Some(Value::Scored(scores)) => Ok(scores.get(member).copied()),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    pub(crate) fn remove_scores(&mut self, key: &Name, members: &[Name]) -> Result<usize, Refusal> {
        self.change(key, |value| match value {
            Value::Scored(scores) => {
                Ok(members.iter().filter(|member| scores.remove(*member).is_some()).count())
            }
            _ => Err(Refusal::WrongType),
        })
    }

    pub(crate) fn remove_score_range(&mut self, key: &Name, range: &ScoreRange) -> Result<usize, Refusal> {
        self.change(key, |value| match value {
            Value::Scored(scores) => {
                let before = scores.len();
                scores.retain(|_, score| !range.holds(*score));
                Ok(before - scores.len())
            }
            _ => Err(Refusal::WrongType),
        })
    }

    pub(crate) fn remove_from_list(
        &mut self,
        key: &Name,
        count: i64,
        wanted: &Name,
    ) -> Result<usize, Refusal> {
        let limit =
            if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
        self.change(key, |value| {
            let Value::List(list) = value else { return Err(Refusal::WrongType) };
            let places: Vec<usize> = (0..list.len()).filter(|at| list.get(*at) == Some(wanted)).collect();
            let skipped = if count < 0 { places.len().saturating_sub(limit) } else { 0 };
            let gone: Vec<usize> = places.into_iter().skip(skipped).take(limit).collect();
            for at in gone.iter().rev() {
                list.remove(*at);
            }
            Ok(gone.len())
        })
    }

    /// A key that has ended is not there.
    pub(crate) fn drop_ended(&mut self, key: &Name, clock: f64) {
        if self.slots.get(key).and_then(|slot| slot.ends_at).is_some_and(|end| end <= clock) {
            self.slots.remove(key);
        }
    }

    fn make(&mut self, key: &Name, value: impl FnOnce() -> Value) {
        if !self.slots.contains_key(key) {
            self.slots.insert(key.clone(), Slot { value: value(), ends_at: None, version: 0 });
        }
    }

    /// Changes a value in place; `change` says how many changes it made. A key that is not there is not changed, one
    /// left empty goes.
    fn change(
        &mut self,
        key: &Name,
        change: impl FnOnce(&mut Value) -> Result<usize, Refusal>,
    ) -> Result<usize, Refusal> {
        let Some(slot) = self.slots.get_mut(key) else { return Ok(0) };
        let changes = change(&mut slot.value)?;
        if changes > 0 {
            self.version += 1;
            slot.version = self.version;
        }
        if slot.value.is_empty() {
            self.slots.remove(key);
        }
        Ok(changes)
    }
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Value::String(_) => false,
            Value::List(list) => list.is_empty(),
            Value::Hash(fields) => fields.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::Scored(scores) => scores.is_empty(),
        }
    }
}
