//! The parsed factors of each method.

use lab::artefact::Recipe;
use lab::factor::{LevelType, Levels};
use lab::method::Params;

use crate::conf::Conf;
use crate::images::supplied;
use crate::kinds::EnclaveKind;
use crate::limits;

/// Every built-in allocator, for inside and outside.
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

/// A factor that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum YesNo {
    /// Off.
    No,
    /// On.
    Yes,
}

/// A level of `tcs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tcs {
    /// As many as threads enter, at least the sample's 8, so that no thread is refused.
    Auto,
    /// A fixed number.
    Count(u64),
}

impl LevelType for Tcs {
    const LEVELS: Levels = Levels::Checked(|text| match text {
        "auto" => Ok(text.into()),
        count => limits::TCS.level(count),
    });

    fn from_level(level: &str) -> Option<Self> {
        match level {
            "auto" => Some(Self::Auto),
            count => count.parse().ok().map(Self::Count),
        }
    }
}

/// The enclave of a point.
#[derive(Debug, Clone, PartialEq, Eq, Params)]
pub struct EnclaveParams {
    /// how the enclave is isolated from the host; none calls the same image directly
    #[factor(default = "simulate")]
    pub kind: EnclaveKind,
    /// the linked allocator: a name, or the path of a static library (*.a)
    #[factor(default = "dlmalloc", levels = Levels::Checked(allocator))]
    pub allocator: String,
    /// NumHeapPages
    #[factor(default = "4096", unit = "pages", levels = Levels::Checked(|text| limits::HEAP.level(text)))]
    pub heap: u64,
    /// NumStackPages
    #[factor(default = "16", levels = Levels::Checked(|text| limits::STACK.level(text)))]
    pub stack: u64,
    /// NumTCS: how many threads may be inside at the same time; auto: as many as enter, at least 8
    #[factor(default = "auto")]
    pub tcs: Tcs,
    /// Debug: whether a debugger may read an enclave of kind sgx
    #[factor(default = "no")]
    pub debug: YesNo,
}

impl EnclaveParams {
    /// Returns the configuration of an enclave that `threads` threads enter.
    pub fn conf(&self, threads: u64) -> Conf {
        let tcs = match self.tcs {
            Tcs::Auto => threads.max(Conf::default().tcs as u64),
            Tcs::Count(tcs) => tcs,
        };
        Conf {
            heap_pages: self.heap as usize,
            stack_pages: self.stack as usize,
            tcs: tcs as usize,
            debug: self.debug == YesNo::Yes,
        }
    }

    /// Returns the path of a user-supplied allocator, which is linked and executed: in `none` and the simulated kinds
    /// by this process.
    pub fn supplied(&self) -> Option<&str> {
        Some(self.allocator.as_str()).filter(|allocator| supplied::is_path(allocator))
    }

    /// Returns the recipe of a user-supplied allocator's image.
    pub fn artefacts(&self) -> Vec<Recipe> {
        self.supplied().map(supplied::recipe).into_iter().collect()
    }
}

/// Params of `allocation`, `heap-sizes` and `heap`.
#[derive(Debug, Clone, PartialEq, Eq, Params)]
pub struct AllocationParams {
    /// The enclave.
    #[factor(flatten)]
    pub enclave: EnclaveParams,
    /// host threads that are inside at the same time
    #[factor(default = "1", levels = Levels::Checked(|text| limits::THREADS.level(text)))]
    pub threads: u64,
    /// upper bound of allocation sizes, exclusive
    #[factor(default = "16 KiB", levels = Levels::Checked(|text| limits::SIZE.bytes(text)))]
    pub max_size: u64,
    /// whether each page of an allocated block is written
    #[factor(default = "no")]
    pub touch: YesNo,
    /// allocations per thread
    #[factor(default = "100000", levels = Levels::Checked(|text| limits::ALLOCATIONS.level(text)))]
    pub num_allocations: u64,
}

/// Which thread frees a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Mode {
    /// Threads replace each other's blocks.
    Larson,
    /// One half of the threads allocates, the other frees.
    ProducerConsumer,
}

