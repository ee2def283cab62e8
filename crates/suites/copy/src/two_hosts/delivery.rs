//! `copy/two-host-delivery`: tests whether every byte of a copy arrives at the other host, and when it becomes visible.
//!
//! The reader watches the memory while the writer copies, and counts what it saw before and after the writer published
//! the copy. It needs no clock. The contents change from one pattern to another that differs in every byte.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab::factor::Levels;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use machine::mapping::PAGE;
use machine::tsc;

use super::memory::{CommonMemory, SharedMemory};
use super::side::{STEP, Side};
use super::visibility::{VisibilityCounts, Watch};
use crate::functions::{self, CopyFn};
use crate::levels;
use crate::metrics::CHECKED;
use crate::pattern::Pattern;

/// Minimum number of copies per sample; a slow copy is made once.
const MIN_COPIES: u64 = 16;
/// Maximum number of copies per sample.
const MAX_COPIES: u64 = 1 << 16;
/// Maximum bytes of a copy: ESCAPE's device without the control cells.
const MAX_LENGTH: u64 = 64 << 20;
/// Interval of the reader's passes while the writer sleeps.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// Params of `two-host-delivery`.
#[derive(Debug, Params)]
pub(crate) struct TwoHostDeliveryParams {
    /// memory of both hosts: device, pci-bar, dax, file
    #[factor(default = "device")]
    memory: CommonMemory,
    /// bytes per copy: a multiple of 4
    #[factor(default = "64 KiB", levels = Levels::Bytes(STEP as u64, MAX_LENGTH))]
    length: usize,
    /// copy function of the writer: one of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(levels::suite_function))]
    function: String,
}

const METRICS: &[Metric] = &[
    Metric::new(CHECKED, "B", Better::Neither, "bytes whose arrival the reader verified"),
    Metric::count("copies", "copies that the writer made"),
    Metric::count(
        "stages",
        "different states that the reader saw between nothing and everything visible",
    ),
    Metric::count(
        "unordered",
        "times that the reader saw 4 bytes before others at a lower address",
    ),
    Metric::count("split", "units of 4 bytes that the reader saw with old and new bytes"),
    Metric::new(
        "early",
        "B",
        Better::Neither,
        "bytes visible before the writer published their copy",
    ),
    Metric::new(
        "missing",
        "B",
        Better::Neither,
        "bytes not visible after their copy was published; must be 0",
    ),
    Metric::count(
        "reverted",
        "units of 4 bytes that were old again after they were new; must be 0",
    ),
    Metric::count("foreign", "units of 4 bytes that were neither old nor new; must be 0"),
    Metric::time(
        "round_trip",
        "from before a copy until the writer sees the reader's answer to its publication, median",
    ),
];

/// The method `two-host-delivery`.
pub(crate) struct TwoHostDelivery;

impl Method for TwoHostDelivery {
    type Params = TwoHostDeliveryParams;

    fn name(&self) -> &'static str {
        "two-host-delivery"
    }

    fn how(&self) -> &'static str {
        "The writer makes copies, and if both hosts have a clock it times each until it sees the reader's \
         answer. The reader reads the memory in units of 4 bytes meanwhile and counts states; once a copy is \
         published every byte must be new, and none may be foreign or old again."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &TwoHostDeliveryParams) -> Result<(), Failure> {
        if !params.length.is_multiple_of(STEP) {
            return Err(Failure::unavailable(
                format!("{} B are not a multiple of {STEP} B", params.length),
                "choose another length",
            ));
        }
        params.memory.available()?;
        functions::check(&params.function)
    }

    fn expected(&self, _: &TwoHostDeliveryParams, budget: Duration) -> Duration {
        budget + Duration::from_millis(100)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["copy::functions", "copy::two_hosts"]
    }

    fn code(&self, params: &TwoHostDeliveryParams, _: &BTreeMap<String, String>) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<TwoHostDeliveryParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Returns the pattern after `copies` copies.
fn pattern(copies: u64) -> Pattern {
    Pattern { offset: copies as u8 }
}

