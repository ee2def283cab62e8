//! `perf bench syscall basic`, an external program: getppid through libc, timed by gettimeofday.

use std::process::Command;
use std::time::Duration;

use lab::measure::Measurement;
use lab::program::Program;
use lab::sample::Failure;
use lab::statistics;

use super::batch::Timing;
use super::syscalls::LibcLoop;

/// Runs of the program per sample. The value is the median of their means.
const RUNS: u32 = 5;
/// Minimum duration of a run, because its clock counts microseconds.
const MIN_RUN: Duration = Duration::from_millis(2);
/// Start-up time of the program, which it does not measure.
const START_UP: Duration = Duration::from_millis(15);

/// The program.
pub const PROGRAM: Program = Program {
    name: "perf",
    capability: "perf",
    about: "perf bench, for comparison of round trips",
    package: "linux-perf",
};

/// Estimates the time of a sample, including the starts of the program.
pub(super) fn expected(budget: Duration) -> Duration {
    ((budget / RUNS).max(MIN_RUN) + START_UP) * RUNS
}

/// Runs perf bench for about the budget.
///
/// # Errors
/// Returns `unavailable` without perf, `failed` if it fails or its output is unexpected.
pub(super) fn measure(timing: Timing) -> Result<Measurement, Failure> {
    let loops = calls_per_run(timing)?;
    // Ample even on a busy machine.
    let limit = Duration::from_secs(60) + expected(timing.budget) * 10;
    let times: Result<Vec<f64>, Failure> = (0..RUNS).map(|_| run(loops, limit)).collect();
    let times = times?;
    let median = statistics::median(&times).ok_or_else(|| Failure::failed("perf was not run"))?;
    Ok(Measurement::default()
        .value("time", median)
        .value("time_min", times.into_iter().fold(f64::INFINITY, f64::min))
        .value("operations", f64::from(RUNS) * loops as f64))
}

/// Returns the number of calls for one run's share of the budget, from a short measurement of one call.
fn calls_per_run(timing: Timing) -> Result<u64, Failure> {
    let short = Timing { budget: Duration::ZERO, ..timing };
    let batches = short.batches(&mut LibcLoop::new())?;
    let time = batches.to_measurement(timing.tsc)?.values["time"];
    let share = (timing.budget / RUNS).max(MIN_RUN);
    Ok((share.as_nanos() as f64 / time.max(1.0)).ceil() as u64)
}

/// Runs perf with `loops` calls; returns ns per call.
fn run(loops: u64, limit: Duration) -> Result<f64, Failure> {
    let mut command = Command::new("perf");
    command.args(["bench", "syscall", "basic", "-l", &loops.to_string()]);
    // Other locales group digits.
    command.env("LC_ALL", "C");
    parse(&PROGRAM.output(&mut command, limit)?, loops).map_err(Failure::failed)
}

/// Parses the output of perf; returns ns per call.
///
/// ```text
/// # Running 'syscall/basic' benchmark:
/// # Executed 100000 getppid() calls
///      Total time: 0.019 [sec]
///
///        0.199310 usecs/op
///         5017309 ops/sec
/// ```
fn parse(output: &str, loops: u64) -> Result<f64, String> {
    let lines: Vec<Vec<&str>> = output
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| !words.is_empty())
        .collect();
    let wrong = || format!("unexpected output of perf: '{}'", output.trim().replace('\n', "|"));
    let [title, executed, total, each, rate] = &lines[..] else { return Err(wrong()) };
    let title_is_right = title[..] == ["#", "Running", "'syscall/basic'", "benchmark:"];
    let ["#", "Executed", calls, "getppid()", "calls"] = executed[..] else { return Err(wrong()) };
    let ["Total", "time:", total, "[sec]"] = total[..] else { return Err(wrong()) };
    let ([each, "usecs/op"], [rate, "ops/sec"]) = (&each[..], &rate[..]) else {
        return Err(wrong());
    };
    let number = |text: &str| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.filter(|number| *number >= 0.0).ok_or_else(wrong)
    };
    let (total, each, rate) = (number(total)?, number(each)?, number(rate)?);
    // Three roundings of the same time: to a millisecond, a picosecond and a call per second.
    let (microseconds, million) = (each * loops as f64, 1e6);
    let agrees = (microseconds / million - total).abs() <= 1.1e-3
        && (rate * each / million - 1.0).abs() <= 1e-4 + 1.0 / rate.max(1.0);
    if title_is_right && *calls == loops.to_string() && each > 0.0 && agrees {
        Ok(each * 1000.0)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUTPUT: &str = "# Running 'syscall/basic' benchmark:\n\
        # Executed 100000 getppid() calls\n     Total time: 0.019 [sec]\n\n       \
        0.199310 usecs/op\n        5017309 ops/sec\n";

    #[test]
    fn the_output_of_perf_is_parsed() {
        assert!((parse(OUTPUT, 100_000).unwrap() - 199.31).abs() < 1e-9);
    }

    #[test]
    fn unexpected_output_is_refused() {
        assert!(parse("", 100_000).is_err() && parse(OUTPUT, 99_999).is_err());
        for (from, to) in [
            ("syscall/basic", "syscall/fork"),
            ("getppid()", "fork()"),
            ("100000", "100,000"),
            ("0.019 [sec]", "0.025 [sec]"),
            ("0.019 [sec]", "nan [sec]"),
            ("[sec]", "[ms]"),
            ("0.199310", "-0.199310"),
            ("0.199310", "0"),
            ("0.199310", "0.299310"),
            ("usecs/op", "nsecs/op"),
            ("5017309", "6017309"),
            ("5017309 ops/sec\n", "5017309 ops/sec\nmore\n"),
            ("0.199310 usecs/op", ""),
        ] {
            let why = parse(&OUTPUT.replacen(from, to, 1), 100_000).unwrap_err();
            assert!(
                why.starts_with("unexpected output of perf: '# Running") && !why.contains('\n'),
                "{why}"
            );
        }
    }

    #[test]
    fn perf_runs_or_is_unavailable_with_the_command_that_installs_it() {
        match PROGRAM.find() {
            Ok(_) => assert!(run(1000, Duration::from_secs(60)).unwrap() > 1.0),
            Err(failure) => {
                assert_eq!(failure.remedy.as_deref(), Some("apt-get install linux-perf"));
                machine::untested::note("perf bench", &failure);
            }
        }
        assert!(expected(Duration::ZERO) >= MIN_RUN * RUNS);
    }

    proptest! {
        #[test]
        fn no_output_panics(output in "(# Running|'syscall/basic'|Total time:|[0-9.]{1,5}|usecs/op|ops/sec|calls|\n| ){0,40}") {
            let _ = parse(&output, 1000);
        }

        #[test]
        fn printed_times_are_parsed_exactly(loops in 1_000u64..100_000_000, ns in 20.0f64..100_000.0) {
            let seconds = loops as f64 * ns / 1e9;
            let milliseconds = (seconds * 1e3) as u64;
            let output = format!(
                "# Running 'syscall/basic' benchmark:\n# Executed {loops} getppid() calls\n\
                 Total time: {}.{:03} [sec]\n\n {:.6} usecs/op\n {} ops/sec\n",
                milliseconds / 1000, milliseconds % 1000, ns / 1e3, (1e9 / ns) as u64
            );
            let read = parse(&output, loops).unwrap();
            prop_assert!((read - ns).abs() <= 1e-3, "{read} {ns}");
        }
    }
}
