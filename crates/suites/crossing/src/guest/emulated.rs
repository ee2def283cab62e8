//! The guest under QEMU's emulator: counts alone, for emulated times mean nothing.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::{Failure, FailureKind};
use machine::child::output_within;
use machine::memfd::Memfd;

use crate::params::{Isolation, OneWayParams};

use super::image::Turn;
use super::multiboot::{Settings, image_of};
use super::report::{Report, parse};

/// How long the emulator may take to start.
const START: Duration = Duration::from_secs(30);
/// How long an emulated crossing may take on average.
const CROSSING: Duration = Duration::from_micros(100);
/// Crossings that do not count.
const WARMUP: u64 = 100;

/// Makes a point's crossings in the emulator and counts those that were stamped.
///
/// # Errors
/// Where QEMU does not start or the guest does not end well; a failed check where a crossing was not
/// stamped or not handled in ring 0.
pub fn emulated(params: &OneWayParams) -> Result<Measurement, Failure> {
    let OneWayParams { kind, crossings, .. } = *params;
    let isolation = params.isolation == Isolation::On;
    let settings = Settings { rounds: 1, crossings, warmup: WARMUP, seed: 0 };
    let image = image_of(&[Turn { round: 0, kind, isolation }], &settings)
        .map_err(|why| Failure::failed(why.to_string()))?;
    let limit = START + CROSSING * crossings.min(u32::MAX.into()) as u32;
    let text = run(&image, limit)?;
    told(&parse(&text).map_err(|why| Failure::failed(format!("the guest's output: {why}")))?)
}

/// The counts of the one sample.
fn told(report: &Report) -> Result<Measurement, Failure> {
    let [sample] = report.samples.as_slice() else {
        return Err(Failure::check(format!("the guest took {} samples", report.samples.len())));
    };
    let tally = &sample.tally;
    tally.check(sample.kind)?;
    if sample.kind.needs_ring_0() && (tally.cs == 0 || tally.cs & 3 != 0) {
        return Err(Failure::check(format!("the guest's kernel read CS {:#x}", tally.cs)));
    }
    Ok(Measurement::default()
        .value("crossings_made", tally.made as f64)
        .value("crossings_stamped", tally.stamped as f64))
}

/// What an image prints under the emulator.
fn run(image: &[u8], limit: Duration) -> Result<String, Failure> {
    let memory = loaded(image)?;
    let number = memory.inherit()?;
    let mut command = Command::new(crate::vm::QEMU.find()?);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-accel", "tcg", "-cpu", "max", "-m", "16"])
        .args(["-kernel", &format!("/proc/self/fd/{number}")])
        .args(["-chardev", "stdio,id=out,signal=off", "-device", "isa-debugcon,chardev=out"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    let output = output_within(&mut command, &[], limit).map_err(|why| match why.kind() {
        ErrorKind::TimedOut => {
            let why = format!("the emulated guest did not end in {} s", limit.as_secs());
            Failure::new(FailureKind::Timeout, why)
        }
        _ => Failure::failed(format!("QEMU: {why}")),
    })?;
    if output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().last().unwrap_or("it printed nothing");
        return Err(Failure::failed(format!("QEMU: {why}")));
    }
    String::from_utf8(output.stdout).map_err(|why| Failure::failed(format!("QEMU's output: {why}")))
}

/// The image as a file that needs no folder.
fn loaded(image: &[u8]) -> Result<Memfd, Failure> {
    let memory = Memfd::create("guest", image.len())?;
    let file = std::fs::File::from(memory.as_fd().try_clone_to_owned()?);
    file.write_all_at(image, 0)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Kind;
    use crate::params::Route;

    fn params(kind: Kind, isolation: Isolation) -> OneWayParams {
        OneWayParams { route: Route::GuestEmulated, kind, isolation, crossings: 2000 }
    }

    #[test]
    fn one_point_is_counted_and_no_time_is_told() {
        for (kind, isolation) in [
            (Kind::SyscallSysret, Isolation::On),
            (Kind::PageFault, Isolation::Off),
            (Kind::None, Isolation::On),
        ] {
            let told = emulated(&params(kind, isolation)).unwrap();
            let names: Vec<&String> = told.values.keys().collect();
            assert_eq!(names, ["crossings_made", "crossings_stamped"]);
            assert!(told.values.values().all(|count| *count == 2000.0), "{:?}", told.values);
        }
    }

    #[test]
    fn what_never_ends_is_ended() {
        let failure = run(&[0; 4096], Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.to_string(), "timeout: the emulated guest did not end in 1 s");
    }
}
