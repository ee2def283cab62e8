//! What a bounds check costs: as instructions, in loops, in the system, in programs; and whether it works
//! with threads.

mod assembler;
mod bounds_registers;
mod checks;
mod hand;
mod instructions;
mod kernels;
mod looped;
mod mpx;
mod races;
mod software;
mod suite;
mod tables;
mod way;

pub use suite::BoundsSuite;

/// The suite, for the program that holds all suites.
pub static SUITE: BoundsSuite = BoundsSuite;

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_sum_of_sizes_that_is_too_large_ends_the_sample() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
