//! `method = "delivery"`: tests whether one copy arrives whole, without timing it.
//!
//! It needs no clock, so it also runs on an emulated CPU, as a test of a device, its mapping and a
//! copy function. Bytes written to a device are verified through a second mapping, made after the
//! first one is unmapped.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::Levels;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::option::is_allowed;
use lab::sample::Failure;

use crate::functions;
use crate::lengths;
use crate::levels::{self, Direction};
use crate::memory::{ALLOW_WRITE, CachingLevel, Call, MemoryKind, Region};
use crate::metrics;
use crate::pattern::Pattern;
use crate::throughput::SOURCE_OFFSET;

/// Params of `delivery`.
#[derive(Debug, Params)]
pub(crate) struct DeliveryParams {
    /// whether the program writes the memory or reads it
    #[factor(default = "write")]
    direction: Direction,
    /// memory: heap, heap-huge, shared, file-mapped, host-physical, device, pci-bar, dax, gpu-bar, numa-node-N
    #[factor(default = "heap")]
    memory: MemoryKind,
    /// attribute of the mapping: default (as the kernel maps the memory), uncached, write-combining or write-back
    #[factor(default = "default")]
    caching: CachingLevel,
    /// bytes copied
    #[factor(default = "64 KiB", levels = Levels::Bytes(1, lengths::MAX_LENGTH))]
    length: usize,
    /// copy function: one of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(levels::suite_function))]
    function: String,
}

impl DeliveryParams {
    fn call(&self) -> Call {
        Call { at: 0, length: self.length as u32 }
    }
}

/// The method `delivery`: copies once and verifies every byte.
pub(crate) struct Delivery;

impl Method for Delivery {
    type Params = DeliveryParams;

    fn name(&self) -> &'static str {
        "delivery"
    }

    fn how(&self) -> &'static str {
        "One copy is made into or out of the memory, and nothing is timed. Every byte is compared: bytes \
         written to hardware through a second mapping, bytes read with a known pattern or, if the memory may \
         not be written, with its present contents."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[metrics::CHECKED_METRIC];
        METRICS
    }

    fn available(&self, params: &DeliveryParams) -> Result<(), Failure> {
        check(params)?;
        params.memory.available()?;
        functions::check(&params.function)
    }

    fn expected(&self, _: &DeliveryParams, _: Duration) -> Duration {
        Duration::from_millis(20)
    }

    fn code(&self, params: &DeliveryParams, _: &BTreeMap<String, String>) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<DeliveryParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Checks that a function can copy the memory with its attribute.
fn check(params: &DeliveryParams) -> Result<(), Failure> {
    if params.memory.is_copied_by_calls() {
        return Err(Failure::unavailable(
            format!("memory = {} is copied by calls, not by a function", params.memory),
            "use memory = file-mapped or gpu-bar",
        ));
    }
    params.caching.check(params.memory)
}

fn measure(context: &mut Context, params: &DeliveryParams) -> Result<Measurement, Failure> {
    check(params)?;
    deliver(params, context.options, context.seed as u8)
}

/// Copies once and verifies the bytes. `data` is the pattern's offset unless the user set one.
fn deliver(
    params: &DeliveryParams,
    options: &BTreeMap<String, String>,
    data: u8,
) -> Result<Measurement, Failure> {
    let user_set = options.get(SOURCE_OFFSET).map(|text| {
        text.parse::<u64>().map(|offset| offset as u8).map_err(|_| {
            Failure::failed(format!("option {SOURCE_OFFSET}: '{text}' is not a whole number"))
        })
    });
    let expected = user_set.transpose()?.map(|offset| Pattern { offset });
    let region = if params.direction == Direction::Write {
        write_and_verify(params, options, expected.unwrap_or(Pattern { offset: data }))?
    } else {
        read_and_verify(params, options, expected, Pattern { offset: data })?
    };
    let measurement = Measurement::default().value(metrics::CHECKED, params.length as f64);
    Ok(match region.memory_type() {
        Some(given) => measurement.covariate(metrics::MEMORY_TYPE, given),
        None => measurement,
    })
}

