//! The options of ESCAPE's `memcpy_test`, and a few more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::builder::RangedI64ValueParser;
use lab::experiment::MAX_ROUNDS;
use lab::option;
use lab::suite::UsageError;
use machine::file;

use crate::functions::{self, APEX};
use crate::memory::MemoryKind;
use crate::throughput::MAX_THREADS;
use crate::throughput::{KEEP_MEMORY, MAX_PAUSE, MAX_RUNS, PAUSE, RUNS, SOURCE_OFFSET};

/// Lengths of `memcpy_test`, in bytes.
const LENGTHS: [u64; 10] =
    [16, 256, 1 << 10, 4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20];

const IDS: &str = "Experiment IDs [default: all]:
  0  write-heap            the program writes to the heap
  1  read-heap             the program reads from the heap
  2  write-host-physical   writes to this host's memory, mapped by its physical address
  3  read-host-physical    reads this host's memory, mapped by its physical address
  4  write-device          writes to device memory, mapped by its physical address
  5  read-device           reads device memory, mapped by its physical address
2 to 5 map /dev/mem as root and require --allow physical. 2 and 4 write it and also require
--allow physical-write, as do 3 and 5 with -i 0, which fills the source. 2 and 3 require
--set physical-address=ADDRESS, 4 and 5 --set device-address=ADDRESS.

Examples:
  tollgate copy 0 1 -r 1000 -n 2
  sudo tollgate copy 5 -i 1 --allow physical --set device-address=0x2080000000";

/// Reports the range for a negative number too.
type Ranged = RangedI64ValueParser<u64>;

/// Copy between the heap and another kind of memory, as ESCAPE's memcpy_test does
#[derive(Debug, Parser)]
#[command(name = "copy", after_help = IDS, disable_version_flag = true)]
pub(super) struct Options {
    /// Experiments by number or name
    #[arg(value_name = "ID", allow_negative_numbers = true, value_parser = EscapeTest::parse)]
    pub(super) ids: Vec<EscapeTest>,
    /// Source data to initialise: 0 all, 1 only in this program's memory, to read data written by
    /// another host
    #[arg(short = 'i', default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(super) source_init: u8,
    /// Use the first LENGTHS of 16 B, 256 B, 1 KiB, 4 KiB, 64 KiB, 512 KiB, 1 MiB, 4 MiB, 16 MiB, 256 MiB
    #[arg(short = 'n', default_value_t = 9, allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub(super) lengths: u8,
    /// Number added to the index of each source byte
    #[arg(short = 'o', default_value_t = 0, allow_negative_numbers = true)]
    pub(super) source_offset: u64,
    /// Minimum number of consecutive copies per sample
    #[arg(short = 'r', default_value_t = 5, allow_negative_numbers = true,
        value_parser = Ranged::new().range(1..=MAX_RUNS.cast_signed()))]
    pub(super) runs: u64,
    /// Worker threads in the pool; 0: the caller copies
    #[arg(short = 't', default_value_t = 0, allow_negative_numbers = true,
        value_parser = Ranged::new().range(0..=MAX_THREADS.cast_signed()))]
    pub(super) threads: u64,
    /// Sleep this many seconds before every 4 bytes, to watch data arrive; one copy per length and function
    #[arg(short = 'z', default_value_t = 0, allow_negative_numbers = true,
        value_parser = Ranged::new().range(0..=MAX_PAUSE.cast_signed()))]
    pub(super) sleep: u64,
    /// Additional function from a shared object; requires --allow code (repeatable)
    #[arg(long = "function", value_name = "PATH.so:SYMBOL")]
    pub(super) functions: Vec<String>,
    /// Number of rounds, each in a fresh process
    #[arg(long, default_value_t = 10, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(super) rounds: u32,
    /// Enable an opt-in feature: physical, physical-write, code (repeatable)
    #[arg(long, value_name = "FEATURE")]
    allow: Vec<String>,
    /// Set an option, e.g. 'device-address=0x2080000000' (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Nice value of the run, from -20 (highest priority) to 19
    #[arg(long, value_name = "NICE", allow_hyphen_values = true,
        value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(super) priority: Option<i32>,
    /// Results folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(super) results: PathBuf,
    #[command(flatten)]
    pub(super) output: lab::adhoc::OutputArgs,
    /// CSV file for the table
    #[arg(long, value_name = "FILE", default_value = "results.csv")]
    pub(super) csv: PathBuf,
}

/// One of the six experiments of `memcpy_test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EscapeTest {
    /// Its number in `memcpy_test`.
    pub(super) id: usize,
    name: &'static str,
    pub(super) direction: &'static str,
    pub(super) memory: MemoryKind,
    /// Text of `memcpy_test`'s output.
    pub(super) description: &'static str,
    /// Bytes that `memcpy_test` maps.
    pub(super) mapped: u64,
}

