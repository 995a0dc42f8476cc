//! The little of Redis the model stands on: sorted sets, sets and lists under key names; what is empty is not there.

use std::collections::BTreeMap;

use haul_engine::{Name, QUEUE_THROTTLE_PREFIX};

use super::Tenant;

/// A sorted set: members with scores, sorted when asked.
pub(super) type Zset = BTreeMap<Name, f64>;

/// `ql:q:Q-part`
pub(super) fn queue(queue: &Name, part: &str) -> Vec<u8> {
    [b"ql:q:", queue.bytes(), b"-", part.as_bytes()].concat()
}

/// `ql:w:W:jobs`
pub(super) fn worker(worker: &Name) -> Vec<u8> {
    [b"ql:w:", worker.bytes(), b":jobs"].concat()
}

/// `ql:t:T`
pub(super) fn tag(tag: &Name) -> Vec<u8> {
    [b"ql:t:", tag.bytes()].concat()
}

/// `ql:f:G`
pub(super) fn group(group: &Name) -> Vec<u8> {
    [b"ql:f:", group.bytes()].concat()
}

/// `ql:j:J-part`
pub(super) fn job(jid: &Name, part: &str) -> Vec<u8> {
    [b"ql:j:", jid.bytes(), b"-", part.as_bytes()].concat()
}

/// `ql:th:T-part`
pub(super) fn throttle(id: &Name, part: &str) -> Vec<u8> {
    [b"ql:th:", id.bytes(), b"-", part.as_bytes()].concat()
}

/// The id of a queue's own throttle.
pub(super) fn queue_throttle(queue: &Name) -> Name {
    Name::new(&[QUEUE_THROTTLE_PREFIX, queue.bytes()].concat())
}

impl Tenant {
    /// True: the member is new.
    pub(super) fn zadd(&mut self, key: &[u8], score: f64, member: &Name) -> bool {
        let score = if score == 0.0 { 0.0 } else { score };
        self.zsets.entry(key.to_vec()).or_default().insert(member.clone(), score).is_none()
    }

    /// True: it was there.
    pub(super) fn zrem(&mut self, key: &[u8], member: &Name) -> bool {
        let Some(zset) = self.zsets.get_mut(key) else { return false };
        let there = zset.remove(member).is_some();
        if zset.is_empty() {
            self.zsets.remove(key);
        }
        there
    }

    pub(super) fn zscore(&self, key: &[u8], member: &Name) -> Option<f64> {
        self.zsets.get(key)?.get(member).copied()
    }

    pub(super) fn zcard(&self, key: &[u8]) -> usize {
        self.zsets.get(key).map_or(0, Zset::len)
    }

    /// All, ascending by (score, member).
    pub(super) fn zrange(&self, key: &[u8]) -> Vec<(f64, Name)> {
        let members = self.zsets.get(key).into_iter().flatten();
        let mut sorted: Vec<(f64, Name)> = members.map(|(member, score)| (*score, member.clone())).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        sorted
    }

    /// Those with a score in `min..=max`, ascending.
    pub(super) fn zrangebyscore(&self, key: &[u8], min: f64, max: f64) -> Vec<Name> {
        let all = self.zrange(key).into_iter();
        all.filter(|(score, _)| min <= *score && *score <= max).map(|(_, member)| member).collect()
    }

    /// The members, ascending.
    pub(super) fn members(&self, key: &[u8]) -> Vec<Name> {
        self.zrange(key).into_iter().map(|(_, member)| member).collect()
    }

    pub(super) fn sadd(&mut self, key: &[u8], member: &Name) {
        self.sets.entry(key.to_vec()).or_default().insert(member.clone());
    }

    pub(super) fn srem(&mut self, key: &[u8], member: &Name) {
        if let Some(set) = self.sets.get_mut(key) {
            set.remove(member);
            if set.is_empty() {
                self.sets.remove(key);
            }
        }
    }

    pub(super) fn smembers(&self, key: &[u8]) -> Vec<Name> {
        self.sets.get(key).into_iter().flatten().cloned().collect()
    }

    /// At the head.
    pub(super) fn lpush(&mut self, key: &[u8], member: &Name) {
        self.lists.entry(key.to_vec()).or_default().insert(0, member.clone());
    }

    pub(super) fn lrem(&mut self, key: &[u8], member: &Name) {
        if let Some(list) = self.lists.get_mut(key) {
            list.retain(|other| other != member);
            if list.is_empty() {
                self.lists.remove(key);
            }
        }
    }

    pub(super) fn lrange(&self, key: &[u8]) -> Vec<Name> {
        self.lists.get(key).cloned().unwrap_or_default()
    }
}