// As a function of its own it has a name in listings of the timed code.
#[inline(never)]
fn measure(context: &mut Context, params: &TwoHostDeliveryParams) -> Result<Measurement, Failure> {
    TwoHostDelivery.available(params)?;
    let (length, function) = (params.length, functions::find(&params.function)?);
    let prepare = |memory: &SharedMemory| {
        // SAFETY: the memory has `length` bytes of data, and the reader starts later.
        let data = unsafe { std::slice::from_raw_parts_mut(memory.data(), length) };
        pattern(0).fill(0, data);
    };
    let mut side = Side::meet(context, params.memory, (PAGE + length, length), prepare)?;
    let measurement = match side.is_writer {
        true => write(&mut side, length, function.pointer()),
        false => read(&mut side, length),
    }?;
    if side.is_writer {
        function.record();
    }
    Ok(side.describe(measurement))
}

fn write(side: &mut Side, length: usize, function: CopyFn) -> Result<Measurement, Failure> {
    let (start, mut copies, mut times) = (Instant::now(), 0, Vec::new());
    let mut source = vec![0; length];
    loop {
        copies += 1;
        pattern(copies).fill(0, &mut source);
        side.wait("the reader", |control| control.watched.get() == copies)?;
        let before = tsc::start();
        // SAFETY: the data and the source have `length` bytes; the reader only reads.
        unsafe { side.copy(function, side.data(), source.as_ptr(), length) }?;
        side.control().head.set(copies);
        side.wait("the reader's answer", |control| control.seen.get() == copies)?;
        if side.tsc.is_some() {
            times.push(tsc::stop() - before);
        }
        // Without a clock the number of copies must not be a rate in disguise.
        let is_over = side.tsc.is_none() || start.elapsed() >= side.budget();
        let is_enough = copies >= MIN_COPIES && is_over;
        let is_last = side.pause.is_some() || is_enough || copies == MAX_COPIES;
        if is_last {
            side.control().last.set(copies);
        }
        side.control().decided.set(copies);
        if is_last {
            break;
        }
    }
    let measurement = Measurement::default().value("copies", copies as f64);
    times.sort_unstable();
    Ok(match (side.tsc, times.get(times.len() / 2)) {
        (Some(tsc), Some(median)) => {
            let ticks = median.saturating_sub(tsc.overhead);
            measurement.value("round_trip", tsc.nanoseconds(ticks as f64))
        }
        _ => measurement,
    })
}

fn read(side: &mut Side, length: usize) -> Result<Measurement, Failure> {
    let (data, mut total, mut copies) = (side.data().cast::<u32>(), VisibilityCounts::default(), 0);
    // SAFETY: the unit is in the data, which is mapped as long as this side; volatile, because another host writes it.
    let unit = |index: usize| unsafe { data.add(index).read_volatile() };
    loop {
        copies += 1;
        let mut watch = Watch::new(pattern(copies - 1), pattern(copies), length);
        side.control().watched.set(copies);
        let start = Instant::now();
        loop {
            watch.pass(unit);
            match side.control().head.get() {
                head if head == copies => break,
                head if head + 1 == copies => {}
                head => {
                    let why = format!("the writer published copy {head} in place of {copies}");
                    return Err(Failure::check(why));
                }
            }
            watch.keep_early();
            side.check_other()?;
            if start.elapsed() > WATCH_INTERVAL {
                std::thread::sleep(WATCH_INTERVAL);
            }
        }
        side.control().seen.set(copies);
        total.add(watch.finish(unit));
        side.wait("the writer's decision", |control| control.decided.get() == copies)?;
        if side.control().last.get() == copies {
            break;
        }
    }
    check(&total)?;
    let VisibilityCounts { stages, unordered, split, early, missing, reverted, foreign } = total;
    let counts = [
        (CHECKED, copies * length as u64),
        ("stages", stages),
        ("unordered", unordered),
        ("split", split),
        ("early", early),
        ("missing", missing),
        ("reverted", reverted),
        ("foreign", foreign),
    ];
    let add = |measurement: Measurement, (name, count): (&str, u64)| {
        measurement.value(name, count as f64)
    };
    Ok(counts.into_iter().fold(Measurement::default(), add))
}

/// Checks that every byte arrived and stayed.
fn check(counts: &VisibilityCounts) -> Result<(), Failure> {
    let VisibilityCounts { missing, reverted, foreign, .. } = counts;
    if [missing, reverted, foreign] == [&0; 3] {
        return Ok(());
    }
    Err(Failure::check(format!(
        "{missing} B did not arrive, {reverted} units of 4 B were old again, {foreign} had other contents"
    )))
}
