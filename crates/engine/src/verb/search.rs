//! Searching: jobs by what they are, a page at a time. A search walks the index that promises the fewest jobs, newest or
//! soonest first, looks at a bounded number of them and says where to go on.

use std::ops::Bound;

use crate::index::Index;
use crate::job::{Flag, Job, Place};
use crate::score::Score;
use crate::tenant::{Cx, Tenant};
use crate::{JobView, Name, Position, Reply, Search, SearchState, State};

/// The places a search without a better index walks through in each queue, in this order.
const QUEUE_PLACES: [Place; 5] =
    [Place::Locks, Place::Work, Place::Scheduled, Place::Depends, Place::Throttled];

/// What a walk has found so far, and how much it may still look at.
struct Walk<'a> {
    tenant: &'a Tenant,
    search: &'a Search,
    now: f64,
    left: usize,
    found: Vec<JobView>,
    positions: Vec<Position>,
    last: Option<Position>,
}

impl Tenant {
    pub(super) fn search(&self, cx: &Cx<'_>, search: &Search) -> Reply {
        let mut walk = Walk {
            tenant: self,
            search,
            now: cx.now,
            left: search.examine_max,
            found: Vec::new(),
            positions: Vec::new(),
            last: None,
        };
        let finished = walk.run();
        Reply::Found { jobs: walk.found, positions: walk.positions, next: walk.last.filter(|_| !finished) }
    }
}

