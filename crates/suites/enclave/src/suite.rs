//! The suite's interface to the lab.

use lab::suite::{Suite, SuiteCommand};

use crate::kinds::{self, EnclaveKind};
use crate::{allocation, cli, cross_thread, ecall, heap, smallbank};

/// The suite.
pub static SUITE: Suite = Suite::new(
    "enclave",
    "allocators inside an enclave that many threads enter, on a heap that cannot grow",
    lab::suite_data!(),
    &[
        &allocation::ALLOCATION,
        &allocation::ROOM,
        &heap::Heap,
        &ecall::EcallCost,
        &cross_thread::CrossThread,
        &smallbank::SmallBank,
    ],
)
.with_capabilities(|| EnclaveKind::ALL.into_iter().map(kinds::capability).collect())
.with_command(SuiteCommand { command: cli::command, run: cli::main });

#[cfg(test)]
mod tests {
    use lab::method::{AnyMethod, complete};
    use lab::point::Point;
    use lab::soundness;

    #[test]
    fn a_user_supplied_library_counts_as_code() {
        let allocation = lab::suite::method(&crate::SUITE, "allocation").unwrap();
        let code = |method: &dyn AnyMethod, allocator| {
            method.code(&complete(method.factors(), &Point::from([("allocator", allocator)])))
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
