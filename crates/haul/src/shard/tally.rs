//! Figures of the shard's work. One thread writes, anybody reads: no locks, and no bus-locking instructions either.

use std::sync::atomic::{AtomicU64, Ordering};

use haul_engine::{Command, Refusal};

/// Counts. Only for counters that a single thread writes.
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// How many values fell up to each of `N` bounds, and beyond.
pub(crate) struct Buckets<const N: usize> {
    pub(crate) bounds: [u64; N],
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    sum: AtomicU64,
}

/// A reading of [`Buckets`].
pub(crate) struct BucketsNow {
    /// For each bound, how many values were at most that.
    pub(crate) up_to: Vec<(u64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: u64,
}

impl<const N: usize> Buckets<N> {
    pub(crate) fn new(bounds: [u64; N]) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Buckets { bounds, counts, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        bump(self.counts.get(at).unwrap_or(&self.beyond), 1);
        bump(&self.sum, value);
    }

    pub(crate) fn now(&self) -> BucketsNow {
        let mut count = 0;
        let mut up_to = Vec::with_capacity(N);
        for (bound, counter) in self.bounds.iter().zip(&self.counts) {
            count += counter.load(Ordering::Relaxed);
            up_to.push((*bound, count));
        }
        count += self.beyond.load(Ordering::Relaxed);
        BucketsNow { up_to, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}

macro_rules! kinds {
    ($($name:ident: $pattern:pat => $word:literal,)*) => {
        #[derive(Clone, Copy)]
        enum Which { $($name),* }

        /// The words for commands, as metrics show them.
        pub(crate) const COMMANDS: &[&str] = &[$($word),*];

        fn which(command: &Command) -> Which {
            match command { $($pattern => Which::$name),* }
        }
    };
}

kinds! {
    Put: Command::Put(_) => "put",
    PutMany: Command::PutMany(_) => "put_many",
    Pop: Command::Pop(_) => "pop",
    Peek: Command::Peek { .. } => "peek",
    Get: Command::Get { .. } | Command::GetMany { .. } | Command::Exists { .. } => "get",
    Complete: Command::Complete(_) => "complete",
    CompleteMany: Command::CompleteMany { .. } => "complete_many",
    Fail: Command::Fail(_) => "fail",
    Heartbeat: Command::Heartbeat(_) => "heartbeat",
    HeartbeatMany: Command::HeartbeatMany { .. } => "heartbeat_many",
    Report: Command::Report(_) => "report",
    Worker: Command::Register { .. } | Command::Drain { .. } | Command::Deregister { .. } => "worker",
    Retry: Command::Retry(_) => "retry",
    Timeout: Command::Timeout { .. } => "timeout",
    Cancel: Command::Cancel { .. } => "cancel",
    Unfail: Command::Unfail { .. } => "unfail",
    Depends: Command::Depends { .. } => "depends",
    Priority: Command::Priority { .. } => "priority",
    Tag: Command::Tag { .. } | Command::Untag { .. } => "tag",
    Track: Command::Track { .. } | Command::Untrack { .. } => "track",
    Log: Command::Log { .. } => "log",
    Pause: Command::Pause { .. } => "pause",
    Recur: Command::Recur(_) | Command::Unrecur { .. } | Command::RecurUpdate { .. } => "recur",
    Throttle: Command::ThrottleSet { .. } | Command::ThrottleDelete { .. } | Command::ThrottleRelease { .. } => "throttle",
    Config: Command::ConfigSet { .. } | Command::ConfigUnset { .. } => "config",
    Task: Command::Task(_) => "task",
    Keyspace: Command::Key(_) | Command::Keyspace(_) | Command::Versions { .. } => "keyspace",
    Flush: Command::Flush => "flush",
    Look: _ => "look",
}

/// How a command can end, as metrics show it: `ok`, or the code of the refusal.
pub(crate) const OUTCOMES: [&str; 13] = [
    "ok",
    "NOJOB",
    "NORECUR",
    "EXISTS",
    "NOTRUNNING",
    "NOTHELD",
    "WRONGQUEUE",
    "NOTDEPENDS",
    "NEEDED",
    "WRONGTYPE",
    "BADARG",
    "FULL",
    "other",
];

/// Commands by what they were and how they ended.
pub(crate) struct Tally {
    counts: Vec<[AtomicU64; OUTCOMES.len()]>,
}

/// Which counters of a [`Tally`] a command belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Slot(Which);

impl Slot {
    pub(crate) fn of(command: &Command) -> Slot {
        Slot(which(command))
    }
}

impl Default for Tally {
    fn default() -> Self {
        let zeros = |_| std::array::from_fn(|_| AtomicU64::new(0));
        Tally { counts: (0..COMMANDS.len()).map(zeros).collect() }
    }
}

impl Tally {
    pub(crate) fn count<T>(&self, slot: Slot, outcome: &Result<T, Refusal>) {
        let outcome = match outcome {
            Ok(_) => 0,
            Err(refusal) => position(refusal.code()),
        };
        self.bump(slot, outcome);
    }

    pub(crate) fn count_full(&self, slot: Slot) {
        self.bump(slot, position("FULL"));
    }

    fn bump(&self, slot: Slot, outcome: usize) {
        if let Some(counter) = self.counts.get(slot.0 as usize).and_then(|row| row.get(outcome)) {
            bump(counter, 1);
        }
    }

    /// Command, outcome and count of everything that was counted.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        COMMANDS.iter().zip(&self.counts).flat_map(|(command, row)| {
            let row = OUTCOMES
                .iter()
                .zip(row)
                .map(|(outcome, count)| (*command, *outcome, count.load(Ordering::Relaxed)));
            row.filter(|(_, outcome, count)| *count > 0 || *outcome == "ok")
        })
    }
}

fn position(code: &str) -> usize {
    OUTCOMES.iter().position(|known| *known == code).unwrap_or(OUTCOMES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_bucket_it_does_not_exceed() {
        let buckets = Buckets::new([1, 10, 100]);
        [0, 1, 2, 10, 11, 1000].into_iter().for_each(|value| buckets.add(value));
        let now = buckets.now();
        assert_eq!((now.up_to, now.count, now.sum), (vec![(1, 2), (10, 4), (100, 5)], 6, 1024));
    }

    #[test]
    fn commands_are_counted_by_kind_and_outcome() {
        let tally = Tally::default();
        tally.count(Slot::of(&Command::Flush), &Ok(()));
        tally.count::<()>(Slot::of(&Command::Totals), &Err(Refusal::NotInteger));
        let counted: Vec<_> = tally.counted().filter(|(_, _, count)| *count > 0).collect();
        assert_eq!(counted, [("flush", "ok", 1), ("look", "BADARG", 1)]);
    }
}
