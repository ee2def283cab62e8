//! Allocators inside an enclave.
//!
//! An image with one allocator ([`images`]) is loaded into its region ([`region`]) and entered by many threads
//! ([`kinds`]). The methods measure what that costs.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod allocation;
pub mod batch;
pub mod cli;
pub mod conf;
pub mod cross_thread;
pub mod ecall;
pub mod elf;
pub mod error;
mod faults;
pub mod heap;
pub mod images;
pub mod kinds;
pub mod limits;
pub mod loaded;
pub mod method;
mod ocalls;
pub mod params;
pub mod region;
mod regions;
pub mod signals;
pub mod smallbank;
mod system_calls;
mod tcs;
mod thread;
pub mod threads;
mod trampoline;
#[cfg(feature = "wasm")]
mod wasm_engine;

use lab::suite::{Suite, SuiteCommand};

use kinds::EnclaveKind;

/// The suite.
pub static SUITE: Suite = Suite::new(
    "enclave",
    "allocators inside an enclave that many threads enter, on a heap that cannot grow",
    lab::suite_data!(),
    &[
        &allocation::ALLOCATION,
        &allocation::HEAP_SIZES,
        &heap::HEAP,
        &ecall::ECALL,
        &cross_thread::CROSS_THREAD,
        &smallbank::SMALL_BANK,
    ],
)
.with_capabilities(|| EnclaveKind::ALL.into_iter().map(kinds::capability).collect())
.with_command(SuiteCommand { command: cli::command, run: cli::main });

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hint::black_box;

    use lab::method::{AnyMethod, complete};
    use lab::point::Point;
    use lab::soundness;

    #[test]
    #[should_panic(expected = "overflow")]
    fn an_integer_overflow_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }

    #[test]
    fn a_user_supplied_library_counts_as_code() {
        let allocation = lab::suite::method(&crate::SUITE, "allocation").unwrap();
        let code = |method: &dyn AnyMethod, allocator| {
            let point = complete(method.factors(), &Point::from([("allocator", allocator)]));
            method.code(&point, &BTreeMap::new())
        };
        assert_eq!(code(allocation, "./libmine.a").as_deref(), Some("./libmine.a"));
        assert_eq!((code(allocation, "dlmalloc"), code(allocation, "scudo")), (None, None));
        let ecall = lab::suite::method(&crate::SUITE, "ecall").unwrap();
        assert_eq!(code(ecall, "snmalloc"), None);
    }

    #[test]
    fn experiments_claims_and_figures_are_consistent() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }
}
