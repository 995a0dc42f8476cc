//! Jobs whose turn comes next are looked at before it comes, several at once.
//!
//! A job that nothing has asked for in a while is no longer in the processor's cache. To fetch what it consists of piece by piece, each
//! when it is needed, is a large part of what it costs to hand out or to forget such a job. Looked at together they are fetched together.

use std::cell::Cell;

use crate::Name;
use crate::index::Index;
use crate::jobs::Jobs;

/// So many are looked at together.
const AHEAD: usize = 16;
/// Of an index with fewer all are likely to be in the cache.
const FEW: usize = 4096;

/// How many of those whose turn comes next were looked at.
#[derive(Debug, Default)]
pub(crate) struct Ahead(Cell<usize>);

impl Ahead {
    /// The first of an index is about to have its turn.
    pub(crate) fn first(&self, jobs: &Jobs, index: &Index) {
        if self.is_time(index) {
            look(jobs, index.iter().take(AHEAD).map(|(_, jid)| jid));
        }
    }

    /// The last of an index is about to have its turn.
    pub(crate) fn last(&self, jobs: &Jobs, index: &Index) {
        if self.is_time(index) {
            look(jobs, index.iter().rev().take(AHEAD).map(|(_, jid)| jid));
        }
    }

    fn is_time(&self, index: &Index) -> bool {
        if index.len() < FEW {
            return false;
        }
        let left = self.0.get().checked_sub(1);
        self.0.set(left.unwrap_or(AHEAD - 1));
        left.is_none()
    }
}

/// Looks at jobs that are about to be asked for, if there are so many that they may be anywhere.
pub(crate) fn look_at<'a>(jobs: &Jobs, jids: impl Iterator<Item = &'a Name>) {
    if jobs.len() >= FEW {
        look(jobs, jids);
    }
}

/// In steps: what one step fetches is not waited for until the next.
fn look<'a>(jobs: &Jobs, mut jids: impl Iterator<Item = &'a Name>) {
    let mut seen = 0_usize;
    loop {
        let mut names: [Option<&Name>; AHEAD] = [None; AHEAD];
        names.iter_mut().zip(&mut jids).for_each(|(name, jid)| *name = Some(jid));
        let names = names.iter().flatten();
        seen = names.clone().fold(seen, |seen, jid| seen.wrapping_add(jid.bytes().len()));
        let mut found = [None; AHEAD];
        let last = found.iter_mut().zip(names).map(|(job, jid)| *job = jobs.get(*jid)).count();
        seen = found.into_iter().flatten().fold(seen, |seen, job| seen.wrapping_add(job.look()));
        if last < AHEAD {
            break;
        }
    }
    std::hint::black_box(seen);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Score;

    #[test]
    fn the_next_are_looked_at_when_the_last_of_those_before_had_its_turn() {
        let mut index = Index::new();
        let ahead = Ahead::default();
        (1..FEW).for_each(|at| assert!(index.insert((Score::new(at as f64), Name::new(b"")))));
        assert!((0..2 * AHEAD).all(|_| !ahead.is_time(&index)), "few");
        assert!(index.insert((Score::new(FEW as f64), Name::new(b""))));
        let looks: Vec<usize> = (0..3 * AHEAD).filter(|_| ahead.is_time(&index)).collect();
        assert_eq!(looks, [0, AHEAD, 2 * AHEAD]);
        // Names without a job, fewer than it would look at: nothing happens.
        look(&Jobs::default(), index.iter().take(2).map(|(_, jid)| jid));
    }
}
