//! A small generator (splitmix64): the same seed gives the same numbers on every machine and in every version.

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Rng { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6861_756c }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0. The bias of the remainder does not matter here.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len())).cloned()
    }

    /// One of these; `of` is never empty where this is called, and the fallback keeps it total.
    pub fn pick_or<T: Clone>(&mut self, of: &[T], otherwise: T) -> T {
        self.pick(of).unwrap_or(otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let mut rng = Rng::new(7);
        let numbers: Vec<usize> = (0..6).map(|_| rng.below(1000)).collect();
        let mut again = Rng::new(7);
        assert_eq!(numbers, (0..6).map(|_| again.below(1000)).collect::<Vec<_>>());
        assert_ne!(numbers, (0..6).map(|_| rng.below(1000)).collect::<Vec<_>>());
    }
}
