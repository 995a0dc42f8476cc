//! Sorted sets of scored names, in dense runs. A queue of millions is filled from one end and emptied from the other: a tree
//! of small nodes is left half empty by that, runs are left full.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};

use crate::{Name, Score};

/// A name and its score: ascending by score, ties by name.
pub(crate) type Scored = (Score, Name);

/// Entries of a run at most: 2 KB.
const RUN_MAX: usize = 128;
/// A run with fewer is put together with a neighbour, if both together are at most half of one. That is tried a few times
/// while it gets empty, not with each entry.
const RUN_FEW: usize = RUN_MAX / 4;
/// Room that an empty index keeps.
const EMPTY_ROOM_MAX: usize = 16;

/// A sorted set, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Each under its bound: its entries are up to that, those of the next one above. None is empty.
    runs: BTreeMap<Scored, VecDeque<Scored>>,
    /// What is above the last bound; empty only if all is.
    top: VecDeque<Scored>,
    len: usize,
}

impl Index {
    pub(crate) const fn new() -> Self {
        Index { runs: BTreeMap::new(), top: VecDeque::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<&Scored> {
        self.runs.first_key_value().map_or(&self.top, |(_, run)| run).front()
    }

    pub(crate) fn last(&self) -> Option<&Scored> {
        self.top.back()
    }

    pub(crate) fn contains(&self, entry: &Scored) -> bool {
        let run = self.runs.range(entry..).next().map_or(&self.top, |(_, run)| run);
        run.binary_search(entry).is_ok()
    }

    /// Adds an entry; false if it is there already.
    pub(crate) fn insert(&mut self, entry: Scored) -> bool {
        // Most come in at one of the ends.
        let (run, at) = if self.top.back().is_none_or(|last| *last < entry) {
            let at = self.top.len();
            (&mut self.top, at)
        } else {
            let (_, run) = run_of(&mut self.runs, &mut self.top, &entry);
            let Some(at) = place_in(run, &entry) else { return false };
            (run, at)
        };
        self.len += 1;
        if run.len() < RUN_MAX {
            run.insert(at, entry);
            return true;
        }
        // At an end the full run stays full.
        let cut = match at {
            0 | RUN_MAX => at,
            _ => RUN_MAX / 2,
        };
        let mut upper = run.split_off(cut);
        if at > cut || cut == RUN_MAX {
            upper.insert(at - cut, entry);
            let lower = std::mem::replace(run, upper);
            self.add_run(lower);
        } else {
            let mut lower = std::mem::replace(run, upper);
            lower.insert(at, entry);
            self.add_run(lower);
        }
        true
    }

    /// Adds a run under its last entry.
    fn add_run(&mut self, run: VecDeque<Scored>) {
        if let Some(bound) = run.back().cloned() {
            self.runs.insert(bound, run);
        }
    }

    /// Takes an entry out; false if it was not there.
    pub(crate) fn remove(&mut self, entry: &Scored) -> bool {
        let (bound, run) = run_of(&mut self.runs, &mut self.top, entry);
        // Most go at one of the ends.
        if run.back() == Some(entry) {
            run.pop_back();
        } else if run.front() == Some(entry) {
            run.pop_front();
        } else {
            let Ok(at) = run.binary_search(entry) else { return false };
            run.remove(at);
        }
        self.len -= 1;
        if run.len() < RUN_FEW && run.len().is_multiple_of(RUN_FEW / 4) {
            match bound.cloned() {
                Some(bound) => self.join(&bound),
                None => self.join_top(),
            }
        }
        true
    }

    /// A run has become short: it goes, or is put together with a neighbour.
    fn join(&mut self, bound: &Scored) {
        let Some(length) = self.runs.get(bound).map(VecDeque::len) else { return };
        let above = (Bound::Excluded(bound), Bound::Unbounded);
        let next = self.runs.range_mut(above).next().map_or(&mut self.top, |(_, run)| run);
        if length == 0 || next.len() + length <= RUN_MAX / 2 {
            let next_bound = next.back().cloned();
            let Some(run) = self.runs.remove(bound) else { return };
            let Some(next_bound) = next_bound else { return };
            let next = self.runs.range_mut(next_bound..).next().map_or(&mut self.top, |(_, run)| run);
            run.into_iter().rev().for_each(|entry| next.push_front(entry));
        } else if let Some(below) = self.runs.range(..bound).next_back().map(|(bound, _)| bound.clone()) {
            self.join_short(&below, length, bound);
        }
    }

    /// Puts the run below together with this one, if both are short.
    fn join_short(&mut self, below: &Scored, length: usize, bound: &Scored) {
        if self.runs.get(below).is_some_and(|run| run.len() + length <= RUN_MAX / 2)
            && let Some(lower) = self.runs.remove(below)
            && let Some(run) = self.runs.get_mut(bound)
        {
            lower.into_iter().rev().for_each(|entry| run.push_front(entry));
        }
    }

    /// The same for what is above the last bound.
    fn join_top(&mut self) {
        match self.runs.last_entry() {
            Some(run) if self.top.is_empty() => self.top = run.remove(),
            Some(run) if run.get().len() + self.top.len() <= RUN_MAX / 2 => {
                run.remove().into_iter().rev().for_each(|entry| self.top.push_front(entry));
            }
            None if self.top.is_empty() && self.top.capacity() > EMPTY_ROOM_MAX => self.top = VecDeque::new(),
            _ => {}
        }
    }

    /// All entries, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Scored> {
        self.runs.values().flatten().chain(&self.top)
    }

    /// Those within bounds, ascending.
    pub(crate) fn range(&self, range: impl RangeBounds<Scored>) -> impl DoubleEndedIterator<Item = &Scored> {
        let (from, to) = (range.start_bound().cloned(), range.end_bound().cloned());
        // The run that reaches up to the end, or beyond it; none: that is the top one.
        let end = match range.end_bound() {
            Bound::Unbounded => None,
            Bound::Included(to) | Bound::Excluded(to) => self.runs.range(to..).next().map(|(bound, _)| bound),
        };
        let top = end.is_none().then_some(&self.top);
        let start = range.start_bound();
        let crossed = match (start, end) {
            (Bound::Included(from) | Bound::Excluded(from), Some(end)) => from > end,
            _ => false,
        };
        let runs = match end {
            _ if crossed => None,
            Some(end) => Some(self.runs.range((inclusive(start), Bound::Included(end)))),
            None => Some(self.runs.range((inclusive(start), Bound::Unbounded))),
        };
        let runs = runs.into_iter().flatten().map(|(_, run)| run).chain(top);
        runs.flat_map(move |run| {
            let first = match &from {
                Bound::Unbounded => 0,
                Bound::Included(from) => run.partition_point(|entry| entry < from),
                Bound::Excluded(from) => run.partition_point(|entry| entry <= from),
            };
            let past = match &to {
                Bound::Unbounded => run.len(),
                Bound::Included(to) => run.partition_point(|entry| entry <= to),
                Bound::Excluded(to) => run.partition_point(|entry| entry < to),
            };
            run.range(first.min(past)..past)
        })
    }
}

/// The run that an entry belongs into, and its bound; the top one has none. The lowest and the top one are looked at first:
/// most entries are there.
fn run_of<'a>(
    runs: &'a mut BTreeMap<Scored, VecDeque<Scored>>,
    top: &'a mut VecDeque<Scored>,
    entry: &Scored,
) -> (Option<&'a Scored>, &'a mut VecDeque<Scored>) {
    let run = match runs.first_key_value() {
        None => None,
        _ if top.front().is_some_and(|first| first <= entry) => None,
        Some((bound, _)) if entry <= bound => runs.iter_mut().next(),
        Some(_) => runs.range_mut(entry..).next(),
    };
    match run {
        Some((bound, run)) => (Some(bound), run),
        None => (None, top),
    }
}

