//! The order in which pages are touched.

/// The numbers below `count` in a random order, by Fisher and Yates: lmbench's order, in which the next
/// fault cannot be foreseen.
pub(super) fn permutation(count: usize, seed: u64) -> Vec<usize> {
    // Marsaglia's xorshift, which wants a seed other than 0.
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (next() % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_there_once_in_no_order() {
        let mut order = permutation(512, 7);
        assert!(!order.is_sorted() && order != permutation(512, 9));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..512));
    }
}
