//! Quiet times: what the shard put off while it was busy, and the memory that took, is seen to then.

/// Seconds with hardly a write after which a shard rests.
const QUIET_SECONDS: f64 = 3.0;
/// Bytes written meanwhile at most.
const QUIET_BYTES: u64 = 256 << 10;
/// Looks at rest from one purge to the next: some seconds. What is freed becomes free for a purge after one second.
const PURGE_EVERY: u32 = 16;
/// Purges in one time of rest: by then a checkpoint is done.
const PURGES_MAX: u32 = 8;

/// Whether the shard rests, and since when.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// When, and at how many bytes, it was last busy.
    since: f64,
    bytes: u64,
    /// Looks since it rests.
    looks: u32,
}

impl Rest {
    /// Looks at what the store has written in all; says whether the shard rests.
    pub(super) fn is_quiet(&mut self, clock: f64, bytes: u64) -> bool {
        // Fewer than before: the store was opened again. Time that goes backwards begins anew.
        if bytes.abs_diff(self.bytes) > QUIET_BYTES || clock < self.since || self.since == 0.0 {
            *self = Rest { since: clock, bytes, looks: 0 };
        }
        let quiet = clock - self.since >= QUIET_SECONDS;
        self.looks += u32::from(quiet);
        quiet
    }

    /// Whether memory should be given back now.
    pub(super) fn is_time_to_purge(&self) -> bool {
        self.looks.is_multiple_of(PURGE_EVERY) && (1..=PURGES_MAX).contains(&(self.looks / PURGE_EVERY))
    }
}

/// Has the allocator give memory that is free back to the system. It does so only when it is called, and nobody calls it
/// now; a thread that ends does.
pub(super) fn purge() {
    // It is known to the allocator only once it has asked for memory.
    let ask = || drop(std::hint::black_box(Box::new(0_u64)));
    if let Err(error) = std::thread::Builder::new().name("haul-purge".to_owned()).spawn(ask) {
        tracing::debug!(%error, "no thread to give memory back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_when_hardly_anything_is_written_for_a_while() {
        let mut rest = Rest::default();
        assert!(!rest.is_quiet(100.0, 0));
        assert!(!rest.is_quiet(102.9, QUIET_BYTES));
        assert!(rest.is_quiet(103.0, QUIET_BYTES));
        assert!(!rest.is_quiet(103.2, QUIET_BYTES + 1), "one byte more is not rest");
        assert!(!rest.is_quiet(106.1, QUIET_BYTES + 1));
        assert!(rest.is_quiet(106.2, QUIET_BYTES + 1));
        assert!(!rest.is_quiet(50.0, QUIET_BYTES + 1), "the clock was set back");
        assert!(rest.is_quiet(53.0, QUIET_BYTES + 1));
        assert!(rest.is_quiet(53.2, 1), "a store that was opened again begins at none");
    }

    #[test]
    fn it_gives_memory_back_a_few_times() {
        let mut rest = Rest::default();
        let looks = (0..10_000_u32)
            .filter(|look| rest.is_quiet(1.0 + f64::from(*look), 0) && rest.is_time_to_purge());
        assert_eq!(looks.count(), PURGES_MAX as usize);
    }
}
