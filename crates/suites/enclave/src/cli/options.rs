//! The options of the Open Enclave sample, and some of tollgate's.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::RangedI64ValueParser;
use lab::experiment::MAX_ROUNDS;
use lab::sample::Failure;

use crate::conf::Conf;
use crate::limits;
use crate::params;

/// A parser that reports the range for negative numbers too.
type Ranged = RangedI64ValueParser<u64>;

/// Run the Open Enclave sample: many threads allocate and free in one enclave, with the default and with pluggable
/// allocators
#[derive(Debug, Parser)]
#[command(name = "enclave", disable_version_flag = true, max_term_width = 100)]
pub(super) struct Options {
    /// Simulate the enclave in this process [default: use SGX]
    #[arg(long)]
    pub(super) simulate: bool,
    /// Allocations per thread
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 100_000, value_parser = Ranged::new().range(limits::ALLOCATIONS.arguments()))]
    pub(super) num_allocations: u64,
    /// Highest thread count; measures 1 to N
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8, value_parser = Ranged::new().range(limits::THREADS.arguments()))]
    pub(super) max_threads: u64,
    /// Allocation sizes are below N bytes
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 16384, value_parser = Ranged::new().range(limits::SIZE.arguments()))]
    pub(super) max_allocation_size: u64,
    /// Configuration file with lines NumHeapPages=N, NumStackPages=N, NumTCS=N, Debug=0 or 1
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Heap size in pages [default: from --conf, or 4096]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = Ranged::new().range(limits::HEAP.arguments()))]
    heap_pages: Option<u64>,
    /// Maximum number of threads inside the enclave at once [default: from --conf, or 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = Ranged::new().range(limits::TCS.arguments()))]
    tcs: Option<u64>,
    /// Default allocator and its alternatives: names, or paths of static libraries (*.a)
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, default_value = "dlmalloc,snmalloc", value_parser = params::allocator)]
    pub(super) allocators: Vec<String>,
    /// Enable an opt-in feature: 'code' links and executes the static libraries of --allocators (repeatable)
    #[arg(long, value_name = "FEATURE")]
    pub(super) allow: Vec<String>,
    /// Number of rounds, each in a fresh process
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(super) rounds: u32,
    /// Results folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(super) results: PathBuf,
    #[command(flatten)]
    pub(super) output: lab::adhoc::OutputArgs,
}

impl Options {
    /// Returns the configuration of the file, overridden by the options.
    ///
    /// # Errors
    /// Returns the first error of the file, with line and key.
    pub(super) fn conf(&self) -> Result<Conf, Failure> {
        let mut conf = self.conf.as_deref().map_or_else(|| Ok(Conf::default()), Conf::read)?;
        if let Some(pages) = self.heap_pages {
            conf.heap_pages = pages as usize;
        }
        if let Some(tcs) = self.tcs {
            conf.tcs = tcs as usize;
        }
        Ok(conf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("enclave").chain(words.split_whitespace()))
    }

    #[test]
    fn the_defaults_are_those_of_the_sample() {
        let options = options("").unwrap();
        assert_eq!((options.num_allocations, options.max_threads), (100_000, 8));
        assert_eq!(options.max_allocation_size, 16384);
        assert_eq!(options.allocators, ["dlmalloc", "snmalloc"]);
        assert_eq!(options.conf().unwrap(), Conf::default());
    }

    #[test]
    fn the_error_for_a_number_out_of_range_states_the_range() {
        let names = ["num-allocations", "max-threads", "max-allocation-size", "heap-pages", "tcs"];
        for name in names.into_iter().chain(["rounds"]) {
            let message = options(&format!("--{name} -1")).unwrap_err().to_string();
            assert!(message.contains("-1 is not in 1.."), "{message}");
            let message = options(&format!("--{name} 0")).unwrap_err().to_string();
            assert!(message.contains("0 is not in 1.."), "{message}");
        }
    }

    #[test]
    fn options_override_the_configuration_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("allocator_demo.conf");
        std::fs::write(&file, "NumHeapPages=8192\nNumTCS=16\n").unwrap();
        let words = format!("--conf {} --tcs 4", file.display());
        let conf = options(&words).unwrap().conf().unwrap();
        assert_eq!((conf.heap_pages, conf.tcs), (8192, 4));
        std::fs::write(&file, "NumHeaps=1\n").unwrap();
        let why = options(&words).unwrap().conf().unwrap_err().why;
        assert!(why.contains("NumHeaps"), "{why}");
    }

    #[test]
    fn an_unknown_allocator_is_refused() {
        let message = options("--allocators dlmalloc,tcmalloc").unwrap_err().to_string();
        assert!(message.contains("tcmalloc"), "{message}");
    }
}
