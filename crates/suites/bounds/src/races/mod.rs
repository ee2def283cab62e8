//! `bounds/races`: whether bounds in tables hold where two threads share pointers.
//!
//! A pointer and its bounds are stored and loaded by two instructions, and bounds are three words. So a
//! thread may load a pointer with the bounds of another: a violation is missed, or none is reported.

pub(crate) mod hand;
mod model;
mod pair;
mod setting;
mod store;

use std::time::Duration;

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::proximity;
use lab::sample::Failure;

use crate::mpx;
use crate::way::Way;
use model::Raced;
use setting::{Fix, Implementation, MAX_ACCESSES, MAX_POINTERS, Setting};

/// This way of measuring.
pub(crate) static WAY: Way = Way {
    name: "races",
    factors: FACTORS,
    metrics: METRICS,
    available,
    expected,
    artefacts: |_| Vec::new(),
    probe: || Box::new(Races),
};

const FACTORS: &[Factor] = &[
    Factor {
        name: "case",
        about: "false-negative: every access is beyond its object; false-positive: every one inside",
        levels: Levels::Names(&["false-negative", "false-positive"]),
        default: None,
    },
    Factor {
        name: "implementation",
        about: "model: directory and tables in software; mpx: this processor's; mpx-emulated: QEMU's, \
                for counts alone",
        levels: Levels::Names(&["model", "mpx", "mpx-emulated"]),
        default: None,
    },
    Factor {
        name: "filled_by",
        about: "which thread fills the array with pointers to one object or the other: another, or \
                the one that accesses, between its passes",
        levels: Levels::Names(&["other-thread", "same-thread"]),
        default: None,
    },
    Factor {
        name: "fix",
        about: "none, as MPX is; a lock around pointer and bounds; both in one 16-byte entry, stored \
                and loaded by a vector move or by cmpxchg16b",
        levels: Levels::Names(&["none", "lock", "vector-entry", "cmpxchg-entry"]),
        default: None,
    },
    Factor {
        name: "pointers",
        about: "pointers in the array",
        levels: Levels::Count(1, MAX_POINTERS),
        default: None,
    },
    Factor {
        name: "accesses",
        about: "accesses a sample",
        levels: Levels::Count(1, MAX_ACCESSES),
        default: None,
    },
];

const METRICS: &[Metric] = &[
    Metric::new(
        "wrong",
        "share",
        Better::Lower,
        "accesses judged wrongly: violations missed, or accesses inside that were reported",
    ),
    Metric::new("missed", "share", Better::Lower, "violations that were not reported"),
    Metric::new("false_alarms", "share", Better::Lower, "accesses inside that were reported"),
    Metric::count("reported", "accesses reported: the seed's output"),
    Metric::count("accesses_made", "accesses made"),
    Metric::count("fills", "times that the other thread filled the array meanwhile"),
    Metric::time("access", "one access with the load of pointer and bounds and the check"),
];

/// Where the other thread fills the array in fewer passes than one of so many there is no race to speak
/// of: others held its CPU.
const SELDOM: u64 = 100;

struct Races;

impl Probe for Races {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let setting = Setting::of(point)?;
        runnable(&setting)?;
        if !setting.filled_by_other {
            return judged(&setting, &raced(context, &setting, None)?);
        }
        let (own, other) = proximity::pair(context.cpus)?;
        proximity::between(own, other, || judged(&setting, &raced(context, &setting, Some(other))?))
    }
}

/// What a race did, on the software model or by MPX.
struct Outcome {
    accesses: u64,
    reported: u64,
    fills: u64,
    /// ns; none where it is no time.
    access: Option<f64>,
}

impl From<Raced> for Outcome {
    fn from(raced: Raced) -> Self {
        let Raced { accesses, reported, fills, access } = raced;
        Self { accesses, reported, fills, access: Some(access) }
    }
}

fn raced(context: &Context, setting: &Setting, other: Option<usize>) -> Result<Outcome, Failure> {
    let machine = match setting.implementation {
        Implementation::Model => {
            let race = model::Race {
                pointers: setting.pointers as usize,
                accesses: setting.accesses,
                beyond: setting.beyond,
                other,
            };
            return modelled(setting.fix, &race, context.tsc()?).map(Outcome::from);
        }
        Implementation::Mpx(machine) => machine,
    };
    let own = context.cpus.first().copied().unwrap_or(0);
    let passes = setting.accesses.div_ceil(setting.pointers);
    let race = mpx::Race { pointers: setting.pointers, passes, beyond: setting.beyond, own, other };
    let raced = race.run(machine)?;
    let accesses = passes * setting.pointers;
    // A violation ends in a signal, which is no access; and an emulator's time is none.
    let timed = machine == mpx::Machine::Native && !setting.beyond;
    let access = match timed {
        true => Some(context.tsc()?.nanoseconds(raced.ticks as f64) / accesses as f64),
        false => None,
    };
    Ok(Outcome { accesses, reported: raced.reported, fills: raced.fills, access })
}

