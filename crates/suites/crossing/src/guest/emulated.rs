//! The guest under QEMU's emulator. It only counts, because emulated times are meaningless.

use std::io::ErrorKind;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::{Failure, FailureKind};
use machine::child::output_within;
use machine::memfd::Memfd;

use super::GuestCrossing;
use super::image::ScheduledSample;
use super::multiboot::{StandaloneParams, image_of};
use super::report::{Report, parse};
use crate::ticks::{CROSSINGS_MADE, CROSSINGS_STAMPED};

/// Maximum time for the emulator to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum average time of an emulated crossing.
const CROSSING_TIMEOUT: Duration = Duration::from_micros(100);
/// Warm-up crossings.
const WARMUP: u64 = 100;

/// Makes `crossings` crossings in the emulator and counts the stamped ones.
///
/// # Errors
/// Returns `unavailable` without QEMU, `timeout` or `failed` if the guest does not finish, `check` if a crossing
/// was not stamped or not handled in ring 0.
pub fn emulated(crossing: GuestCrossing, crossings: u64) -> Result<Measurement, Failure> {
    let params = StandaloneParams { rounds: 1, crossings, warmup: WARMUP, seed: 0 };
    let image = image_of(&[ScheduledSample { round: 0, crossing }], &params)
        .map_err(|why| Failure::failed(why.to_string()))?;
    let limit = START_TIMEOUT + CROSSING_TIMEOUT * crossings.min(u32::MAX.into()) as u32;
    let text = run(&image, limit)?;
    let report = parse(&text);
    let report = report.map_err(|why| Failure::failed(format!("output of the guest: {why}")))?;
    to_measurement(&report, crossing, crossings)
}

/// Checks and converts the only sample of a report, which is that of these crossings.
fn to_measurement(
    report: &Report,
    crossing: GuestCrossing,
    crossings: u64,
) -> Result<Measurement, Failure> {
    let [sample] = report.samples.as_slice() else {
        let count = report.samples.len();
        return Err(Failure::check(format!("the guest took {count} samples; expected 1")));
    };
    let counts = &sample.counts;
    if sample.crossing != crossing {
        let text = |one: GuestCrossing| {
            let isolation = if one.isolated { "on" } else { "off" };
            format!("{} with stamp {} and isolation {isolation}", one.kind, one.stamp)
        };
        let (made, ordered) = (text(sample.crossing), text(crossing));
        return Err(Failure::check(format!("the guest made {made} instead of {ordered}")));
    }
    if counts.made != crossings {
        let why = format!("the guest made {} instead of {crossings} crossings", counts.made);
        return Err(Failure::check(why));
    }
    let kind = crossing.kind;
    counts.check(kind)?;
    if kind.needs_ring_0() && (counts.cs == 0 || counts.cs & 3 != 0) {
        return Err(Failure::check(format!("the guest's handler read CS {:#x}", counts.cs)));
    }
    Ok(Measurement::default()
        .value(CROSSINGS_MADE.name, counts.made as f64)
        .value(CROSSINGS_STAMPED.name, counts.stamped as f64)
        .emulated())
}

/// Boots an image under the emulator and returns its output.
fn run(image: &[u8], limit: Duration) -> Result<String, Failure> {
    let memory = Memfd::with_content("guest", image)?;
    let fd = memory.inherit()?;
    let mut command = vm::qemu()?;
    command
        .args(["-accel", "tcg", "-cpu", "max", "-m", "16"])
        .args(["-kernel", &format!("/proc/self/fd/{fd}")])
        .args(["-chardev", "stdio,id=out,signal=off", "-device", "isa-debugcon,chardev=out"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    let output = output_within(&mut command, &[], limit).map_err(|why| {
        if why.kind() == ErrorKind::TimedOut {
            let why = format!("the emulated guest did not finish in {} s", limit.as_secs());
            return Failure::new(FailureKind::Timeout, why);
        }
        Failure::failed(format!("QEMU: {why}"))
    })?;
    if output.stdout.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = errors.lines().last().unwrap_or("no output");
        return Err(Failure::failed(format!("QEMU: {why}")));
    }
    String::from_utf8(output.stdout)
        .map_err(|why| Failure::failed(format!("output of the guest: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::measure::EXECUTED_BY;

    use crate::guest::{CrossingKind, Stamp};

    #[test]
    fn an_emulated_sample_has_counts_and_no_times() {
        let with_xperfs_stamps =
            GuestCrossing { kind: CrossingKind::PageFault, stamp: Stamp::Xperf, isolated: false };
        for crossing in [
            GuestCrossing::with_lfence(CrossingKind::SyscallSysret, true),
            with_xperfs_stamps,
            GuestCrossing::with_lfence(CrossingKind::None, true),
        ] {
            let measurement = emulated(crossing, 2000).unwrap();
            let names: Vec<&String> = measurement.values.keys().collect();
            assert_eq!(names, ["crossings_made", "crossings_stamped"]);
            assert!(measurement.values.values().all(|count| *count == 2000.0), "{measurement:?}");
            assert_eq!(measurement.covariates[EXECUTED_BY], "tcg".into());
        }
    }

    #[test]
    fn a_report_of_other_crossings_than_ordered_fails_the_check() {
        let ordered = GuestCrossing::with_lfence(CrossingKind::Breakpoint, false);
        let params = StandaloneParams { rounds: 1, crossings: 300, warmup: WARMUP, seed: 0 };
        let sample = ScheduledSample { round: 0, crossing: ordered };
        let text = run(&image_of(&[sample], &params).unwrap(), START_TIMEOUT).unwrap();
        let report = parse(&text).unwrap();
        to_measurement(&report, ordered, 300).unwrap();
        for (crossing, crossings, what) in [
            (
                GuestCrossing { isolated: true, ..ordered },
                300,
                "isolation off instead of breakpoint",
            ),
            (
                GuestCrossing { kind: CrossingKind::PageFault, ..ordered },
                300,
                "instead of page-fault",
            ),
            (ordered, 301, "300 instead of 301 crossings"),
        ] {
            let failure = to_measurement(&report, crossing, crossings).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Check);
            assert!(failure.why.contains(what), "{failure}");
        }
    }

    #[test]
    fn a_hung_emulator_times_out() {
        let failure = run(&[0; 4096], Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.to_string(), "timeout: the emulated guest did not finish in 1 s");
    }
}