impl Walk<'_> {
    /// Walks until the page is full or nothing is left; says whether nothing is left.
    fn run(&mut self) -> bool {
        let indexes = &self.tenant.indexes;
        let blank = Index::new();
        if let Some(tag) = &self.search.tag {
            let jobs = indexes.tags.get(tag).map_or(&blank, |tag| &tag.jobs);
            return self.index(tag, Place::Work, jobs, true);
        }
        if let Some(worker) = &self.search.worker {
            let jobs = indexes.workers.get(worker).map_or(&blank, |worker| &worker.jobs);
            return self.index(worker, Place::Work, jobs, false);
        }
        if let Some(group) = &self.search.group {
            return self.group(group);
        }
        self.queues() && self.groups() && self.completed() && self.drafts()
    }

    fn from(&self, name: &Name, place: Place) -> Option<(Score, Name)> {
        let from = self.search.from.as_ref().filter(|from| from.name == *name && from.place == place)?;
        Some((Score::new(from.score), from.jid.clone()))
    }

    /// Whether the walk has to look at this place at all.
    fn wants(&self, place: Place) -> bool {
        match self.search.state {
            None => true,
            Some(SearchState::Running) => place == Place::Locks,
            Some(SearchState::Stalled) => matches!(place, Place::Locks | Place::Work),
            Some(SearchState::Waiting) => matches!(place, Place::Work | Place::Draft),
            Some(SearchState::Scheduled) => place == Place::Scheduled,
            Some(SearchState::Depends) => place == Place::Depends,
            Some(SearchState::Throttled) => matches!(place, Place::Throttled | Place::Work),
            Some(SearchState::Failed) => place == Place::Failed,
            Some(SearchState::Complete) => place == Place::Completed,
        }
    }

    /// Whether an earlier page is past this place already.
    fn is_behind(&self, place: Place, name: &Name) -> bool {
        let rank = |place: Place| match place {
            Place::Failed => 1,
            Place::Completed => 2,
            Place::Draft => 3,
            _ => 0,
        };
        let inner = |place: Place| QUEUE_PLACES.iter().position(|one| *one == place).unwrap_or(0);
        self.search.from.as_ref().is_some_and(|from| {
            (rank(place), name, inner(place)) < (rank(from.place), &from.name, inner(from.place))
        })
    }

    fn queues(&mut self) -> bool {
        let indexes = &self.tenant.indexes;
        if !QUEUE_PLACES.iter().any(|place| self.wants(*place)) {
            return true;
        }
        let mut names: Vec<&Name> = match &self.search.queue {
            Some(queue) => indexes.queues.get_key_value(queue).into_iter().map(|(name, _)| name).collect(),
            None => indexes.queues.keys().collect(),
        };
        names.sort_unstable();
        for name in names {
            let Some(queue) = indexes.queues.get(name) else { continue };
            for place in QUEUE_PLACES {
                if !self.wants(place) || self.is_behind(place, name) {
                    continue;
                }
                let (index, newest_first) = match place {
                    Place::Locks => (&queue.locks, false),
                    Place::Scheduled => (&queue.scheduled, false),
                    Place::Depends => (&queue.depends, false),
                    Place::Throttled => (&queue.throttled, false),
                    _ => (&queue.work, true),
                };
                if !self.index(name, place, index, newest_first) {
                    return false;
                }
            }
        }
        true
    }

    fn groups(&mut self) -> bool {
        if !self.wants(Place::Failed) {
            return true;
        }
        let tenant = self.tenant;
        tenant.indexes.groups.keys().all(|name| self.is_behind(Place::Failed, name) || self.group(name))
    }

    fn group(&mut self, name: &Name) -> bool {
        let Some(group) = self.tenant.indexes.groups.get(name) else { return true };
        let end = match self.from(name, Place::Failed) {
            Some((score, _)) => Bound::Excluded(score.get() as u64),
            None => Bound::Unbounded,
        };
        for (seq, jid) in group.range((Bound::Unbounded, end)).rev() {
            if !self.visit(name, Place::Failed, *seq as f64, jid) {
                return false;
            }
        }
        true
    }

    fn completed(&mut self) -> bool {
        let none = Name::new(b"");
        if !self.wants(Place::Completed)
            || self.search.queue.is_some()
            || self.is_behind(Place::Completed, &none)
        {
            return true;
        }
        self.index(&none, Place::Completed, &self.tenant.indexes.completed, true)
    }

    fn drafts(&mut self) -> bool {
        let drafts = &self.tenant.indexes.drafts;
        !self.wants(Place::Draft) || self.index(&Name::new(b""), Place::Draft, drafts, true)
    }

    /// Walks one sorted set from where the last page ended.
    fn index(&mut self, name: &Name, place: Place, index: &Index, backward: bool) -> bool {
        let from = self.from(name, place);
        let entry = |bound: Option<(Score, Name)>| bound.map_or(Bound::Unbounded, Bound::Excluded);
        if backward {
            let range = (Bound::Unbounded, entry(from));
            index.range(range).rev().all(|(score, jid)| self.visit(name, place, score.get(), jid))
        } else {
            let range = (entry(from), Bound::Unbounded);
            index.range(range).all(|(score, jid)| self.visit(name, place, score.get(), jid))
        }
    }

    /// Looks at one job; false: the page is full, or enough was looked at, and this job is for the next page.
    fn visit(&mut self, name: &Name, place: Place, score: f64, jid: &Name) -> bool {
        if self.left == 0 || self.found.len() >= self.search.count {
            return false;
        }
        self.left -= 1;
        let position = Position { name: name.clone(), place, score, jid: jid.clone() };
        if let Some(job) = self.tenant.jobs.get(jid)
            && self.matches(job)
        {
            self.found.push(self.tenant.indexes.view(job));
            self.positions.push(position.clone());
        }
        self.last = Some(position);
        true
    }

    fn matches(&self, job: &Job) -> bool {
        let search = self.search;
        let is = |wanted: &Option<Name>, name: &Name| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let last = job.history.last_at().unwrap_or(job.time);
        is(&search.queue, &job.queue)
            && is(&search.klass, &job.klass)
            && (search.worker.is_none()
                || (job.flags.has(Flag::Held) && job.worker() == search.worker.as_ref()))
            && search.tag.as_ref().is_none_or(|tag| job.tags().iter().any(|tagged| tagged.tag == *tag))
            && search.group.as_ref().is_none_or(|group| {
                job.state == State::Failed && job.failure().is_some_and(|failure| failure.group == *group)
            })
            && search.state.is_none_or(|state| state == self.state_of(job))
            && search.since.is_none_or(|since| last >= since)
            && search.until.is_none_or(|until| last <= until)
    }

    /// The state as people see it: a lock that has run out is stalled.
    fn state_of(&self, job: &Job) -> SearchState {
        match job.state {
            State::Running if job.place == Place::Locks && job.score <= self.now => SearchState::Stalled,
            State::Running => SearchState::Running,
            State::Waiting => SearchState::Waiting,
            State::Scheduled => SearchState::Scheduled,
            State::Depends => SearchState::Depends,
            State::Throttled => SearchState::Throttled,
            State::Stalled => SearchState::Stalled,
            State::Failed => SearchState::Failed,
            State::Complete => SearchState::Complete,
        }
    }
}
