//! The options of the seed's tool, and a few of our own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::builder::RangedI64ValueParser;
use lab::experiment::MAX_ROUNDS;
use lab::option;
use lab::suite::UsageError;
use machine::file;

use crate::functions;
use crate::memory::Kind;
use crate::throughput::MAX_THREADS;
use crate::throughput::{KEEP_MEMORY, MOST_PAUSE, MOST_RUNS, PAUSE, RUNS, SOURCE_OFFSET};

/// The seed's lengths, bytes.
const LENGTHS: [u64; 10] =
    [16, 256, 1 << 10, 4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20];

const IDS: &str = "Experiment IDs (default: all):
  0  write-heap            the program writes to the heap
  1  read-heap             the program reads from the heap
  2  write-host-physical   writes to this host's memory, mapped by its physical address
  3  read-host-physical    reads from it
  4  write-device          writes to device memory, mapped by its physical address
  5  read-device           reads from it
2 to 5 map /dev/mem as root, and only with --allow physical; 2 and 4 write it only with
--allow physical-write, and so do 3 and 5 with -i 0, to fill the source. 2 and 3 need
--set physical-address=ADDRESS, 4 and 5 --set device-address=ADDRESS.

Examples:
  tollgate copy 0 1 -r 1000 -n 2
  sudo tollgate copy 5 -i 1 --allow physical --set device-address=0x2080000000";

/// Says of a negative number too what the range is.
type Ranged = RangedI64ValueParser<u64>;

/// Copies between the program's memory and another, as the seed's memcpy_test does
#[derive(Debug, Parser)]
#[command(name = "copy", after_help = IDS, disable_version_flag = true)]
pub(super) struct Options {
    /// Which experiments, by number or name
    #[arg(value_name = "ID", allow_negative_numbers = true, value_parser = Pair::parse)]
    pub(super) ids: Vec<Pair>,
    /// Which source data is initialised: 0 all, 1 only the program's own (so that a reader finds
    /// what another host wrote)
    #[arg(short = 'i', default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(super) source_init: u8,
    /// Number of lengths: 16 B, 256 B, 1 KiB, 4 KiB, 64 KiB, 512 KiB, 1, 4, 16 and 256 MiB
    #[arg(short = 'n', default_value_t = 9, allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub(super) lengths: u8,
    /// What is added to the index of each byte of the source
    #[arg(short = 'o', default_value_t = 0, allow_negative_numbers = true)]
    pub(super) source_offset: u64,
    /// Copies in a row for each sample, at least
    #[arg(short = 'r', default_value_t = 5, allow_negative_numbers = true,
        value_parser = Ranged::new().range(1..=MOST_RUNS.cast_signed()))]
    pub(super) runs: u64,
    /// Worker threads in the pool; 0: the caller copies
    #[arg(short = 't', default_value_t = 0, allow_negative_numbers = true,
        value_parser = Ranged::new().range(0..=MAX_THREADS.cast_signed()))]
    pub(super) threads: u64,
    /// Seconds of sleep before every 4 bytes, to watch data arrive; one copy each, nothing repeated
    #[arg(short = 'z', default_value_t = 0, allow_negative_numbers = true,
        value_parser = Ranged::new().range(0..=MOST_PAUSE.cast_signed()))]
    pub(super) sleep: u64,
    /// Another function, from a shared object, with --allow code; repeatable
    #[arg(long = "function", value_name = "PATH.so:SYMBOL")]
    pub(super) functions: Vec<String>,
    /// Rounds, each in a fresh process
    #[arg(long, default_value_t = 10, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(super) rounds: u32,
    /// Allow what is off by itself: physical, physical-write, code; repeatable
    #[arg(long, value_name = "WHAT")]
    allow: Vec<String>,
    /// Set an option, as 'device-address=0x2080000000'; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Run at this priority, as nice does: -20 is the highest
    #[arg(long, value_name = "NICE", allow_hyphen_values = true,
        value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(super) priority: Option<i32>,
    /// The folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(super) results: PathBuf,
    #[command(flatten)]
    pub(super) output: lab::adhoc::OutputArgs,
    /// The file of the table
    #[arg(long, value_name = "FILE", default_value = "results.csv")]
    pub(super) csv: PathBuf,
}

/// One of the seed's six experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    /// The seed's number.
    pub(super) id: usize,
    name: &'static str,
    pub(super) direction: &'static str,
    pub(super) memory: Kind,
    /// As in the seed's output.
    pub(super) description: &'static str,
    /// Bytes that the seed maps.
    pub(super) mapped: u64,
}

const fn pair(
    id: usize,
    name: &'static str,
    direction: &'static str,
    memory: Kind,
    description: &'static str,
) -> Pair {
    let mapped = if matches!(memory, Kind::HostPhysical) { 512 << 10 } else { 256 << 20 };
    Pair { id, name, direction, memory, description, mapped }
}

const PAIRS: [Pair; 6] = [
    pair(0, "write-heap", "write", Kind::Heap, "App writes to host-heap"),
    pair(1, "read-heap", "read", Kind::Heap, "App reads from host-heap"),
    pair(2, "write-host-physical", "write", Kind::HostPhysical, "App writes to host-mmap"),
    pair(3, "read-host-physical", "read", Kind::HostPhysical, "App reads from host-mmap"),
    pair(4, "write-device", "write", Kind::Device, "App writes to escape-mmap"),
    pair(5, "read-device", "read", Kind::Device, "App reads from escape-mmap"),
];