/// Where an entry belongs in a run; none: it is there.
fn place_in(run: &VecDeque<Scored>, entry: &Scored) -> Option<usize> {
    match run.front() {
        Some(first) if entry < first => Some(0),
        _ => run.binary_search(entry).err(),
    }
}

/// The same bound with its own entry: the run under it has nothing above.
fn inclusive(bound: Bound<&Scored>) -> Bound<&Scored> {
    match bound {
        Bound::Excluded(entry) => Bound::Included(entry),
        bound => bound,
    }
}

/// From entries in any order. Added in order, they fill each run.
impl FromIterator<Scored> for Index {
    fn from_iter<I: IntoIterator<Item = Scored>>(entries: I) -> Self {
        let mut entries: Vec<Scored> = entries.into_iter().collect();
        entries.sort_unstable();
        let mut index = Index::new();
        for entry in entries {
            index.insert(entry);
        }
        index
    }
}

impl IntoIterator for Index {
    type Item = Scored;
    type IntoIter = std::iter::Chain<
        std::iter::Flatten<std::collections::btree_map::IntoValues<Scored, VecDeque<Scored>>>,
        std::collections::vec_deque::IntoIter<Scored>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.into_values().flatten().chain(self.top)
    }
}

impl<'a> IntoIterator for &'a Index {
    type Item = &'a Scored;
    type IntoIter = std::iter::Chain<
        std::iter::Flatten<std::collections::btree_map::Values<'a, Scored, VecDeque<Scored>>>,
        std::collections::vec_deque::Iter<'a, Scored>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.values().flatten().chain(&self.top)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(score: i32, name: u8) -> Scored {
        (Score::new(f64::from(score)), Name::new(&[name]))
    }

    /// What the doc comments of the fields say.
    fn check(index: &Index) {
        let mut below: Option<&Scored> = None;
        for (bound, run) in &index.runs {
            assert!(!run.is_empty() && run.len() <= RUN_MAX);
            assert!(below < run.front() && run.back() <= Some(bound));
            below = Some(bound);
        }
        assert!(index.top.len() <= RUN_MAX);
        assert!(index.top.is_empty() == index.is_empty());
        assert!(index.is_empty() || below < index.top.front());
        assert!(index.iter().is_sorted_by(|one, other| one < other));
        assert_eq!(index.iter().count(), index.len());
    }

    fn compare(index: &Index, model: &BTreeSet<Scored>) {
        check(index);
        assert_eq!(index.len(), model.len());
        assert!(index.iter().eq(model));
        assert!(index.iter().rev().eq(model.iter().rev()));
        assert_eq!((index.first(), index.last()), (model.first(), model.last()));
    }

    fn compare_range(index: &Index, model: &BTreeSet<Scored>, from: Bound<Scored>, to: Bound<Scored>) {
        let within = |entry: &&Scored| (from.clone(), to.clone()).contains(*entry);
        let wanted: Vec<&Scored> = model.iter().filter(within).collect();
        let mut found: Vec<&Scored> = index.range((from.clone(), to.clone())).collect();
        assert_eq!(found, wanted);
        found = index.range((from.clone(), to.clone())).rev().collect();
        found.reverse();
        assert_eq!(found, wanted);
    }

    fn bound(of: (u8, i32, u8)) -> Bound<Scored> {
        match of.0 {
            0 => Bound::Unbounded,
            1 => Bound::Included(entry(of.1, of.2)),
            _ => Bound::Excluded(entry(of.1, of.2)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn it_is_a_sorted_set(
            steps in prop::collection::vec((0..5_u8, -40..40_i32, 0..20_u8), 0..3000),
            ends in prop::collection::vec(((0..3_u8, -45..45_i32, 0..20_u8), (0..3_u8, -45..45_i32, 0..20_u8)), 20),
        ) {
            let (mut index, mut model) = (Index::new(), BTreeSet::new());
            let half = steps.len() / 2;
            for (at, (kind, score, name)) in steps.into_iter().enumerate() {
                let entry = entry(score, name);
                // It grows in the first half and shrinks in the second.
                if (kind > 0) == (at < half) {
                    assert_eq!(index.insert(entry.clone()), model.insert(entry));
                } else if kind == 4 {
                    assert_eq!(index.contains(&entry), model.contains(&entry));
                } else {
                    assert_eq!(index.remove(&entry), model.remove(&entry));
                }
                if at % 100 == 0 {
                    compare(&index, &model);
                }
            }
            compare(&index, &model);
            for (from, to) in ends {
                compare_range(&index, &model, bound(from), bound(to));
            }
            compare(&index.iter().rev().cloned().collect(), &model);
            assert!(index.clone().into_iter().eq(model.iter().cloned()));
            for entry in model.clone() {
                assert!(index.remove(&entry) && model.remove(&entry));
                check(&index);
            }
            assert!(index.is_empty());
        }
    }

    /// Runs that are not full, of all but the last.
    fn slack(index: &Index) -> usize {
        index.runs.values().filter(|run| run.len() < RUN_MAX).count()
    }

    #[test]
    fn filled_from_either_end_it_is_dense() {
        let entries = || (0..10_000).map(|score| entry(score, 0));
        let (mut up, mut down) = (Index::new(), Index::new());
        entries().for_each(|entry| assert!(up.insert(entry)));
        entries().rev().for_each(|entry| assert!(down.insert(entry)));
        assert_eq!((slack(&up), slack(&down)), (0, 1));
        assert_eq!(slack(&entries().rev().collect()), 0);
    }

    #[test]
    fn emptied_at_random_it_takes_few_runs() {
        let mut index: Index = (0..10_000).map(|score| entry(score, 0)).collect();
        for score in (0..10_000).filter(|score| score % 50 != 0) {
            assert!(index.remove(&entry(score, 0)));
        }
        check(&index);
        assert!(index.runs.len() <= index.len() / (RUN_FEW / 2), "{}", index.runs.len());
    }

    #[test]
    fn an_empty_one_keeps_little_room() {
        let mut index: Index = (0..10_000).map(|score| entry(score, 0)).collect();
        (0..10_000).for_each(|score| assert!(index.remove(&entry(score, 0))));
        assert!(index.runs.is_empty() && index.top.capacity() <= EMPTY_ROOM_MAX);
    }
}
