//! Tags (7.15) and tracking (7.16).

use haul_engine::{Event, Name, RankWindow};

use super::list::window;
use super::redis;
use super::{Cx, Outcome, Tenant, Twist};
use crate::answer::Answer;

impl Tenant {
    /// One more use.
    pub(super) fn index_tag(&mut self, cx: &Cx, jid: &Name, tag: &Name) {
        let new = self.zadd(&redis::tag(tag), cx.now, jid);
        if new || cx.twist != Some(Twist::TagCountedOnce) {
            let count = self.zscore(b"ql:tags", tag).unwrap_or(0.0);
            self.zadd(b"ql:tags", count + 1.0, tag);
        }
    }

    /// One use less; where the dialect says so, a tag without jobs is forgotten.
    fn unindex_tag(&mut self, cx: &Cx, jid: &Name, tag: &Name) {
        self.zrem(&redis::tag(tag), jid);
        if cx.rules.unused_tags_forgotten && self.zcard(&redis::tag(tag)) == 0 {
            self.zrem(b"ql:tags", tag);
        } else {
            let count = self.zscore(b"ql:tags", tag).unwrap_or(0.0);
            self.zadd(b"ql:tags", count - 1.0, tag);
        }
    }

    /// All tags of a job leave the index; those of the older API were never in it.
    pub(super) fn unindex_tags(&mut self, cx: &Cx, jid: &Name) {
        let Some(job) = self.find(jid) else { return };
        let indexed = job.tags.iter().filter(|tag| self.zscore(&redis::tag(tag), jid).is_some());
        let indexed: Vec<Name> = indexed.cloned().collect();
        indexed.iter().for_each(|tag| self.unindex_tag(cx, jid, tag));
    }

    pub(super) fn tag(&mut self, cx: &Cx, jid: &Name, tags: &[Name]) -> Outcome {
        let mut all = self.job(jid)?.tags;
        for tag in tags {
            if !all.contains(tag) {
                all.push(tag.clone());
            }
            self.index_tag(cx, jid, tag);
        }
        self.edit(jid, |job| job.tags = all.clone());
        Ok(Answer::Names(all))
    }

    pub(super) fn untag(&mut self, cx: &Cx, jid: &Name, tags: &[Name]) -> Outcome {
        let mut all = self.job(jid)?.tags;
        for tag in tags {
            all.retain(|other| other != tag);
            self.unindex_tag(cx, jid, tag);
        }
        self.edit(jid, |job| job.tags = all.clone());
        Ok(Answer::Names(all))
    }

    pub(super) fn tagged(&self, tag: &Name, range: RankWindow) -> Answer {
        let all = self.members(&redis::tag(tag));
        Answer::Page { total: all.len(), jids: window(&all, range) }
    }

    pub(super) fn top_tags(&self, offset: usize, count: Option<usize>) -> Answer {
        let mut best = self.zrangebyscore(b"ql:tags", 2.0, f64::INFINITY);
        best.reverse();
        Answer::Names(window(&best, RankWindow::Limit { offset, count }))
    }

    pub(super) fn track(&mut self, cx: &mut Cx, jid: &Name) -> Outcome {
        self.job(jid)?;
        cx.emit(Event::Track { jid: jid.clone() });
        Ok(Answer::Bool(self.zadd(b"ql:tracked", cx.now, jid)))
    }

    pub(super) fn untrack(&mut self, cx: &mut Cx, jid: &Name) -> Answer {
        cx.emit(Event::Untrack { jid: jid.clone() });
        Answer::Bool(self.zrem(b"ql:tracked", jid))
    }

    pub(super) fn tracked(&self) -> Answer {
        let all = self.members(b"ql:tracked");
        let expired = all.iter().filter(|jid| self.find(jid).is_none()).cloned().collect();
        Answer::Tracked { jobs: self.views(&all), expired }
    }
}