const fn test(
    id: usize,
    name: &'static str,
    direction: &'static str,
    memory: MemoryKind,
    description: &'static str,
) -> EscapeTest {
    let mapped = if matches!(memory, MemoryKind::HostPhysical) { 512 << 10 } else { 256 << 20 };
    EscapeTest { id, name, direction, memory, description, mapped }
}

const ESCAPE_TESTS: [EscapeTest; 6] = [
    test(0, "write-heap", "write", MemoryKind::Heap, "App writes to host-heap"),
    test(1, "read-heap", "read", MemoryKind::Heap, "App reads from host-heap"),
    test(2, "write-host-physical", "write", MemoryKind::HostPhysical, "App writes to host-mmap"),
    test(3, "read-host-physical", "read", MemoryKind::HostPhysical, "App reads from host-mmap"),
    test(4, "write-device", "write", MemoryKind::Device, "App writes to escape-mmap"),
    test(5, "read-device", "read", MemoryKind::Device, "App reads from escape-mmap"),
];

impl EscapeTest {
    fn parse(text: &str) -> Result<Self, String> {
        let test =
            ESCAPE_TESTS.into_iter().find(|test| test.name == text || test.id.to_string() == text);
        test.ok_or_else(|| {
            format!("expected 0 to 5, or one of {}", ESCAPE_TESTS.map(|test| test.name).join(", "))
        })
    }
}

impl Options {
    /// Returns the experiments in the order of the arguments, without duplicates.
    ///
    /// # Errors
    /// Returns an error for a function that is not spelled `PATH.so:SYMBOL`.
    pub(super) fn tests(&self) -> Result<Vec<EscapeTest>, UsageError> {
        let mut tests: Vec<EscapeTest> = Vec::new();
        for test in &self.ids {
            if !tests.contains(test) {
                tests.push(*test);
            }
        }
        for function in &self.functions {
            let supplied = functions::shared_object(function).is_some();
            if !supplied || functions::check(function).is_err() {
                let line =
                    format!("--function: '{function}' names no symbol; write PATH.so:SYMBOL");
                return Err(UsageError::new(line));
            }
        }
        Ok(if tests.is_empty() { ESCAPE_TESTS.to_vec() } else { tests })
    }

    /// Checks that each shared object of `--function` is a regular file, before any measurement.
    ///
    /// # Errors
    /// Returns an error that names the first one that is not.
    pub(super) fn check_objects(&self) -> Result<(), UsageError> {
        let mut paths = self.functions.iter().filter_map(|one| functions::shared_object(one));
        paths.try_for_each(|path| {
            let found = Path::new(path).canonicalize().and_then(|path| file::open(&path));
            found.map(drop).map_err(|why| {
                UsageError::new(format!(
                    "--function: cannot load {path}: {why}; name a shared object"
                ))
            })
        })
    }

    /// Returns the number of consecutive copies that the table states.
    pub(super) fn copies_per_sample(&self) -> u64 {
        if self.sleep > 0 { 1 } else { self.runs }
    }

