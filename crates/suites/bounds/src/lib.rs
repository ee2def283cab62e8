//! The cost of bounds checks: as instructions, in check sequences, in the operating system and in programs; and whether
//! they are correct when threads share pointers.

mod assembler;
mod bounds_registers;
mod checks;
mod cli;
mod instructions;
mod kernels;
mod mpx;
mod races;
mod software;
mod suite;
mod tables;
mod timing;

pub use suite::{COMMAND, SUITE};

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn release_builds_panic_on_integer_overflow() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
