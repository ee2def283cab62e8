//! `method = "delivery"`: whether one copy arrives whole, with no time taken.
//!
//! It needs no clock, so it also runs on an emulated CPU: a test of a device, of its mapping and of a
//! function. What was written to a device is verified through a second mapping, made after the first one
//! is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::option::is_allowed;
use lab::point::Point;
use lab::quantity;
use lab::sample::{Failure, FailureKind};

use crate::functions::{self, Loaded, Unavailable};
use crate::memory::{ALLOW_WRITE, Kind, Region};
use crate::metrics;
use crate::pattern::Pattern;
use crate::throughput::{Call, SOURCE_OFFSET};

/// The longest copy: that of the seed.
const LONGEST: u64 = 256 << 20;

/// The levels of a point.
#[derive(Debug)]
struct Setting {
    memory: Kind,
    write: bool,
    length: usize,
    function: String,
}

impl Setting {
    fn of(point: &Point) -> Result<Self, Failure> {
        let named = |factor: &str, default: &str| match point.text(factor) {
            "" => default.to_owned(),
            level => level.to_owned(),
        };
        let memory = Kind::parse(&named("memory", "heap")).map_err(Failure::failed)?;
        if memory == Kind::FileIo {
            return Err(Failure::unavailable(
                "file-io is copied by system calls, not by a function",
                "use memory = file-mapped",
            ));
        }
        let length = quantity::bytes(&named("length", "64 KiB")).ok();
        let length = length.filter(|length| (1..=LONGEST).contains(length)).ok_or_else(|| {
            Failure::unavailable("delivery has one length", "use length = 1 B to 256 MiB")
        })?;
        Ok(Self {
            memory,
            write: named("direction", "write") == "write",
            length: length as usize,
            function: named("function", "glibc"),
        })
    }

    fn call(&self) -> Call {
        Call { at: 0, length: self.length as u32 }
    }
}

/// Whether a point can be tested here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    let setting = Setting::of(point)?;
    setting.memory.available()?;
    functions::check(&setting.function).map_err(no_function)
}

/// How long a sample takes, about.
pub fn expected(_: &Point, _: Duration) -> Duration {
    Duration::from_millis(20)
}

/// What tests the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Delivery)
}

struct Delivery;

impl Probe for Delivery {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        delivered(&Setting::of(point)?, context.options, context.seed as u8)
    }
}

/// Copies once and verifies; `data` is added to each byte where the user did not say what.
fn delivered(
    setting: &Setting,
    options: &BTreeMap<String, String>,
    data: u8,
) -> Result<Measurement, Failure> {
    let known = options.get(SOURCE_OFFSET).map(|text| {
        text.parse::<u64>().map(|offset| offset as u8).map_err(|_| {
            Failure::failed(format!("option {SOURCE_OFFSET}: '{text}' is not a whole number"))
        })
    });
    let known = known.transpose()?.map(|offset| Pattern { offset });
    if setting.write {
        written(setting, options, known.unwrap_or(Pattern { offset: data }))?;
    } else {
        read(setting, options, known, Pattern { offset: data })?;
    }
    Ok(Measurement::default().value(metrics::CHECKED, setting.length as f64))
}

/// A pattern that differs from another in every byte.
fn other(pattern: Pattern) -> Pattern {
    Pattern { offset: pattern.offset.wrapping_add(1) }
}

fn function(setting: &Setting) -> Result<Loaded, Failure> {
    functions::find(&setting.function).map_err(no_function)
}

fn no_function(why: Unavailable) -> Failure {
    let kind = match why {
        Unavailable::Unsupported { .. } => FailureKind::Unsupported,
        Unavailable::Unknown { .. } | Unavailable::Load { .. } => FailureKind::Failed,
    };
    Failure::new(kind, why.to_string())
}

fn written(
    setting: &Setting,
    options: &BTreeMap<String, String>,
    pattern: Pattern,
) -> Result<(), Failure> {
    let function = function(setting)?;
    let open = |write| Region::open(setting.memory, setting.length, write, options);
    let mut region = open(true)?;
    region.fill(other(pattern), 0, setting.length)?;
    let mut source = vec![0; setting.length];
    pattern.fill(0, &mut source);
    // SAFETY: both ends hold the length, and they are different memory.
    unsafe { (function.pointer())(region.start(), source.as_ptr(), setting.length) };
    if setting.memory.is_physical() {
        drop(region);
        region = open(false)?;
    }
    let tally = region.verify(pattern, 0, &[setting.call()])?;
    if tally.delivered == 1 {
        return Ok(());
    }
    let place = if tally.missing == 1 { 0 } else { tally.torn_at };
    Err(Failure::check(format!("what was written did not arrive from byte {place} on")))
}

/// The memory should hold what the user says; else what was there, or what we may write there first.
fn read(
    setting: &Setting,
    options: &BTreeMap<String, String>,
    known: Option<Pattern>,
    data: Pattern,
) -> Result<(), Failure> {
    let function = function(setting)?;
    let fills =
        known.is_none() && (!setting.memory.is_physical() || is_allowed(options, ALLOW_WRITE));
    let mut region = Region::open(setting.memory, setting.length, fills, options)?;
    if fills {
        region.fill(data, 0, setting.length)?;
    }
    let mut destination = vec![0; setting.length];
    other(known.unwrap_or(data)).fill(0, &mut destination);
    // SAFETY: both ends hold the length, and they are different memory.
    unsafe { (function.pointer())(destination.as_mut_ptr(), region.start(), setting.length) };
    let wrong = match known.or(fills.then_some(data)) {
        Some(pattern) => pattern.first_fault(0, &destination),
        None => {
            // SAFETY: the region holds the length, and nobody in this process writes to it.
            let there = unsafe { std::slice::from_raw_parts(region.start(), setting.length) };
            destination.iter().zip(there).position(|(is, should)| is != should)
        }
    };
    match wrong {
        None => Ok(()),
        Some(place) => Err(Failure::check(format!("what was read is wrong from byte {place} on"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(memory: &str, direction: &str, function: &str) -> Point {
        let levels = [("memory", memory), ("direction", direction), ("function", function)];
        Point::from(levels).with("length", "5000 B")
    }

    fn run(point: &Point, options: &[(&str, &str)]) -> Result<f64, Failure> {
        let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let measurement = delivered(&Setting::of(point)?, &options, 77)?;
        assert_eq!(measurement.values.len(), 1, "no time: {measurement:?}");
        Ok(measurement.values[metrics::CHECKED])
    }

    #[test]
    fn copies_into_and_out_of_each_memory_arrive() {
        for memory in ["heap", "shared", "file-mapped"] {
            for direction in ["write", "read"] {
                assert_eq!(run(&point(memory, direction, "tollgate"), &[]), Ok(5000.0), "{memory}");
            }
        }
    }

    #[test]
    fn memory_that_holds_something_else_fails() {
        let fresh = run(&point("heap", "read", "glibc"), &[(SOURCE_OFFSET, "9")]).unwrap_err();
        assert_eq!(fresh.kind, FailureKind::Check, "{fresh}");
    }

    #[test]
    fn a_device_is_not_written_unasked() {
        let refused = run(&point("device", "write", "glibc"), &[]).unwrap_err();
        assert_eq!(refused.remedy.as_deref(), Some("--allow physical"));
        assert!(Setting::of(&point("file-io", "write", "glibc")).is_err());
        assert!(Setting::of(&Point::from([("length", "uniform 1..64 B")])).is_err());
    }
}
