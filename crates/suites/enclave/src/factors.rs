//! What the enclave experiments vary.

use lab::factor::{Factor, Levels};

use crate::images::supplied;
use crate::limits;

/// Every allocator that an enclave or the host may be given.
pub const ALLOCATORS: &[&str] = &[
    "dlmalloc",
    "dlmalloc-wait",
    "snmalloc",
    "jemalloc",
    "mimalloc",
    "rpmalloc",
    "talc",
    "rlsf",
    "buddy",
    "glibc",
    "scudo",
];
/// What separates the inside from the host.
pub const KINDS: &[&str] =
    &["none", "simulate", "simulate-arch-prctl", "process", "kvm", "wasm", "sgx"];

/// The factors of all experiments.
pub const FACTORS: &[Factor] = &[
    Factor {
        name: "kind",
        about: "what separates the inside from the host; none is the same image, called plainly",
        levels: Levels::Names(KINDS),
        default: None,
    },
    Factor {
        name: "allocator",
        about: "the allocator that the enclave is linked with: a name, or the path of a static library (*.a)",
        levels: Levels::Checked(allocator),
        default: None,
    },
    Factor {
        name: "threads",
        about: "host threads inside at once",
        levels: Levels::Checked(|text| limits::THREADS.level(text)),
        default: None,
    },
    Factor {
        name: "mode",
        about: "larson: threads replace one another's blocks; producer-consumer: one half \
                allocates, the other frees",
        levels: Levels::Names(&["larson", "producer-consumer"]),
        default: None,
    },
    Factor {
        name: "max_size",
        about: "sizes are below this",
        levels: Levels::Checked(|text| limits::SIZE.bytes(text)),
        default: None,
    },
    Factor {
        name: "touch",
        about: "whether each page of what was allocated is written",
        levels: Levels::Names(&["no", "yes"]),
        default: None,
    },
    Factor {
        name: "accounts",
        about: "customers of the bank, two accounts each",
        levels: Levels::Checked(|text| limits::ACCOUNTS.level(text)),
        default: None,
    },
    Factor {
        name: "transactions",
        about: "of all threads together",
        levels: Levels::Checked(|text| limits::TRANSACTIONS.level(text)),
        default: None,
    },
    Factor {
        name: "num_allocations",
        about: "allocations of each thread",
        levels: Levels::Checked(|text| limits::ALLOCATIONS.level(text)),
        default: None,
    },
    Factor {
        name: "heap",
        about: "NumHeapPages",
        levels: Levels::Checked(|text| limits::HEAP.level(text)),
        default: None,
    },
    Factor {
        name: "stack",
        about: "NumStackPages",
        levels: Levels::Checked(|text| limits::STACK.level(text)),
        default: None,
    },
    Factor {
        name: "tcs",
        about: "NumTCS: how many threads may be inside",
        levels: Levels::Checked(|text| limits::TCS.level(text)),
        default: None,
    },
    Factor {
        name: "debug",
        about: "Debug: a debugger may read an enclave of kind sgx",
        levels: Levels::Names(&["no", "yes"]),
        default: None,
    },
];

/// A level of `allocator`.
///
/// # Errors
/// What would have been right.
pub fn allocator(text: &str) -> Result<String, String> {
    if ALLOCATORS.contains(&text) || supplied::is_path(text) {
        return Ok(text.into());
    }
    let names = ALLOCATORS.join(", ");
    Err(format!("'{text}' is not one of {names}, nor the path of a static library (*.a)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_level_of_a_count_is_beyond_its_limit() {
        let counts =
            ["threads", "accounts", "transactions", "num_allocations", "heap", "stack", "tcs"];
        for name in counts {
            let factor = lab::factor::find(FACTORS, name).unwrap();
            assert!(factor.level("1").is_ok(), "{name}");
            for level in ["0", "4503599627370497", "4503599627374592", "18446744073709551615"] {
                let why = factor.level(level).unwrap_err();
                assert!(why.contains(name) && why.contains("give a number from 1 to"), "{why}");
            }
        }
        assert!(lab::factor::find(FACTORS, "max_size").unwrap().level("2 TiB").is_err());
    }
}
