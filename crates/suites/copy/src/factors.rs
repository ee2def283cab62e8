//! What the copying experiments vary.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::factor::{Factor, Levels};

use crate::functions;
use crate::lengths::Lengths;
use crate::limit::mbw::Method;
use crate::memory::Kind;
use crate::throughput::NAIVE_COMPILED;

/// The most threads that a point may ask for: the seed's.
pub const MOST_THREADS: u64 = 64;

/// The factors of `copy/throughput`, `copy/functions` and `copy/limit`.
pub const FACTORS: &[Factor] = &[
    Factor {
        name: "direction",
        about: "whether the program writes to the memory or reads from it",
        levels: Levels::Names(&["write", "read"]),
        default: None,
    },
    Factor {
        name: "memory",
        about: "the memory: heap, heap-huge, shared, file-mapped, file-io, host-physical, device, pci-bar, dax, numa-node-N",
        levels: Levels::Checked(|text| Kind::parse(text).map(|kind| kind.to_string())),
        default: None,
    },
    Factor {
        name: "length",
        about: "bytes a copy: '64 KiB', 'uniform 1..64 B', 'log-uniform 1 B..4 KiB', 'mix fleet'",
        levels: Levels::Checked(Lengths::spelled),
        default: None,
    },
    Factor {
        name: "function",
        about: "what copies: a function of the suite, PATH.so:SYMBOL, or a method of the program mbw",
        levels: Levels::Checked(function),
        default: None,
    },
    Factor {
        name: "threads",
        about: "0: the caller copies; 1 to 64: so many pinned threads",
        levels: Levels::Checked(|text| threads(text).map(|threads| threads.to_string())),
        default: None,
    },
    Factor {
        name: "mode",
        about: "what threads share: jobs (each a whole copy), split (each a slice of one copy), or the source's queue",
        levels: Levels::Names(&["jobs", "split", "queue"]),
        default: None,
    },
    Factor {
        name: "offset",
        about: "destination minus source within a page, bytes: 0 to 4095",
        levels: Levels::Checked(|text| offset(text).map(|offset| offset.to_string())),
        default: None,
    },
    Factor {
        name: "use",
        about: "throughput (copies back to back) or latency (each waits for what the last delivered)",
        levels: Levels::Names(&["throughput", "latency"]),
        default: None,
    },
    Factor {
        name: "touch",
        about: "warm (all pages present) or cold (each copy is the first touch of its destination)",
        levels: Levels::Names(&["warm", "cold"]),
        default: None,
    },
    Factor {
        name: "buffers",
        about: "one pair of buffers, or rotating through more than the last-level cache holds",
        levels: Levels::Names(&["one", "rotating"]),
        default: None,
    },
];

fn function(text: &str) -> Result<String, String> {
    let known = functions::all().iter().chain([functions::load_store_limit()]);
    let known = known.map(|function| function.name);
    let known = known.chain([NAIVE_COMPILED]);
    let known: Vec<_> = known.chain(Method::ALL.map(Method::level)).collect();
    let supplied = functions::shared_object(text).is_some();
    if known.contains(&text) || (supplied && functions::check(text).is_ok()) {
        return Ok(text.into());
    }
    Err(format!("'{text}' is not one of {}, nor PATH.so:SYMBOL", known.join(", ")))
}

/// Reads a level of `threads`.
///
/// # Errors
/// One line with the range.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<u64>() {
        Ok(threads @ ..=MOST_THREADS) => Ok(threads as usize),
        _ => Err(format!("'{text}' is not a number of threads from 0 to {MOST_THREADS}")),
    }
}

/// Reads a level of `offset`, bytes.
///
/// # Errors
/// One line with the range.
pub fn offset(text: &str) -> Result<usize, String> {
    match text.parse::<u16>() {
        Ok(offset @ ..=4095) => Ok(offset.into()),
        _ => Err(format!("'{text}' is not a number of bytes from 0 to 4095")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_factor_has_levels_and_refuses_nonsense() {
        let levels = [
            ("direction", "read"),
            ("memory", "numa-node-1"),
            ("length", "uniform 1..64 B"),
            ("function", "./mine.so:copy"),
            ("threads", "64"),
            ("mode", "split"),
            ("offset", "4095"),
            ("use", "latency"),
            ("touch", "cold"),
            ("buffers", "rotating"),
        ];
        assert_eq!(levels.len(), FACTORS.len());
        for ((name, level), factor) in levels.into_iter().zip(FACTORS) {
            assert_eq!(name, factor.name);
            assert_eq!(factor.level(level).unwrap().as_str(), level);
            assert!(factor.level("65x").unwrap_err().contains(name));
        }
        assert!(threads("65").is_err() && offset("4096").is_err() && function(":f").is_err());
        assert!(function("mbw-mcblock").is_ok());
    }
}
