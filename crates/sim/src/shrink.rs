//! A failing script made short: parts of it are left out as long as it still fails, in whatever way.

use crate::{Step, Twist, replay};

/// Replays at most this many shorter scripts.
const ATTEMPTS_MAX: usize = 4000;

/// The shortest failing script found by leaving steps out, large parts first.
pub fn shrink(steps: Vec<Step>, twist: Option<Twist>) -> Vec<Step> {
    let mut best = steps;
    let mut attempts = 0;
    let mut size = best.len().div_ceil(2).max(1);
    loop {
        let mut shorter = false;
        let mut from = 0;
        while from < best.len() && attempts < ATTEMPTS_MAX {
            let rest = best.iter().enumerate().filter(|(at, _)| *at < from || *at >= from + size);
            let candidate: Vec<Step> = rest.map(|(_, step)| step.clone()).collect();
            attempts += 1;
            if let Some(difference) = replay(&candidate, twist) {
                best = candidate;
                best.truncate(difference.step + 1);
                shorter = true;
            } else {
                from += size;
            }
        }
        if attempts >= ATTEMPTS_MAX || (size == 1 && !shorter) {
            return best;
        }
        size = size.div_ceil(2);
    }
}
