//! Tags on jobs, and the jobs of a tag.

use hashbrown::{HashMap, HashSet};

use super::{Answer, job_mut};
use crate::job::Tagged;
use crate::tenant::{Cx, Tenant};
use crate::{Kind, Name, RankWindow, Reply};

/// Each tag with when its first use on the job was indexed. A map, because a job may be given tags without number.
fn first_uses(tags: &[Tagged]) -> HashMap<Name, Option<f64>> {
    tags.iter().rev().map(|tagged| (tagged.tag.clone(), tagged.at)).collect()
}

impl Tenant {
    /// Every argument counts as one more use, new on the job or not.
    pub(super) fn tag(&mut self, cx: &mut Cx<'_>, jid: &Name, tags: &[Name]) -> Answer {
        let job = job_mut(&mut self.jobs, jid)?;
        let mut at = first_uses(job.tags());
        for tag in tags {
            let tag = self.indexes.names.shared(tag.bytes());
            let old = at.insert(tag.clone(), Some(cx.now));
            if old.is_none() {
                job.more().tags.push(Tagged { tag: tag.clone(), at: Some(cx.now) });
            }
            self.indexes.index_tag(&tag, jid, old.flatten(), cx.now);
        }
        if let Some(more) = job.more.as_deref_mut() {
            let given: HashSet<&Name> = tags.iter().collect();
            let again = more.tags.iter_mut().filter(|tagged| given.contains(&tagged.tag));
            again.for_each(|tagged| tagged.at = Some(cx.now));
        }
        self.indexes.mark(job);
        cx.tell_tags(Kind::Tagged, job, tags);
        Ok(Reply::Names(job.tags().iter().map(|tagged| tagged.tag.clone()).collect()))
    }

    /// Every argument counts as one use less, whether the job had it or not.
    pub(super) fn untag(&mut self, cx: &mut Cx<'_>, jid: &Name, tags: &[Name]) -> Answer {
        let job = job_mut(&mut self.jobs, jid)?;
        let mut at = first_uses(job.tags());
        for tag in tags {
            self.indexes.unindex_tag(cx, tag, jid, at.remove(tag).flatten());
        }
        if let Some(more) = job.more.as_deref_mut() {
            let given: HashSet<&Name> = tags.iter().collect();
            more.tags.retain(|tagged| !given.contains(&tagged.tag));
        }
        self.indexes.mark(job);
        cx.tell_tags(Kind::Untagged, job, tags);
        Ok(Reply::Names(job.tags().iter().map(|tagged| tagged.tag.clone()).collect()))
    }

    pub(super) fn tagged(&self, tag: &Name, range: RankWindow) -> Reply {
        let Some(tag) = self.indexes.tags.get(tag) else { return Reply::Page { total: 0, jids: Vec::new() } };
        let (skip, take) = range.resolve(tag.jobs.len());
        let jids = tag.jobs.iter().skip(skip).take(take).map(|(_, jid)| jid.clone()).collect();
        Reply::Page { total: tag.jobs.len(), jids }
    }

    pub(super) fn top_tags(&self, offset: usize, count: Option<usize>) -> Reply {
        let used = self.indexes.tags.iter().filter_map(|(name, tag)| Some((tag.count?, name)));
        let mut used: Vec<(i64, &Name)> = used.filter(|(count, _)| *count >= 2).collect();
        used.sort_unstable_by(|a, b| b.cmp(a));
        let count = count.unwrap_or(usize::MAX);
        Reply::Names(used.into_iter().skip(offset).take(count).map(|(_, name)| name.clone()).collect())
    }
}
