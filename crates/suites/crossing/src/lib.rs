//! From user to kernel and back.
//!
//! One way each, without the kernel's glue code, in a guest of our own ([`guest`]) and in a patched
//! Linux ([`patched`]); and what any Linux shows: the time to its first tracepoint ([`trace`]) and
//! round trips ([`trips`]).

pub mod clock;
pub mod consistency;
mod counted;
pub mod guest;
pub mod hand;
pub mod metrics;
pub mod one_way;
pub mod params;
pub mod patched;
pub mod stamping;
mod suite;
pub mod ticks;
pub mod trace;
pub mod trips;
pub mod vm;

pub use suite::{COMMAND, SUITE};

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_sum_that_is_too_large_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
