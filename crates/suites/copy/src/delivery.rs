//! `method = "delivery"`: whether one copy arrives whole, with no time taken.
//!
//! It needs no clock, so it also runs on an emulated CPU: a test of a device, of its mapping and of a
//! function. What was written to a device is verified through a second mapping, made after the first one
//! is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::Levels;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::option::is_allowed;
use lab::sample::{Failure, FailureKind};

use crate::factors::{self, Direction};
use crate::functions::{self, Loaded, Unavailable};
use crate::lengths;
use crate::memory::{ALLOW_WRITE, Kind, Region};
use crate::metrics;
use crate::pattern::Pattern;
use crate::throughput::{Call, SOURCE_OFFSET};

/// Levels of `delivery`.
#[derive(Debug, Params)]
pub(crate) struct DeliveryParams {
    /// whether the program writes to the memory or reads from it
    #[factor(default = "write")]
    direction: Direction,
    /// the memory: heap, heap-huge, shared, file-mapped, host-physical, device, pci-bar, dax, numa-node-N
    #[factor(default = "heap")]
    memory: Kind,
    /// bytes copied
    #[factor(default = "64 KiB", levels = Levels::Bytes(1, lengths::LONGEST))]
    length: usize,
    /// what copies: a function of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(factors::suite_function))]
    function: String,
}

impl DeliveryParams {
    fn call(&self) -> Call {
        Call { at: 0, length: self.length as u32 }
    }
}

/// Copies once and verifies every byte.
pub(crate) struct Delivery;

impl Method for Delivery {
    type Params = DeliveryParams;

    fn name(&self) -> &'static str {
        "delivery"
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[metrics::CHECKED_METRIC];
        METRICS
    }

    fn available(&self, params: &DeliveryParams) -> Result<(), Failure> {
        if params.memory == Kind::FileIo {
            return Err(Failure::unavailable(
                "file-io is copied by system calls, not by a function",
                "use memory = file-mapped",
            ));
        }
        params.memory.available()?;
        functions::check(&params.function).map_err(no_function)
    }

    fn expected(&self, _: &DeliveryParams, _: Duration) -> Duration {
        Duration::from_millis(20)
    }

    fn code(&self, params: &DeliveryParams) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<DeliveryParams>>, Failure> {
        Ok(Box::new(DeliveryProbe))
    }
}

struct DeliveryProbe;

impl Probe<DeliveryParams> for DeliveryProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &DeliveryParams,
    ) -> Result<Measurement, Failure> {
        if params.memory == Kind::FileIo {
            Delivery.available(params)?;
        }
        delivered(params, context.options, context.seed as u8)
    }
}

/// Copies once and verifies; `data` is added to each byte where the user did not say what.
fn delivered(
    params: &DeliveryParams,
    options: &BTreeMap<String, String>,
    data: u8,
) -> Result<Measurement, Failure> {
    let known = options.get(SOURCE_OFFSET).map(|text| {
        text.parse::<u64>().map(|offset| offset as u8).map_err(|_| {
            Failure::failed(format!("option {SOURCE_OFFSET}: '{text}' is not a whole number"))
        })
    });
    let known = known.transpose()?.map(|offset| Pattern { offset });
    if params.direction == Direction::Write {
        written(params, options, known.unwrap_or(Pattern { offset: data }))?;
    } else {
        read(params, options, known, Pattern { offset: data })?;
    }
    Ok(Measurement::default().value(metrics::CHECKED, params.length as f64))
}

/// A pattern that differs from another in every byte.
fn other(pattern: Pattern) -> Pattern {
    Pattern { offset: pattern.offset.wrapping_add(1) }
}

fn function(params: &DeliveryParams) -> Result<Loaded, Failure> {
    functions::find(&params.function).map_err(no_function)
}

fn no_function(why: Unavailable) -> Failure {
    let kind = match why {
        Unavailable::Unsupported { .. } => FailureKind::Unsupported,
        Unavailable::Unknown { .. } | Unavailable::Load { .. } => FailureKind::Failed,
    };
    Failure::new(kind, why.to_string())
}

fn written(
    params: &DeliveryParams,
    options: &BTreeMap<String, String>,
    pattern: Pattern,
) -> Result<(), Failure> {
    let function = function(params)?;
    let open = |write| Region::open(params.memory, params.length, write, options);
    let mut region = open(true)?;
    region.fill(other(pattern), 0, params.length)?;
    let mut source = vec![0; params.length];
    pattern.fill(0, &mut source);
    // SAFETY: both ends hold the length, and they are different memory.
    unsafe { (function.pointer())(region.start(), source.as_ptr(), params.length) };
    if params.memory.is_physical() {
        drop(region);
        region = open(false)?;
    }
    let tally = region.verify(pattern, 0, &[params.call()])?;
    if tally.delivered == 1 {
        return Ok(());
    }
    let place = if tally.missing == 1 { 0 } else { tally.torn_at };
    Err(Failure::check(format!("what was written did not arrive from byte {place} on")))
}

/// The memory should hold what the user says; else what was there, or what we may write there first.
fn read(
    params: &DeliveryParams,
    options: &BTreeMap<String, String>,
    known: Option<Pattern>,
    data: Pattern,
) -> Result<(), Failure> {
    let function = function(params)?;
    let fills =
        known.is_none() && (!params.memory.is_physical() || is_allowed(options, ALLOW_WRITE));
    let mut region = Region::open(params.memory, params.length, fills, options)?;
    if fills {
        region.fill(data, 0, params.length)?;
    }
    let mut destination = vec![0; params.length];
    other(known.unwrap_or(data)).fill(0, &mut destination);
    // SAFETY: both ends hold the length, and they are different memory.
    unsafe { (function.pointer())(destination.as_mut_ptr(), region.start(), params.length) };
    let wrong = match known.or(fills.then_some(data)) {
        Some(pattern) => pattern.first_fault(0, &destination),
        None => {
            // SAFETY: the region holds the length, and nobody in this process writes to it.
            let there = unsafe { std::slice::from_raw_parts(region.start(), params.length) };
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
    use lab::point::Point;

    use super::*;

    fn point(memory: &str, direction: &str, function: &str) -> Point {
        let levels = [("memory", memory), ("direction", direction), ("function", function)];
        Point::from(levels).with("length", "5000 B")
    }

    fn run(point: &Point, options: &[(&str, &str)]) -> Result<f64, Failure> {
        let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let measurement = delivered(&DeliveryParams::with_defaults(point)?, &options, 77)?;
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
        let file_io = point("file-io", "write", "glibc");
        assert!(Delivery.available(&DeliveryParams::with_defaults(&file_io).unwrap()).is_err());
        let drawn = Point::from([("length", "uniform 1..64 B")]);
        assert!(DeliveryParams::with_defaults(&drawn).is_err());
    }
}
