//! The probe of `copy/frames`.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::proximity::between;
use lab::sample::{Failure, Trial};
use machine::tsc::Tsc;

use super::{
    Ceiling, CpuPair, FrameParams, NoFaults, Pass, SharedFrames, TimingMode, TransferOutcome,
    TransferParams, ceiling, median, plain_copy::plain_copy, transfer,
};
use crate::functions::{self, CopyFn};

/// The probe of one order, which keeps its shared memory from point to point.
#[derive(Default)]
pub(super) struct FrameProbe {
    shared: Option<SharedFrames>,
}

impl Probe<FrameParams> for FrameProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &FrameParams,
    ) -> Result<Measurement, Failure> {
        let transfer_params = TransferParams::new(params)?;
        let function = functions::find(&params.function)?;
        let pair = CpuPair::choose(context.cpus)?;
        let shared = self.shared(transfer_params.bytes())?;
        let (copy, budget) = (function.pointer(), context.budget);
        // On an emulated CPU frames are counted and checked, and have no time.
        let tsc = match context.tsc() {
            Err(_) if machine::cpu::lacks_time() && params.pass == Pass::Frames => {
                return count_frames(shared, &transfer_params, copy, pair);
            }
            tsc => tsc?,
        };
        let measured = between(pair.writer, pair.reader, || match params.pass {
            Pass::Ceiling => measure_ceiling(shared, &transfer_params, copy, pair, budget, tsc),
            Pass::Copy => measure_copy(shared, &transfer_params, copy, pair, budget, tsc),
            Pass::Frames => measure_ring(shared, &transfer_params, copy, pair, budget, tsc),
        });
        function.record();
        measured
    }
}

impl FrameProbe {
    fn shared(&mut self, bytes: usize) -> Result<&mut SharedFrames, Failure> {
        // Memory that is large enough is kept: creating it takes longer than many samples.
        let kept = self.shared.take().filter(|shared| shared.capacity() >= bytes);
        let shared = match kept {
            Some(shared) => shared,
            None => SharedFrames::new(bytes)?,
        };
        Ok(self.shared.insert(shared))
    }
}

/// Passes the minimum number of frames, which does not depend on a time.
fn count_frames(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    pair: CpuPair,
) -> Result<Measurement, Failure> {
    let outcome = transfer(shared, params, copy, pair, Duration::ZERO, &mut NoFaults)?;
    outcome.check()?;
    Ok(count_values(&outcome, params))
}

fn measure_ring(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    pair: CpuPair,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let mut outcome = transfer(shared, params, copy, pair, budget, &mut NoFaults)?;
    outcome.check()?;
    let measurement = count_values(&outcome, params);
    match params.usage {
        TimingMode::Throughput => {
            let chunk = median(&mut outcome.ticks)
                .ok_or_else(|| Failure::failed("too few frames for a rate; increase the budget"))?;
            let bytes = (params.chunk() as usize * params.length) as f64;
            Ok(measurement.value("throughput", bytes * tsc.hertz / chunk))
        }
        TimingMode::Latency => {
            let trip = median(&mut outcome.trips).unwrap_or(f64::INFINITY);
            latency(measurement.value("throughput", rate(params, trip, tsc)), &outcome, tsc)
        }
    }
}

fn latency(
    measurement: Measurement,
    outcome: &TransferOutcome,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    if outcome.backwards {
        return Err(Failure::check(
            "a frame arrived before it was sent: the CPUs' counters differ",
        ));
    }
    let mut ticks = outcome.ticks.clone();
    let overhead = tsc.overhead as f64;
    let nanoseconds = |ticks: f64| tsc.nanoseconds((ticks - overhead).max(0.0));
    let median = median(&mut ticks).ok_or_else(|| Failure::failed("no latency was measured"))?;
    let p99 = ticks[(ticks.len() * 99).div_ceil(100) - 1] as f64;
    let mut histogram = Histogram::new(3).map_err(|e| Failure::failed(e.to_string()))?;
    for ticks in &ticks {
        histogram.saturating_record(nanoseconds(*ticks as f64).round() as u64);
    }
    measurement
        .value("latency", nanoseconds(median))
        .value("latency_p99", nanoseconds(p99))
        .histogram("latency", &histogram)
}

/// Returns why a throughput is measured only; `None` with `use = throughput`.
fn no_latency(params: &TransferParams, pass: &str) -> Option<Failure> {
    let failure = || {
        Failure::unavailable(
            format!("pass = {pass} measures throughput only"),
            format!("exclude pass = {pass} with use = latency"),
        )
    };
    (params.usage == TimingMode::Latency).then(failure)
}

fn measure_copy(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    pair: CpuPair,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    no_latency(params, "copy").map_or(Ok(()), Err)?;
    let copied = plain_copy(shared, params, copy, pair.writer, budget)?;
    copied.outcome.check()?;
    let measurement = count_values(&copied.outcome, params);
    Ok(measurement.value("throughput", rate(params, copied.frame, tsc)))
}

fn measure_ceiling(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    pair: CpuPair,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    no_latency(params, "ceiling").map_or(Ok(()), Err)?;
    let ceiling = ceiling(shared, params, copy, pair, budget)?;
    ceiling.outcome.check()?;
    let best = ceiling.best().ok_or_else(|| Failure::failed("no batch was timed"))?;
    let mut measurement = count_values(&ceiling.outcome, params)
        .value("throughput", rate(params, best.slower(), tsc))
        .value("write_time", tsc.nanoseconds(best.write))
        .value("read_time", tsc.nanoseconds(best.read));
    measurement.trials = trials(&ceiling, params, tsc);
    Ok(measurement)
}

fn rate(params: &TransferParams, ticks: f64, tsc: &Tsc) -> f64 {
    params.length as f64 * tsc.hertz / ticks.max(1.0)
}

/// Returns one trial per batch size.
fn trials(ceiling: &Ceiling, params: &TransferParams, tsc: &Tsc) -> Vec<Trial> {
    let trial = |timing: &super::BatchTiming| Trial {
        level: timing.batch as f64,
        holds: None,
        void: None,
        values: BTreeMap::from([
            ("throughput".into(), rate(params, timing.slower(), tsc)),
            ("write_time".into(), tsc.nanoseconds(timing.write)),
            ("read_time".into(), tsc.nanoseconds(timing.read)),
        ]),
    };
    ceiling.tried.iter().map(trial).collect()
}

fn count_values(outcome: &TransferOutcome, params: &TransferParams) -> Measurement {
    let checked = outcome.received as f64 * params.check.reads(params.length) as f64;
    Measurement::default()
        .value("frames", outcome.sent as f64)
        .value("lost", outcome.lost as f64)
        .value("torn", outcome.torn as f64)
        .value("repeated", outcome.repeated as f64)
        .value("checked", checked)
}
