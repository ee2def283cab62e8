//! `bounds/races`: whether bounds in tables are correct when two threads share pointers.
//!
//! A pointer and its bounds are stored and loaded by two instructions, and bounds are three words. A thread may therefore
//! load a pointer with the bounds of another, and miss a violation or report a valid access.
//!
//! A race is a fixed number of accesses, so it needs no clock, and is counted on an emulated CPU too.

pub(crate) mod cli;
mod model;
mod pair;
mod params;
mod store;

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::{Better, Metric};
use lab::proximity;
use lab::sample::Failure;

use crate::mpx;
use model::ModelResult;
use params::{Fix, Implementation, RaceParams};

/// Checks accesses by pointers that another thread changes.
pub(crate) struct Races;

impl Method for Races {
    type Params = RaceParams;

    fn name(&self) -> &'static str {
        "races"
    }

    fn how(&self) -> &'static str {
        "One thread loads pointers and checks accesses while another, or in the control itself, stores \
         pointers with their bounds; groups of passes are timed by the time-stamp counter, except emulated \
         MPX and violations of MPX. Wrong verdicts are counted; in the control one fails the sample."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &RaceParams) -> Result<(), Failure> {
        if params.has_writer() {
            proximity::pair(&machine::topology::allowed_cpus())?;
        }
        check_implementation(params)
    }

    fn expected(&self, params: &RaceParams, _: Duration) -> Duration {
        params.expected()
    }

    fn foreign_code(&self, params: &RaceParams) -> Vec<&'static str> {
        match params.implementation {
            Implementation::Model | Implementation::Mpx => Vec::new(),
            Implementation::MpxEmulated => vec!["QEMU, which translates the MPX program"],
        }
    }

    fn probe(&self) -> Result<Box<dyn Probe<RaceParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

const METRICS: &[Metric] = &[
    Metric::new(
        "wrong",
        "share",
        Better::Lower,
        "accesses judged wrongly: missed violations, or valid accesses that were reported",
    ),
    Metric::new("missed", "share", Better::Lower, "violations that were not reported"),
    Metric::new("false_alarms", "share", Better::Lower, "valid accesses that were reported"),
    Metric::count("reported", "accesses reported: the output of the published program"),
    Metric::count("accesses_made", "accesses made"),
    Metric::count("fills", "times that the other thread filled the array concurrently"),
    Metric::time("access", "one access with the load of pointer and bounds and the check")
        .called("time per access"),
];

/// Maximum number of passes per fill of the other thread. With fewer fills there is no race to speak of: the other
/// thread had lost its CPU.
const MAX_PASSES_PER_FILL: u64 = 100;

fn measure(context: &mut Context, params: &RaceParams) -> Result<Measurement, Failure> {
    check_implementation(params)?;
    if !params.has_writer() {
        return to_measurement(params, &run(context, params, None)?);
    }
    let (reader, writer) = proximity::pair(context.cpus)?;
    proximity::between(reader, writer, || {
        to_measurement(params, &run(context, params, Some(writer))?)
    })
}

/// Counts of a race, of the software model or of MPX.
struct RaceResult {
    accesses: u64,
    reported: u64,
    fills: u64,
    /// ns; `None` if the time is not comparable, or without a usable clock.
    access: Option<f64>,
}

impl From<ModelResult> for RaceResult {
    fn from(result: ModelResult) -> Self {
        let ModelResult { accesses, reported, fills, access } = result;
        Self { accesses, reported, fills, access }
    }
}

/// Runs the race; `writer` is the CPU of the thread that fills the array.
fn run(
    context: &Context,
    params: &RaceParams,
    writer: Option<usize>,
) -> Result<RaceResult, Failure> {
    let Some(machine) = params.implementation.machine() else {
        let race = model::Race {
            pointers: params.pointers as usize,
            accesses: params.accesses,
            beyond: params.is_beyond(),
            writer,
        };
        return run_model(params.fix, &race, context.tsc().ok()).map(RaceResult::from);
    };
    let reader = context.cpus.first().copied().unwrap_or(0);
    let passes = params.accesses.div_ceil(params.pointers);
    let beyond = params.is_beyond();
    let race = mpx::Race { pointers: params.pointers, passes, beyond, reader, writer };
    let result = race.run(machine)?;
    let accesses = race.accesses();
    // A violation raises a signal in place of the access, and the time of an emulator is not comparable.
    let is_timed = machine == mpx::Machine::Native && !beyond;
    let tsc = context.tsc().ok().filter(|_| is_timed);
    let access = tsc.map(|tsc| tsc.nanoseconds(result.ticks as f64) / accesses as f64);
    Ok(RaceResult { accesses, reported: result.reported, fills: result.fills, access })
}

fn run_model(
    fix: Fix,
    race: &model::Race,
    tsc: Option<&machine::tsc::Tsc>,
) -> Result<ModelResult, Failure> {
    match fix {
        Fix::None => model::run::<store::SplitEntry>(race, tsc),
        Fix::Lock => model::run::<store::Locked>(race, tsc),
        Fix::VectorEntry => model::run::<store::AtomicEntry<pair::Vector>>(race, tsc),
        Fix::CmpxchgEntry => model::run::<store::AtomicEntry<pair::Compare>>(race, tsc),
    }
}

