//! A small random number generator (SplitMix64) whose numbers are the same in every version,
//! so that a seed always replays the same history.

/// The dice of one history.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates dice with the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to just below `high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    /// Returns true with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0, 100) < percent
    }

    /// Returns a random element.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let index = self.within(0, of.len() as u64);
        of.get(usize::try_from(index).ok()?).copied()
    }

    /// Returns a number below this one; 0 if it is 0.
    pub fn below(&mut self, most: usize) -> usize {
        let most = u64::try_from(most.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % most).unwrap_or_default()
    }

    /// Returns true once in this number of times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns a random element. Panics if the list is empty.
    pub fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Returns a random place, as often as its weight says.
    pub fn place(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        let is_it = |weight: &usize| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        };
        weights.iter().position(is_it).unwrap_or_default()
    }
}
