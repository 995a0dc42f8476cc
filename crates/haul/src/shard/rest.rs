//! Quiet times: what the shard put off while it was busy, and the memory that took, is seen to then.

/// Seconds with hardly a write after which a shard rests.
const QUIET_SECONDS: f64 = 3.0;
/// Bytes written meanwhile at most.
const QUIET_BYTES: u64 = 256 << 10;

/// Whether the shard rests, and since when.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// When, and at how many bytes, it was last busy.
    since: f64,
    bytes: u64,
}

impl Rest {
    /// Looks at what the store has written in all; says whether the shard rests.
    pub(super) fn is_quiet(&mut self, clock: f64, bytes: u64) -> bool {
        // Fewer than before: the store was opened again. Time that goes backwards begins anew.
        if bytes.abs_diff(self.bytes) > QUIET_BYTES || clock < self.since || self.since == 0.0 {
            *self = Rest { since: clock, bytes };
        }
        clock - self.since >= QUIET_SECONDS
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
}
