//! The keys with the highest estimates. Neither Count-min nor Ensō's evaluation keeps them; a sketch alone cannot list keys.

/// A key and its estimated number of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heavy {
    /// The key.
    pub key: u64,
    /// The estimate when the key was last sampled.
    pub estimate: u64,
}

/// Maximum number of keys.
pub const KEYS: usize = 64;

/// Up to 64 keys, of which the one with the lowest estimate is replaced.
#[derive(Debug, Clone)]
pub struct HeavyKeys {
    keys: [u64; KEYS],
    estimates: [u64; KEYS],
    used: usize,
    /// Number of the entry with the lowest estimate, if all are used.
    lowest: usize,
}

impl Default for HeavyKeys {
    fn default() -> Self {
        Self { keys: [0; KEYS], estimates: [0; KEYS], used: 0, lowest: 0 }
    }
}

impl HeavyKeys {
    /// Updates a key with its current estimate.
    pub fn update(&mut self, key: u64, estimate: u64) {
        let known = self.keys[..self.used].iter().position(|other| *other == key);
        if known.is_none() && self.used == KEYS && estimate <= self.estimates[self.lowest] {
            return;
        }
        let entry = match known {
            Some(entry) => entry,
            None if self.used < KEYS => {
                self.used += 1;
                self.used - 1
            }
            None => self.lowest,
        };
        self.keys[entry] = key;
        self.estimates[entry] = estimate;
        if self.used == KEYS && (known.is_none() || entry == self.lowest) {
            self.lowest = (0..KEYS).min_by_key(|entry| self.estimates[*entry]).unwrap_or_default();
        }
    }

    /// Returns the keys with at least `threshold` packets, the highest estimate first.
    pub fn at_least(&self, threshold: u64) -> Vec<Heavy> {
        let pairs = self.keys.iter().zip(&self.estimates).take(self.used);
        let mut heavy: Vec<_> = pairs
            .filter(|(_, estimate)| **estimate >= threshold)
            .map(|(key, estimate)| Heavy { key: *key, estimate: *estimate })
            .collect();
        heavy.sort_unstable_by_key(|heavy| (std::cmp::Reverse(heavy.estimate), heavy.key));
        heavy
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_highest_are_kept_if_estimates_only_grow(updates in proptest::collection::vec((0u64..200, 1u64..1000), 0..600)) {
            let mut heavy = HeavyKeys::default();
            let mut all = std::collections::BTreeMap::<u64, u64>::new();
            for (key, growth) in updates {
                let estimate = all.entry(key).or_default();
                *estimate += growth;
                heavy.update(key, *estimate);
            }
            let mut expected: Vec<_> = all.values().copied().collect();
            expected.sort_unstable_by_key(|estimate| std::cmp::Reverse(*estimate));
            expected.truncate(KEYS);
            let found = heavy.at_least(0);
            prop_assert_eq!(found.iter().map(|heavy| heavy.estimate).collect::<Vec<_>>(), expected);
            prop_assert!(found.iter().all(|heavy| all[&heavy.key] == heavy.estimate));
            let some = heavy.at_least(500);
            prop_assert_eq!(some.len(), found.iter().filter(|heavy| heavy.estimate >= 500).count());
        }
    }
}