impl Pair {
    fn parse(text: &str) -> Result<Self, String> {
        let pair = PAIRS.into_iter().find(|pair| pair.name == text || pair.id.to_string() == text);
        pair.ok_or_else(|| {
            format!("there are 0 to 5, or {}", PAIRS.map(|pair| pair.name).join(", "))
        })
    }
}

impl Options {
    /// The experiments in the order in which they were asked for, each once.
    ///
    /// # Errors
    /// A function that is not spelled as one of a shared object.
    pub(super) fn pairs(&self) -> Result<Vec<Pair>, UsageError> {
        let mut pairs: Vec<Pair> = Vec::new();
        for pair in &self.ids {
            if !pairs.contains(pair) {
                pairs.push(*pair);
            }
        }
        for function in &self.functions {
            let supplied = functions::shared_object(function).is_some();
            if !supplied || functions::check(function).is_err() {
                let line = format!("--function: '{function}' names no symbol; give PATH.so:SYMBOL");
                return Err(UsageError::new(line));
            }
        }
        Ok(if pairs.is_empty() { PAIRS.to_vec() } else { pairs })
    }

    /// Checks that each shared object of `--function` is a regular file, before anything is measured.
    ///
    /// # Errors
    /// Names the first one that is not.
    pub(super) fn check_objects(&self) -> Result<(), UsageError> {
        let mut paths = self.functions.iter().filter_map(|one| functions::shared_object(one));
        paths.try_for_each(|path| {
            let found = Path::new(path).canonicalize().and_then(|path| file::open(&path));
            found.map(drop).map_err(|why| {
                UsageError::new(format!(
                    "--function: cannot load {path}: {why}; give the path of a shared object"
                ))
            })
        })
    }

    /// Copies in a row, as the table tells them.
    pub(super) fn made(&self) -> u64 {
        if self.sleep > 0 { 1 } else { self.runs }
    }

    /// The seed's lengths, as many as asked for.
    pub(super) fn lengths(&self) -> &'static [u64] {
        &LENGTHS[..usize::from(self.lengths).min(LENGTHS.len())]
    }

    /// The functions: the seed's, with ours for apex, and the person's own.
    pub(super) fn functions(&self) -> Vec<String> {
        let known = ["glibc", "naive", "tollgate"].map(String::from);
        known.into_iter().chain(self.functions.iter().cloned()).collect()
    }

    /// What the probes must know.
    ///
    /// # Errors
    /// An unknown name, a value that is not given as `NAME=VALUE`, code that is not allowed.
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
    fn the_seeds_options_have_their_defaults() {
        Options::command().debug_assert();
        let options = parse("").unwrap();
        assert_eq!(options.pairs().unwrap().len(), 6);
        assert_eq!(options.lengths().len(), 9);
        assert_eq!(
            (options.source_init, options.runs, options.threads, options.sleep),
            (0, 5, 0, 0)
        );
        assert_eq!(options.functions(), ["glibc", "naive", "tollgate"]);
    }

    #[test]
    fn the_seeds_example_is_read() {
        let options = parse("0 1 -r 1000 -n 2 -i1 -o 3").unwrap();
        let pairs = options.pairs().unwrap();
        assert_eq!(pairs.iter().map(|pair| pair.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(options.lengths(), [16, 256]);
        let options = options.for_probes().unwrap();
        assert_eq!(options[RUNS], "1000");
        assert_eq!(options[SOURCE_OFFSET], "3");
        assert!(options.contains_key(KEEP_MEMORY));
    }

    #[test]
    fn names_and_numbers_are_the_same() {
        for pair in PAIRS {
            assert_eq!(Pair::parse(pair.name), Pair::parse(&pair.id.to_string()));
        }
        let options =
            parse("read-device 5 --allow physical --set device-address=0x1000 --priority -20")
                .unwrap();
        assert_eq!(options.pairs().unwrap(), [PAIRS[5]]);
        assert_eq!(options.priority, Some(-20));
        let options = options.for_probes().unwrap();
        assert!(options.contains_key(ALLOW) && options["device-address"] == "0x1000");
    }

    #[test]
    fn a_function_of_ones_own_needs_to_be_allowed() {
        let options = |words| parse(words).unwrap().for_probes();
        assert!(!options("0").unwrap().contains_key(ALLOW_CODE));
        let line = options("0 --function ./mine.so:f").unwrap_err().to_string();
        assert!(line.contains("./mine.so:f") && line.contains("--allow code"), "{line}");
        assert_eq!(options("0 --function ./mine.so:f --allow code").unwrap()[ALLOW_CODE], "yes");
    }

    #[test]
    fn a_shared_object_that_is_no_file_is_told_at_once() {
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
    fn what_is_wrong_is_refused() {
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
            let told = parse(&format!("{option} -1")).unwrap_err().to_string();
            assert!(told.contains("-1 is not in "), "{told}");
        }
        assert!(parse("-1").unwrap_err().to_string().contains("there are 0 to 5"));
        for function in ["mine", ":f", "mine.so:", ":"] {
            let refused = parse(&format!("--function {function}")).unwrap().pairs().unwrap_err();
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
