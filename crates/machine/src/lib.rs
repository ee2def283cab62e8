//! This computer: CPU, caches, clocks, memory, processes, noise and capabilities.
//!
//! Linux on x86-64 only. Each module wraps one facility of the system and its `unsafe` code in a safe interface.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("tollgate measures on Linux x86-64 only");

pub mod cache;
pub mod capability;
pub mod child;
pub mod core_clock;
pub mod counters;
pub mod cpu;
pub mod cpu_list;
pub mod environment;
pub mod executable;
pub mod file;
#[cfg(test)]
mod forked;
pub mod huge_pages;
pub mod interrupts;
pub mod kvm;
pub mod libraries;
pub mod mapping;
pub mod memfd;
pub mod memory;
pub mod noise;
pub mod pin;
pub mod priority;
pub mod proximity;
pub mod restorer;
pub mod setting;
mod sys_error;
pub mod topology;
pub mod tsc;
pub mod untested;
pub mod user;

pub use sys_error::SysError;

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_sum_that_is_too_large_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