    /// Returns the requested number of `memcpy_test`'s lengths.
    pub(super) fn lengths(&self) -> &'static [u64] {
        &LENGTHS[..usize::from(self.lengths).min(LENGTHS.len())]
    }

    /// Returns the functions: those of `memcpy_test`, with ours in place of apex if that is not supplied, and the user's.
    pub(super) fn functions(&self) -> Vec<String> {
        let is_apex = |text: &String| text.split_once('=').is_some_and(|(name, _)| name == APEX);
        let third = if self.set.iter().any(is_apex) { APEX } else { "tollgate" };
        let known = ["glibc", "naive", third].map(String::from);
        known.into_iter().chain(self.functions.iter().cloned()).collect()
    }

    /// Returns the options for the probes.
    ///
    /// # Errors
    /// Returns an error for an unknown name, a value not of the form `NAME=VALUE`, or code that is not
    /// allowed.
    pub(super) fn for_probes(&self) -> Result<BTreeMap<String, String>, UsageError> {
        let mut options = option::read(&[&crate::SUITE], &self.allow, &self.set)?;
        options.extend([
            (RUNS.to_owned(), self.runs.to_string()),
            (PAUSE.to_owned(), self.sleep.to_string()),
            (SOURCE_OFFSET.to_owned(), self.source_offset.to_string()),
        ]);
        if let Some(function) = self.functions.first() {
            option::check_code_argument(&options, "--function", function)?;
        }
        if let Some(object) = options.get(APEX) {
            option::check_code_argument(&options, "--set apex", object)?;
        }
        if self.source_init == 1 {
            options.insert(KEEP_MEMORY.to_owned(), "yes".to_owned());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ALLOW;
    use clap::CommandFactory;
    use lab::option::ALLOW_CODE;

    fn parse(words: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("copy").chain(words.split_whitespace()))
    }

    #[test]
    fn defaults_are_those_of_memcpy_test() {
        Options::command().debug_assert();
        let options = parse("").unwrap();
        assert_eq!(options.tests().unwrap().len(), 6);
        assert_eq!(options.lengths().len(), 9);
        assert_eq!(
            (options.source_init, options.runs, options.threads, options.sleep),
            (0, 5, 0, 0)
        );
        assert_eq!(options.functions(), ["glibc", "naive", "tollgate"]);
    }

    #[test]
    fn the_example_of_memcpy_test_is_parsed() {
        let options = parse("0 1 -r 1000 -n 2 -i1 -o 3").unwrap();
        let tests = options.tests().unwrap();
        assert_eq!(tests.iter().map(|test| test.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(options.lengths(), [16, 256]);
        let options = options.for_probes().unwrap();
        assert_eq!(options[RUNS], "1000");
        assert_eq!(options[SOURCE_OFFSET], "3");
        assert!(options.contains_key(KEEP_MEMORY));
    }

    #[test]
    fn names_and_numbers_select_the_same_experiment() {
        for test in ESCAPE_TESTS {
            assert_eq!(EscapeTest::parse(test.name), EscapeTest::parse(&test.id.to_string()));
        }
        let options =
            parse("read-device 5 --allow physical --set device-address=0x1000 --priority -20")
                .unwrap();
        assert_eq!(options.tests().unwrap(), [ESCAPE_TESTS[5]]);
        assert_eq!(options.priority, Some(-20));
        let options = options.for_probes().unwrap();
        assert!(options.contains_key(ALLOW) && options["device-address"] == "0x1000");
    }

    #[test]
    fn a_user_supplied_function_requires_permission() {
        let options = |words| parse(words).unwrap().for_probes();
        assert!(!options("0").unwrap().contains_key(ALLOW_CODE));
        let line = options("0 --function ./mine.so:f").unwrap_err().to_string();
        assert!(line.contains("./mine.so:f") && line.contains("--allow code"), "{line}");
        assert_eq!(options("0 --function ./mine.so:f --allow code").unwrap()[ALLOW_CODE], "yes");
        let line = options("0 --set apex=./apex.so:f").unwrap_err().to_string();
        assert!(line.starts_with("--set apex: ./apex.so:f") && line.contains("--allow code"));
    }

    #[test]
    fn ours_replaces_apex_unless_it_is_supplied() {
        let functions = |words| parse(words).unwrap().functions();
        assert_eq!(functions("0"), ["glibc", "naive", "tollgate"]);
        let supplied = functions("0 --set apex=./apex.so:f --allow code");
        assert_eq!(supplied, ["glibc", "naive", "apex"]);
    }

    #[test]
    fn a_missing_shared_object_is_reported_before_measuring() {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("mine.so");
        let check = |path: &std::path::Path| {
            parse(&format!("0 --function {}:f", path.display())).unwrap().check_objects()
        };
        for path in [object.as_path(), folder.path()] {
            let line = check(path).unwrap_err().to_string();
            assert!(line.contains(&format!("cannot load {}: ", path.display())), "{line}");
        }
        std::fs::write(&object, "").unwrap();
        check(&object).unwrap();
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for words in [
            "6",
            "-n 11",
            "-n 0",
            "-i 2",
            "-t 65",
            "-t 18446744073709551616",
            "-r 0",
            "-r 1000000001",
            "-r -1",
            "-z 3601",
            "-o -1",
            "--rounds 0",
            "--rounds 100001",
            "--priority 99",
            "heap",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        for option in ["-i", "-n", "-r", "-t", "-z", "--rounds"] {
            let message = parse(&format!("{option} -1")).unwrap_err().to_string();
            assert!(message.contains("-1 is not in "), "{message}");
        }
        assert!(parse("-1").unwrap_err().to_string().contains("expected 0 to 5"));
        for function in ["mine", ":f", "mine.so:", ":"] {
            let refused = parse(&format!("--function {function}")).unwrap().tests().unwrap_err();
            assert!(refused.to_string().contains("PATH.so:SYMBOL"), "{refused}");
        }
        for words in [
            "--set here",
            "--set runs=5",
            "--set allow-code=yes",
            "--allow everything",
            "--set file-folder=",
            "--set device-address=here",
            "--set source-offset=-1",
            "--set file-folder=/a --set file-folder=/b",
        ] {
            assert!(parse(words).unwrap().for_probes().is_err(), "{words}");
        }
    }
}