/// Params of `cross-thread`.
#[derive(Debug, Clone, PartialEq, Eq, Params)]
pub struct CrossThreadParams {
    /// The enclave.
    #[factor(flatten)]
    pub enclave: EnclaveParams,
    /// larson: threads replace each other's blocks; producer-consumer: one half allocates, the other frees
    #[factor(default = "larson")]
    pub mode: Mode,
    /// host threads that are inside at the same time
    #[factor(default = "1", levels = Levels::Checked(|text| limits::THREADS.level(text)))]
    pub threads: u64,
    /// upper bound of allocation sizes, exclusive
    #[factor(default = "16 KiB", levels = Levels::Checked(|text| limits::SIZE.bytes(text)))]
    pub max_size: u64,
    /// allocations per thread
    #[factor(default = "100000", levels = Levels::Checked(|text| limits::ALLOCATIONS.level(text)))]
    pub num_allocations: u64,
}

/// Params of `smallbank`.
#[derive(Debug, Clone, PartialEq, Eq, Params)]
pub struct SmallBankParams {
    /// The enclave.
    #[factor(flatten)]
    pub enclave: EnclaveParams,
    /// host threads that are inside at the same time
    #[factor(default = "1", levels = Levels::Checked(|text| limits::THREADS.level(text)))]
    pub threads: u64,
    /// customers of the bank, with two accounts each
    #[factor(default = "10", levels = Levels::Checked(|text| limits::ACCOUNTS.level(text)))]
    pub accounts: u64,
    /// transactions of all threads
    #[factor(default = "1000000", levels = Levels::Checked(|text| limits::TRANSACTIONS.level(text)))]
    pub transactions: u64,
}

impl AsRef<Self> for EnclaveParams {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Checks a level of `allocator` and returns its canonical form.
///
/// # Errors
/// Returns the valid levels.
pub fn allocator(text: &str) -> Result<String, String> {
    if ALLOCATORS.contains(&text) || supplied::is_path(text) {
        return Ok(text.into());
    }
    let names = ALLOCATORS.join(", ");
    Err(format!(
        "unknown allocator '{text}'; expected one of {names}, or the path of a static library (*.a)"
    ))
}

#[cfg(test)]
mod tests {
    use lab::factor;
    use lab::point::Point;

    use super::*;

    fn allocation(levels: &[(&str, &str)]) -> AllocationParams {
        let levels = levels.iter().map(|(name, level)| ((*name).to_owned(), (*level).into()));
        AllocationParams::with_defaults(&levels.collect()).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_sample() {
        let params = allocation(&[]);
        let (conf, default) = (params.enclave.conf(params.threads), Conf::default());
        assert_eq!((conf.heap_pages, conf.stack_pages, conf.tcs), (4096, 16, 8));
        assert_eq!((default.heap_pages, default.stack_pages, default.tcs), (4096, 16, 8));
        assert_eq!((params.num_allocations, params.max_size), (100_000, 16 << 10));
        assert_eq!((params.enclave.kind, params.touch), (EnclaveKind::Simulate, YesNo::No));
    }

    #[test]
    fn a_point_overrides_the_defaults() {
        let levels = [
            ("threads", "32"),
            ("max_size", "64 B"),
            ("touch", "yes"),
            ("allocator", "talc"),
            ("debug", "yes"),
        ];
        let params = allocation(&levels);
        assert_eq!((params.threads, params.max_size, params.touch), (32, 64, YesNo::Yes));
        let conf = params.enclave.conf(params.threads);
        assert!(conf.tcs == 32 && conf.debug && params.enclave.allocator == "talc");
        assert_eq!(allocation(&[("tcs", "4")]).enclave.conf(32).tcs, 4);
    }

    /// The values include numbers of pages whose length in bytes overflows.
    #[test]
    fn no_count_beyond_its_limit_is_accepted() {
        let all = [AllocationParams::FACTORS, SmallBankParams::FACTORS].concat();
        for (name, limit) in [
            ("threads", limits::THREADS),
            ("heap", limits::HEAP),
            ("stack", limits::STACK),
            ("tcs", limits::TCS),
            ("num_allocations", limits::ALLOCATIONS),
            ("accounts", limits::ACCOUNTS),
            ("transactions", limits::TRANSACTIONS),
        ] {
            let factor = factor::find(&all, name).unwrap();
            assert!(factor.level(&limit.max.to_string()).is_ok(), "{name}");
            let beyond = (limit.max + 1).to_string();
            let wrong =
                ["0", "4503599627370497", "4503599627374592", "18446744073709551616", "x", &beyond];
            for level in wrong {
                let why = factor.level(level).unwrap_err();
                assert!(why.contains(name) && why.contains("give a number from 1 to"), "{why}");
            }
        }
        for size in ["0 B", "2 TiB", "many"] {
            let point = Point::from([("max_size", size)]);
            assert!(AllocationParams::with_defaults(&point).is_err(), "{size}");
        }
    }
}