/// Returns a pattern that differs from `pattern` in every byte.
fn different(pattern: Pattern) -> Pattern {
    Pattern { offset: pattern.offset.wrapping_add(1) }
}

/// Writes the memory and verifies it through the returned region.
fn write_and_verify(
    params: &DeliveryParams,
    options: &BTreeMap<String, String>,
    pattern: Pattern,
) -> Result<Region, Failure> {
    let function = functions::find(&params.function)?;
    let open = |write| Region::open(params.memory, params.length, write, params.caching, options);
    let mut region = open(true)?;
    region.fill(different(pattern), 0, params.length)?;
    let mut source = vec![0; params.length];
    pattern.fill(0, &mut source);
    // SAFETY: both buffers have `length` bytes and do not overlap.
    unsafe { (function.pointer())(region.start(), source.as_ptr(), params.length) };
    if params.memory.is_physical() {
        drop(region);
        region = open(false)?;
    }
    let counts = region.verify(pattern, 0, &[params.call()])?;
    if counts.delivered == 1 {
        return Ok(region);
    }
    let first = if counts.missing == 1 { 0 } else { counts.torn_at };
    Err(Failure::check(format!("written bytes did not arrive from byte {first} on")))
}

/// Reads the memory and compares with the user's pattern if set, with our own if we may write the
/// memory first, and with its present contents otherwise.
fn read_and_verify(
    params: &DeliveryParams,
    options: &BTreeMap<String, String>,
    known: Option<Pattern>,
    data: Pattern,
) -> Result<Region, Failure> {
    let function = functions::find(&params.function)?;
    let fills =
        known.is_none() && (!params.memory.is_physical() || is_allowed(options, ALLOW_WRITE));
    let mut region = Region::open(params.memory, params.length, fills, params.caching, options)?;
    if fills {
        region.fill(data, 0, params.length)?;
    }
    let mut destination = vec![0; params.length];
    different(known.unwrap_or(data)).fill(0, &mut destination);
    // SAFETY: both buffers have `length` bytes and do not overlap.
    unsafe { (function.pointer())(destination.as_mut_ptr(), region.start(), params.length) };
    let wrong = match known.or(fills.then_some(data)) {
        Some(pattern) => pattern.first_mismatch(0, &destination),
        None => {
            // SAFETY: the region has `length` bytes, and this process does not write to it.
            let there = unsafe { std::slice::from_raw_parts(region.start(), params.length) };
            destination.iter().zip(there).position(|(is, should)| is != should)
        }
    };
    match wrong {
        None => Ok(region),
        Some(first) => Err(Failure::check(format!("wrong bytes were read from byte {first} on"))),
    }
}

#[cfg(test)]
mod tests {
    use lab::point::Point;
    use lab::sample::FailureKind;

    use super::*;

    fn point(memory: &str, direction: &str, function: &str) -> Point {
        let levels = [("memory", memory), ("direction", direction), ("function", function)];
        Point::from(levels).with("length", "5000 B")
    }

    fn run(point: &Point, options: &[(&str, &str)]) -> Result<f64, Failure> {
        let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let measurement = deliver(&DeliveryParams::with_defaults(point)?, &options, 77)?;
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
    fn reading_other_contents_than_expected_fails() {
        let fresh = run(&point("heap", "read", "glibc"), &[(SOURCE_OFFSET, "9")]).unwrap_err();
        assert_eq!(fresh.kind, FailureKind::Check, "{fresh}");
    }

    #[test]
    fn a_device_is_not_written_without_permission() {
        let refused = run(&point("device", "write", "glibc"), &[]).unwrap_err();
        assert_eq!(refused.remedy.as_deref(), Some("--allow physical"));
        let file_io = point("file-io", "write", "glibc");
        assert!(Delivery.available(&DeliveryParams::with_defaults(&file_io).unwrap()).is_err());
        let drawn = Point::from([("length", "uniform 1..64 B")]);
        assert!(DeliveryParams::with_defaults(&drawn).is_err());
    }
}
