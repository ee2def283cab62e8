//! Debian's `mbw` (memory bandwidth), an external program, as another copy function.
//!
//! mbw copies one array to another, both in its heap, and prints MiB copied per second, each byte
//! counted once, as in this suite. It allocates and fills its arrays before it times.

// mbw may print any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::process::Command;
use std::time::Duration;

use lab::program::Program;
use lab::sample::Failure;

/// Copies per run of the program; the result is their median.
const RUNS: u32 = 3;
const MIB: u64 = 1 << 20;
/// Time limit of the program in addition to its copies.
const START: Duration = Duration::from_secs(60);
/// Minimum MiB per second that it fills and copies, all runs together, even on a busy machine.
const MIN_RATE: u64 = 10;

/// A way in which mbw copies. Its third method, MCBLOCK, is excluded because it is no copy: in version
/// 1.2.2 it advances its destination but not its source, and so reads one block again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// memcpy of the whole array.
    Memcpy,
    /// A loop over 8-byte words.
    Dumb,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 2] = [Self::Memcpy, Self::Dumb];

    /// Returns the level of the factor `function`.
    pub fn level(self) -> &'static str {
        match self {
            Self::Memcpy => "mbw-memcpy",
            Self::Dumb => "mbw-dumb",
        }
    }

    /// Returns the method of a level, if it is one.
    pub fn from_level(level: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.level() == level)
    }

    fn option(self) -> &'static str {
        match self {
            Self::Memcpy => "-t0",
            Self::Dumb => "-t1",
        }
    }

    fn printed(self) -> &'static str {
        match self {
            Self::Memcpy => "MEMCPY",
            Self::Dumb => "DUMB",
        }
    }
}

/// One copy of the array, as mbw reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Rate that mbw printed, bytes/s.
    pub rate: f64,
    /// Duration of the copy, in ns.
    pub nanoseconds: f64,
    /// Step of mbw's clock, gettimeofday(2), in ns.
    pub step: f64,
}

/// The program.
pub const PROGRAM: Program = Program {
    name: "mbw",
    capability: "mbw",
    about: "Debian's memory bandwidth benchmark",
    package: "mbw",
};

/// Has mbw copy `length` bytes [`RUNS`] times.
///
/// # Errors
/// Returns an error if mbw is absent, cannot copy this length, fails or prints unexpected output.
pub fn run(method: Method, length: u64) -> Result<Vec<Run>, Failure> {
    if length == 0 || !length.is_multiple_of(MIB) {
        return Err(Failure::unavailable(
            "mbw copies whole MiB only",
            "use a length that is a multiple of 1 MiB",
        ));
    }
    let mebibytes = length / MIB;
    let mut command = Command::new("mbw");
    command.args(["-a", method.option(), "-n", &RUNS.to_string(), &mebibytes.to_string()]);
    let limit = START.saturating_add(Duration::from_secs(mebibytes / MIN_RATE));
    let output = PROGRAM.output(&mut command, limit)?;
    parse(&output, method, mebibytes).map_err(Failure::failed)
}

/// Parses mbw's lines: `0 Method: MEMCPY Elapsed: 0.01386 MiB: 256.00000 Copy: 18470.418 MiB/s`.
fn parse(output: &str, method: Method, mebibytes: u64) -> Result<Vec<Run>, String> {
    let lines = output.lines().filter(|line| line.contains("Method:"));
    let runs: Result<Vec<_>, _> = lines.map(|line| parse_line(line, method, mebibytes)).collect();
    let runs = runs?;
    if runs.len() == RUNS as usize {
        Ok(runs)
    } else {
        Err(format!("mbw printed {} of {RUNS} results", runs.len()))
    }
}

fn parse_line(line: &str, method: Method, mebibytes: u64) -> Result<Run, String> {
    let wrong = || format!("unexpected output of mbw: '{}'", line.trim());
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| {
        words.iter().position(|one| *one == word).and_then(|at| words.get(at.saturating_add(1)))
    };
    let number = |word: &str| {
        let number = after(word)?.parse::<f64>().ok()?;
        (number.is_finite() && number > 0.0).then_some(number)
    };
    let (elapsed, copied) =
        (number("Elapsed:").ok_or_else(wrong)?, number("MiB:").ok_or_else(wrong)?);
    let rate = number("Copy:").ok_or_else(wrong)?;
    let named = after("Method:") == Some(&method.printed());
    // mbw prints the time rounded to 10 us but computes the rate from the exact time.
    let step = 1e-5;
    let agrees = (copied / rate - elapsed).abs() <= step;
    if !named || copied != mebibytes as f64 || words.last() != Some(&"MiB/s") || !agrees {
        return Err(wrong());
    }
    Ok(Run { rate: rate * MIB as f64, nanoseconds: copied / rate * 1e9, step: 1e3 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUTPUT: &str = "Long uses 8 bytes. Allocating 2*2097152 elements = 33554432 bytes of memory.\n\
        Getting down to business... Doing 3 runs per test.\n\
        0\tMethod: MEMCPY\tElapsed: 0.00192\tMiB: 16.00000\tCopy: 8316.008 MiB/s\n\
        1\tMethod: MEMCPY\tElapsed: 0.00572\tMiB: 16.00000\tCopy: 2796.225 MiB/s\n\
        2\tMethod: MEMCPY\tElapsed: 0.00150\tMiB: 16.00000\tCopy: 10673.783 MiB/s\n";

    #[test]
    fn its_output_is_parsed() {
        let runs = parse(OUTPUT, Method::Memcpy, 16).unwrap();
        assert_eq!(runs.len(), 3);
        assert_eq!(runs[0].rate, 8316.008 * 1_048_576.0);
        assert!((runs[2].nanoseconds - 1_499_000.0).abs() < 1_000.0);
    }

    #[test]
    fn unexpected_output_is_refused() {
        let refused = |output: &str| parse(output, Method::Memcpy, 16).unwrap_err();
        assert_eq!(refused(""), "mbw printed 0 of 3 results");
        assert_eq!(refused(OUTPUT.split("\n2\t").next().unwrap()), "mbw printed 2 of 3 results");
        for (from, to) in [
            ("8316.008", "nan"),
            ("8316.008", "fast"),
            ("8316.008", "83160.08"),
            ("8316.008 MiB/s", "8316.008 GiB/s"),
            ("16.00000\tCopy: 8316", "32.00000\tCopy: 8316"),
            ("MEMCPY\tElapsed: 0.00192", "DUMB\tElapsed: 0.00192"),
            ("Elapsed: 0.00192", "Elapsed: -1"),
        ] {
            let why = refused(&OUTPUT.replacen(from, to, 1));
            assert!(why.starts_with("unexpected output of mbw: '0\tMethod"), "{why}");
        }
    }

    #[test]
    fn mbw_copies_or_its_remedy_names_the_package() {
        match PROGRAM.find() {
            Ok(_) => {
                let runs = run(Method::Dumb, 1 << 20).unwrap();
                assert!(runs.iter().all(|run| run.rate > 1e7), "{runs:?}");
            }
            Err(failure) => {
                assert_eq!(failure.remedy.as_deref(), Some("apt-get install mbw"));
                machine::untested::note("a copy by mbw", &failure);
            }
        }
        assert!(run(Method::Dumb, 1000).is_err());
    }

    proptest! {
        #[test]
        fn no_output_causes_a_panic(output in "(Method:|MEMCPY|Elapsed:|[0-9.]{1,5}|MiB/s|MiB:|Copy:|\n|\t| ){0,40}") {
            let _ = parse(&output, Method::Memcpy, 16);
        }
    }
}