/// Returns the counts as metrics.
///
/// # Errors
/// Returns a failed check if an access was judged wrongly without a concurrent writer.
fn to_measurement(params: &RaceParams, result: &RaceResult) -> Result<Measurement, Failure> {
    let RaceResult { accesses, reported, fills, access } = *result;
    let beyond = params.is_beyond();
    let wrong = if beyond { accesses.saturating_sub(reported) } else { reported };
    if !params.has_writer() && wrong > 0 {
        let why = format!(
            "{wrong} of {accesses} accesses were judged wrongly without a concurrent writer"
        );
        return Err(Failure::check(why));
    }
    let share = wrong as f64 / accesses as f64;
    let mut measurement = Measurement::default()
        .value("wrong", share)
        .value(if beyond { "missed" } else { "false_alarms" }, share)
        .value("reported", reported as f64)
        .value("accesses_made", accesses as f64);
    if params.implementation.machine() == Some(mpx::Machine::Emulated) {
        measurement = measurement.emulated();
    }
    if let Some(access) = access {
        measurement = measurement.value("access", access);
    }
    if params.has_writer() {
        measurement = measurement.value("fills", fills as f64);
        let passes = accesses / params.pointers;
        if fills * MAX_PASSES_PER_FILL < passes {
            let why = format!("the other thread filled the array {fills} times in {passes} passes");
            measurement.void = Some(why);
        }
    }
    Ok(measurement)
}

/// Checks that the implementation and the fix can run, except for the second CPU: a probe is pinned to one.
fn check_implementation(params: &RaceParams) -> Result<(), Failure> {
    match params.implementation.machine() {
        None => params.fix.available(),
        Some(_) if params.fix != Fix::None => Err(Failure::unavailable(
            "MPX always stores pointer and bounds separately",
            "set implementation to model",
        )),
        Some(machine) => machine.available(),
    }
}

#[cfg(test)]
mod tests {
    use super::params::{Case, FilledBy, Implementation};
    use super::*;
    use lab::measure::EXECUTED_BY;
    use lab::sample::FailureKind;

    fn params(case: Case, filled_by: FilledBy) -> RaceParams {
        RaceParams {
            case,
            implementation: Implementation::Model,
            filled_by,
            fix: Fix::None,
            pointers: 100,
            accesses: 10_000,
        }
    }

    fn measurement(case: Case, filled_by: FilledBy, reported: u64) -> Result<Measurement, Failure> {
        let result = RaceResult { accesses: 1000, reported, fills: 3, access: Some(2.0) };
        to_measurement(&params(case, filled_by), &result)
    }

    #[test]
    fn unreported_violations_are_missed_and_reported_valid_accesses_are_false_alarms() {
        let missed = measurement(Case::FalseNegative, FilledBy::OtherThread, 990).unwrap();
        assert_eq!((missed.values["missed"], missed.values["wrong"]), (0.01, 0.01));
        assert!(!missed.values.contains_key("false_alarms"));
        let alarms = measurement(Case::FalsePositive, FilledBy::OtherThread, 20).unwrap();
        assert_eq!((alarms.values["false_alarms"], alarms.values["fills"]), (0.02, 3.0));
        assert!(!alarms.values.contains_key("missed") && alarms.void.is_none());
    }

    #[test]
    fn only_a_sample_of_emulated_mpx_states_its_emulator() {
        let emulator = |implementation| {
            let params = params(Case::FalseNegative, FilledBy::SameThread);
            let result = RaceResult { accesses: 10, reported: 10, fills: 1, access: None };
            let params = RaceParams { implementation, ..params };
            to_measurement(&params, &result).unwrap().covariates.remove(EXECUTED_BY)
        };
        assert_eq!(emulator(Implementation::MpxEmulated), Some("tcg".into()));
        assert_eq!(emulator(Implementation::Mpx), None);
        assert_eq!(emulator(Implementation::Model), None);
    }

    #[test]
    fn a_sample_is_void_if_the_other_thread_hardly_ran() {
        let params = params(Case::FalseNegative, FilledBy::OtherThread);
        let void = |fills| {
            let result = RaceResult { accesses: 100_000, reported: 100_000, fills, access: None };
            to_measurement(&params, &result).unwrap().void
        };
        assert_eq!(void(10), None);
        assert!(void(9).unwrap().contains("9 times in 1000 passes"));
    }

    #[test]
    fn a_wrong_judgement_without_a_concurrent_writer_is_a_failed_check() {
        assert!(measurement(Case::FalseNegative, FilledBy::SameThread, 1000).is_ok());
        assert!(measurement(Case::FalsePositive, FilledBy::SameThread, 0).is_ok());
        for (case, reported) in [(Case::FalseNegative, 999), (Case::FalsePositive, 1)] {
            let failure = measurement(case, FilledBy::SameThread, reported).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Check);
            assert!(failure.why.contains("1 of 1000"), "{failure}");
        }
    }

    #[test]
    fn mpx_has_no_fix_and_is_unavailable_on_a_cpu_without_it() {
        let control = params(Case::FalseNegative, FilledBy::SameThread);
        let fixed =
            RaceParams { implementation: Implementation::MpxEmulated, fix: Fix::Lock, ..control };
        assert_eq!(Races.available(&fixed).unwrap_err().kind, FailureKind::Unavailable);
        let native = RaceParams { implementation: Implementation::Mpx, ..control };
        assert_eq!(Races.available(&native).is_ok(), machine::cpu::has_mpx());
    }
}
