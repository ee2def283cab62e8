//! Measures a point of `copy/frames`.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::proximity::between;
use lab::sample::{Failure, Trial};
use machine::tsc::Tsc;

use super::{
    Ceiling, Faithful, FrameParams, Outcome, Pair, Pass, Pool, Setup, Use, ceiling, median,
    transfer,
};
use crate::functions::{self, CopyFn};

/// What measures the points of one order; it keeps the pool.
pub(super) fn probe() -> Box<dyn Probe<FrameParams>> {
    Box::new(FrameProbe { pool: None })
}

struct FrameProbe {
    pool: Option<Pool>,
}

impl Probe<FrameParams> for FrameProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &FrameParams,
    ) -> Result<Measurement, Failure> {
        let setup = Setup::new(params)?;
        let function = functions::find(&params.function)?;
        let pair = Pair::of(context.cpus)?;
        let pool = self.pool(setup.bytes())?;
        let (copy, budget, tsc) = (function.pointer(), context.budget, context.tsc()?);
        between(pair.writer, pair.reader, || match params.pass {
            Pass::Ceiling => by_turns(pool, &setup, copy, pair, budget, tsc),
            Pass::Frames => through_ring(pool, &setup, copy, pair, budget, tsc),
        })
    }
}

impl FrameProbe {
    fn pool(&mut self, bytes: usize) -> Result<&mut Pool, Failure> {
        // A pool that fits is kept: making one costs more than many samples.
        let kept = self.pool.take().filter(|pool| pool.room() >= bytes);
        let pool = match kept {
            Some(pool) => pool,
            None => Pool::new(bytes).map_err(|why| Failure::failed(why.to_string()))?,
        };
        Ok(self.pool.insert(pool))
    }
}

fn through_ring(
    pool: &mut Pool,
    setup: &Setup,
    copy: CopyFn,
    pair: Pair,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let mut outcome = transfer(pool, setup, copy, pair, budget, &mut Faithful)?;
    outcome.faultless()?;
    let measurement = counted(&outcome, setup);
    match setup.usage {
        Use::Throughput => {
            let chunk = median(&mut outcome.ticks)
                .ok_or_else(|| Failure::failed("too few frames for a rate; raise the budget"))?;
            let bytes = (setup.chunk() as usize * setup.length) as f64;
            Ok(measurement.value("throughput", bytes * tsc.hertz / chunk))
        }
        Use::Latency => {
            let trip = median(&mut outcome.trips).unwrap_or(f64::INFINITY);
            latency(measurement.value("throughput", rate(setup, trip, tsc)), &outcome, tsc)
        }
    }
}

fn latency(measurement: Measurement, outcome: &Outcome, tsc: &Tsc) -> Result<Measurement, Failure> {
    if outcome.backwards {
        return Err(Failure::check("a frame came before it was sent: the CPUs' counters differ"));
    }
    let mut ticks = outcome.ticks.clone();
    let overhead = tsc.overhead as f64;
    let nanoseconds = |ticks: f64| tsc.nanoseconds((ticks - overhead).max(0.0));
    let median = median(&mut ticks).ok_or_else(|| Failure::failed("no latency was taken"))?;
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

fn by_turns(
    pool: &mut Pool,
    setup: &Setup,
    copy: CopyFn,
    pair: Pair,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    if setup.usage == Use::Latency {
        return Err(Failure::unavailable(
            "the ceiling is one of throughput",
            "exclude pass = ceiling with use = latency",
        ));
    }
    let ceiling = ceiling(pool, setup, copy, pair, budget)?;
    ceiling.outcome.faultless()?;
    let best = ceiling.best().ok_or_else(|| Failure::failed("no turn was timed"))?;
    let mut measurement = counted(&ceiling.outcome, setup)
        .value("throughput", rate(setup, best.slower(), tsc))
        .value("write_time", tsc.nanoseconds(best.write))
        .value("read_time", tsc.nanoseconds(best.read));
    measurement.trials = trials(&ceiling, setup, tsc);
    Ok(measurement)
}

fn rate(setup: &Setup, ticks: f64, tsc: &Tsc) -> f64 {
    setup.length as f64 * tsc.hertz / ticks.max(1.0)
}

/// Each turn size that was tried.
fn trials(ceiling: &Ceiling, setup: &Setup, tsc: &Tsc) -> Vec<Trial> {
    let trial = |turns: &super::Turns| Trial {
        level: turns.batch as f64,
        holds: None,
        void: None,
        values: BTreeMap::from([
            ("throughput".into(), rate(setup, turns.slower(), tsc)),
            ("write_time".into(), tsc.nanoseconds(turns.write)),
            ("read_time".into(), tsc.nanoseconds(turns.read)),
        ]),
    };
    ceiling.tried.iter().map(trial).collect()
}

fn counted(outcome: &Outcome, setup: &Setup) -> Measurement {
    let checked = outcome.received as f64 * setup.check.reads(setup.length) as f64;
    Measurement::default()
        .value("frames", outcome.sent as f64)
        .value("lost", outcome.lost as f64)
        .value("torn", outcome.torn as f64)
        .value("repeated", outcome.repeated as f64)
        .value("checked", checked)
}
