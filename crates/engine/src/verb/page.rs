//! Lists of everything but jobs, a page at a time, for those who need not have the whole: each is ordered by a number and
//! a name, and a page goes on behind the last row of the one before.

use std::ops::Bound;

use crate::index::Index;
use crate::score::Score;
use crate::tenant::{Cx, Tenant};
use crate::{List, Listing, Mark, Name, Reply};

/// One page's rows by their place, how many rows there are in all, and where the next page goes on.
struct Cut {
    names: Vec<(Score, Name)>,
    total: usize,
    next: Option<Mark>,
}

impl List {
    fn mark(&self) -> Option<(Score, &Name)> {
        self.after.as_ref().map(|mark| (Score::new(mark.score), &mark.name))
    }

    /// The page of rows that come in any order.
    fn cut<'a>(&self, rows: impl Iterator<Item = (f64, &'a Name)>) -> Cut {
        let mut total = 0;
        let mark = self.mark();
        let mut rows: Vec<(Score, &Name)> = rows
            .map(|(score, name)| (Score::new(score), name))
            .inspect(|_| total += 1)
            .filter(|row| mark.as_ref().is_none_or(|mark| row > mark))
            .collect();
        let end = self.skip.saturating_add(self.count);
        if rows.len() > end {
            // Only as many as the page needs are put in order.
            rows.select_nth_unstable(end);
            rows.truncate(end + 1);
        }
        rows.sort_unstable();
        self.page(rows.into_iter().map(|(score, name)| (score, name.clone())), total)
    }

    /// The page of rows that are in order already.
    fn cut_index(&self, index: &Index) -> Cut {
        let from = self.mark().map(|(score, name)| (score, name.clone()));
        let rows = index.range((from.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        self.page(rows.cloned(), index.len())
    }

    fn page(&self, rows: impl Iterator<Item = (Score, Name)>, total: usize) -> Cut {
        let mut rows = rows.skip(self.skip);
        let names: Vec<(Score, Name)> = rows.by_ref().take(self.count).collect();
        let mark = |(score, name): &(Score, Name)| Mark { score: score.get(), name: name.clone() };
        let next = rows.next().and_then(|_| names.last().map(mark));
        Cut { names, total, next }
    }
}

impl Tenant {
    pub(super) fn page(&mut self, cx: &mut Cx<'_>, list: &List) -> Reply {
        let blank = Index::new();
        let (cut, rows) = match &list.what {
            Listing::Queues => {
                let seen = self.indexes.queues.iter();
                let cut = list.cut(seen.filter_map(|(name, queue)| Some((queue.seen_at?, name))));
                let counts = cut.names.iter().map(|(_, name)| self.queue_counts(cx, name.clone()));
                let rows = Reply::AllCounts(counts.collect());
                (cut, rows)
            }
            Listing::Workers => {
                self.forget_old_workers(cx);
                let seen = self.indexes.workers.iter();
                let cut = list.cut(seen.filter_map(|(name, worker)| Some((-worker.seen_at?, name))));
                let counts = cut.names.iter().filter_map(|(_, name)| self.worker_counts(cx, name));
                let rows = Reply::Workers(counts.collect());
                (cut, rows)
            }
            Listing::WorkerJobs(worker) => {
                self.forget_old_workers(cx);
                let cut = list.cut_index(self.indexes.workers.get(worker).map_or(&blank, |it| &it.jobs));
                let (stalled, jobs) = cut.names.iter().cloned().partition(|(end, _)| end.get() <= cx.now);
                let rows = Reply::WorkerJobs { jobs: jids(jobs), stalled: jids(stalled) };
                (cut, rows)
            }
            Listing::Groups => {
                let groups = &self.indexes.groups;
                let cut = list.cut(groups.iter().map(|(name, jobs)| (-(jobs.len() as f64), name)));
                let size = |(size, name): &(Score, Name)| (name.clone(), -size.get() as usize);
                let rows = Reply::Groups(cut.names.iter().map(size).collect());
                (cut, rows)
            }
            Listing::Tracked => {
                let cut = list.cut(self.indexes.tracked.iter().map(|(jid, at)| (*at, jid)));
                let rows = self.tracked_of(cut.names.iter().map(|(_, jid)| jid));
                (cut, rows)
            }
            _ => self.page_settings(cx, list),
        };
        Reply::Listed { rows: Box::new(rows), total: cut.total, next: cut.next }
    }

    /// Those that somebody has set.
    fn page_settings(&self, cx: &Cx<'_>, list: &List) -> (Cut, Reply) {
        let indexes = &self.indexes;
        let blank = Index::new();
        match &list.what {
            Listing::Recurring { queue: Some(queue) } => {
                let cut = list.cut_index(indexes.queues.get(queue).map_or(&blank, |queue| &queue.recurring));
                let rows = self.recurs_of(&cut);
                (cut, rows)
            }
            Listing::Throttles => {
                let defined = indexes.throttles.iter().filter(|(_, record)| record.is_defined(cx.clock));
                let cut = list.cut(defined.map(|(id, _)| (0.0, id)));
                let rows = cut.names.iter().map(|(_, id)| self.throttle_view(cx, id.clone()));
                let rows = Reply::Throttles(rows.collect());
                (cut, rows)
            }
            Listing::ThrottleLocks(id) => {
                let cut = list.cut(self.lock_holders(id).map(|jid| (0.0, jid)));
                let rows = Reply::Names(jids(cut.names.clone()));
                (cut, rows)
            }
            Listing::ThrottlePending(id) => {
                let cut = list.cut_index(indexes.throttles.get(id).map_or(&blank, |record| &record.pending));
                let rows = Reply::Names(jids(cut.names.clone()));
                (cut, rows)
            }
            Listing::Options { prefix } => {
                let from = indexes.config.options.range(prefix.clone()..);
                let of_prefix = from.take_while(|(option, _)| option.bytes().starts_with(prefix.bytes()));
                let cut = list.cut(of_prefix.map(|(option, _)| (0.0, option)));
                let value = |(_, option): &(Score, Name)| {
                    Some((option.clone(), indexes.config.options.get(option)?.clone()))
                };
                let rows = Reply::Options(cut.names.iter().filter_map(value).collect());
                (cut, rows)
            }
            _ => {
                let cut = list.cut(indexes.recurs.iter().map(|(jid, recur)| (recur.due(), jid)));
                let rows = self.recurs_of(&cut);
                (cut, rows)
            }
        }
    }

    fn recurs_of(&self, cut: &Cut) -> Reply {
        let found = cut.names.iter().filter_map(|(_, jid)| self.indexes.recurs.get(jid));
        Reply::Recurs(found.cloned().collect())
    }
}

fn jids(rows: Vec<(Score, Name)>) -> Vec<Name> {
    rows.into_iter().map(|(_, jid)| jid).collect()
}