fn modelled(fix: Fix, race: &model::Race, tsc: &machine::tsc::Tsc) -> Result<Raced, Failure> {
    match fix {
        Fix::None => model::run::<store::Apart>(race, tsc),
        Fix::Lock => model::run::<store::Locked>(race, tsc),
        Fix::VectorEntry => model::run::<store::Together<pair::Vector>>(race, tsc),
        Fix::CompareEntry => model::run::<store::Together<pair::Compare>>(race, tsc),
    }
}

/// The counts as metrics. Where nothing races, a single wrong judgement is a fault of ours.
fn judged(setting: &Setting, outcome: &Outcome) -> Result<Measurement, Failure> {
    let Outcome { accesses, reported, fills, access } = *outcome;
    let wrong = if setting.beyond { accesses.saturating_sub(reported) } else { reported };
    if !setting.filled_by_other && wrong > 0 {
        let why =
            format!("{wrong} of {accesses} accesses were judged wrongly though nothing raced");
        return Err(Failure::check(why));
    }
    let share = wrong as f64 / accesses as f64;
    let mut measurement = Measurement::default()
        .value("wrong", share)
        .value(if setting.beyond { "missed" } else { "false_alarms" }, share)
        .value("reported", reported as f64)
        .value("accesses_made", accesses as f64);
    if let Some(access) = access {
        measurement = measurement.value("access", access);
    }
    if setting.filled_by_other {
        measurement = measurement.value("fills", fills as f64);
        let passes = accesses / setting.pointers;
        if fills * SELDOM < passes {
            let why = format!("the other thread filled the array {fills} times in {passes} passes");
            measurement.void = Some(why);
        }
    }
    Ok(measurement)
}

/// Whether a point can be measured here.
fn available(point: &Point) -> Result<(), Failure> {
    let setting = Setting::of(point)?;
    if setting.filled_by_other {
        proximity::pair(&machine::topology::allowed_cpus())?;
    }
    runnable(&setting)
}

/// Whether there is what the race runs on, but for a second CPU: a probe is held to one.
fn runnable(setting: &Setting) -> Result<(), Failure> {
    match setting.implementation {
        Implementation::Model => setting.fix.available(),
        Implementation::Mpx(_) if setting.fix != Fix::None => Err(Failure::unavailable(
            "MPX stores pointer and bounds apart, whatever one does",
            "set implementation to model",
        )),
        Implementation::Mpx(machine) => machine.available(),
    }
}

/// How long a sample takes.
fn expected(point: &Point, _: Duration) -> Duration {
    match Setting::of(point) {
        Ok(setting) if available(point).is_ok() => setting.expected(),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sample::FailureKind;

    fn point(case: &str, implementation: &str, filled_by: &str, fix: &str) -> Point {
        Point::from([
            ("case", case),
            ("implementation", implementation),
            ("filled_by", filled_by),
            ("fix", fix),
            ("pointers", "100"),
            ("accesses", "10000"),
        ])
    }

    fn told(beyond: &str, filled_by: &str, reported: u64) -> Result<Measurement, Failure> {
        let setting = Setting::of(&point(beyond, "model", filled_by, "none")).unwrap();
        judged(&setting, &Outcome { accesses: 1000, reported, fills: 3, access: Some(2.0) })
    }

    #[test]
    fn what_is_not_reported_is_missed_and_what_is_may_be_an_alarm() {
        let missed = told("false-negative", "other-thread", 990).unwrap();
        assert_eq!((missed.values["missed"], missed.values["wrong"]), (0.01, 0.01));
        assert!(!missed.values.contains_key("false_alarms"));
        let alarms = told("false-positive", "other-thread", 20).unwrap();
        assert_eq!((alarms.values["false_alarms"], alarms.values["fills"]), (0.02, 3.0));
        assert!(!alarms.values.contains_key("missed") && alarms.void.is_none());
    }

    #[test]
    fn where_the_other_thread_hardly_ran_the_sample_does_not_count() {
        let other = point("false-negative", "model", "other-thread", "none");
        let setting = Setting::of(&other).unwrap();
        let of = |fills| {
            let outcome = Outcome { accesses: 100_000, reported: 100_000, fills, access: None };
            judged(&setting, &outcome).unwrap().void
        };
        assert_eq!(of(10), None);
        assert!(of(9).unwrap().contains("9 times in 1000 passes"));
    }

    #[test]
    fn a_control_that_is_not_zero_is_a_fault() {
        assert!(told("false-negative", "same-thread", 1000).is_ok());
        assert!(told("false-positive", "same-thread", 0).is_ok());
        for (case, reported) in [("false-negative", 999), ("false-positive", 1)] {
            let why = told(case, "same-thread", reported).unwrap_err();
            assert_eq!(why.kind, FailureKind::Check);
            assert!(why.why.contains("1 of 1000"), "{why}");
        }
    }

    #[test]
    fn mpx_has_no_fix_and_is_never_run_where_it_does_nothing() {
        let fixed = point("false-negative", "mpx-emulated", "same-thread", "lock");
        assert_eq!(available(&fixed).unwrap_err().kind, FailureKind::Unavailable);
        let native = point("false-negative", "mpx", "same-thread", "none");
        assert_eq!(available(&native).is_ok(), machine::cpu::has_mpx());
    }
}
