//! `copy/mediation`: a pool whose filter rules say which host may read and write which range.
//!
//! ESCAPE enforces its rules in an FPGA, out of its hosts' reach; here the kernel does, set by a
//! mediator that the hosts cannot reach: see [`Mediator`]. Every allowed access must come through and
//! every forbidden one be stopped, those of a host that tries to get round the rules too.

mod access;
mod confine;
mod held;
mod host;
mod mediator;
mod peer;
mod rules;
mod socket;
mod tally;

use std::time::Duration;

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::Metric;
use lab::point::Point;
use lab::quantity;
use lab::sample::Failure;
use machine::mapping::Mapping;

pub use mediator::Mediator;
pub use peer::Terms;
pub use rules::{Access, HOSTS, Range, Right, Rules};
pub use tally::Tally;

use crate::functions;

/// Pages of each range at which accesses are tried.
const PLACES: usize = 8;
/// The least changes of a rule that make a median, and the most.
const CHANGES: std::ops::Range<usize> = 5..64;
/// The host whose right changes, and that copies.
const CHANGED: usize = 1;

/// The factors of this experiment that the others do not have.
pub const FACTORS: &[Factor] = &[
    Factor {
        name: "scale",
        about: "by how much ESCAPE's 16 GiB pool is divided",
        levels: Levels::Checked(|text| scale(text).map(|scale| scale.to_string())),
        default: None,
    },
    Factor {
        name: "mediated",
        about: "yes (the rules are enforced) or no (every host may do all, unconfined)",
        levels: Levels::Names(&["yes", "no"]),
        default: None,
    },
    Factor {
        name: "change",
        about: "which change of a rule is timed: grant (write where it could read) or revoke (the reverse)",
        levels: Levels::Names(&["grant", "revoke"]),
        default: None,
    },
];

/// The metrics of this experiment that the others do not have.
pub const METRICS: &[Metric] = &[
    Metric::count("allowed", "allowed accesses that came through"),
    Metric::count(
        "stopped",
        "forbidden accesses, and attempts to get round the rules, that were stopped",
    ),
    Metric::count("leaked", "forbidden accesses that came through; must be 0"),
    Metric::time(
        "rule_change",
        "from deciding to change a rule until it is in force for both hosts",
    ),
];

fn scale(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(scale) if scale > 0 => Ok(scale),
        _ => Err(format!("'{text}' is not a divisor from 1")),
    }
}

struct Setup {
    rules: Rules,
    range: usize,
    length: usize,
    mediated: bool,
    right: Right,
}

impl Setup {
    fn of(point: &Point) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::unavailable(why, "see `tollgate list` for the levels");
        let scale = point.get("scale").map_or(Ok(256), |level| scale(level.as_str()));
        let scale = scale.map_err(|why| wrong(format!("factor 'scale': {why}")))?;
        let rules = Rules::escape(scale).map_err(|why| wrong(why.to_string()))?;
        let range =
            rules.shared().ok_or_else(|| wrong("no range is shared by both hosts".into()))?;
        let length =
            quantity::bytes(point.text("length")).map_err(|why| wrong(why.to_string()))? as usize;
        let room = rules.ranges[range].length;
        if !(1..=room).contains(&length) {
            return Err(wrong(format!("{length} B do not fit into a shared range of {room} B")));
        }
        let mediated = match point.text("mediated") {
            "yes" | "" => true,
            "no" => false,
            other => return Err(wrong(format!("mediated is yes or no, not '{other}'"))),
        };
        let right = match point.text("change") {
            "grant" => Right::Write,
            "revoke" | "" => Right::Read,
            other => return Err(wrong(format!("a change is grant or revoke, not '{other}'"))),
        };
        let rules = if mediated { rules } else { rules.open() };
        Ok(Self { rules, range, length, mediated, right })
    }
}

/// Whether a point can be measured here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    let setup = Setup::of(point)?;
    functions::check(point.text("function"))?;
    // While a rule changes, a range is there twice.
    let (needed, free) = (2 * setup.rules.length() as u64, machine::memory::available());
    if needed > free {
        return Err(Failure::unavailable(
            format!("the pool needs {} MiB and {} MiB are free", needed >> 20, free >> 20),
            "raise scale, or free memory",
        ));
    }
    Ok(())
}

/// How long a sample takes with all that it prepares: the pool is made once, and its shared range
/// again with every change.
pub fn expected(point: &Point, budget: Duration) -> Duration {
    let bytes = Setup::of(point).map_or(0, |setup| setup.rules.length());
    let renewals = CHANGES.start + 5;
    budget.saturating_mul(2)
        + Duration::from_millis(10)
        + Duration::from_secs_f64(bytes as f64 * renewals as f64 / 1.5e9)
}

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Mediation)
}

struct Mediation;

impl Probe for Mediation {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let setup = Setup::of(point)?;
        let function = functions::find(point.text("function"))?;
        let source = filled(setup.length)?;
        let first = *context.cpus.first().ok_or_else(|| Failure::failed("no CPU may be used"))?;
        let terms = Terms {
            cpus: [first, *context.cpus.get(1).unwrap_or(&first)],
            copy: function.pointer(),
            source: &source,
            confined: setup.mediated,
        };
        let mut mediator = Mediator::new(setup.rules.clone(), &terms)?;
        let mut tally = Tally::default();
        mediator.verify(PLACES, &mut tally)?;
        let ticks = context.tsc()?.ticks(context.budget);
        let copy = mediator.copy(setup.range, CHANGED, &source, ticks)?;
        let mut measurement = Measurement::default().value(
            "throughput",
            setup.length as f64 * context.tsc()?.hertz / copy.max(f64::MIN_POSITIVE),
        );
        if setup.mediated {
            mediator.attack(setup.range, CHANGED, &mut tally)?;
            let change = changes(&mut mediator, &setup, context, &mut tally)?;
            measurement = measurement.value("rule_change", change);
        }
        tally.enforced()?;
        Ok(measurement
            .value("allowed", tally.allowed as f64)
            .value("stopped", tally.stopped as f64)
            .value("leaked", tally.leaked as f64)
            .value("checked", setup.length as f64))
    }
}

/// Takes a right and gives it back, again and again; the median time of the asked change, ns. After
/// every change accesses show that it is in force.
fn changes(
    mediator: &mut Mediator,
    setup: &Setup,
    context: &Context,
    tally: &mut Tally,
) -> Result<f64, Failure> {
    let mut taken = Vec::new();
    let end = std::time::Instant::now() + context.budget;
    while taken.len() < CHANGES.end
        && (taken.len() < CHANGES.start || std::time::Instant::now() < end)
    {
        for right in [Right::Read, Right::Write] {
            let ticks = mediator.change(setup.range, CHANGED, right)?;
            mediator.verify(1, tally)?;
            if right == setup.right {
                taken.push(ticks);
            }
        }
    }
    taken.sort_unstable();
    let median = taken[taken.len() / 2].saturating_sub(context.tsc()?.overhead);
    Ok(context.tsc()?.nanoseconds(median as f64))
}

fn filled(length: usize) -> Result<Mapping, Failure> {
    let source = Mapping::anonymous(length).map_err(|why| Failure::failed(why.to_string()))?;
    for index in 0..length {
        // SAFETY: index lies in the mapping, which is ours alone.
        unsafe { source.as_mut_ptr().add(index).write((index % 251) as u8 + 1) };
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_levels_are_refused() {
        let point = Point::from([("length", "4 KiB"), ("function", "glibc")]);
        let of = |scale| Setup::of(&point.with("scale", scale)).map(|setup| setup.rules.length());
        let default = Setup::of(&point).ok().map(|setup| setup.rules.length());
        assert_eq!(of("256").ok(), default);
        assert!(of("1024").unwrap() < of("256").unwrap());
        for scale in ["", "x", "0", "-1", "1.5", "18446744073709551616"] {
            let why = of(scale).unwrap_err().why;
            assert_eq!(why, format!("factor 'scale': '{scale}' is not a divisor from 1"));
        }
        for (factor, level) in [("mediated", "maybe"), ("change", "Grant")] {
            let why = Setup::of(&point.with(factor, level)).err().unwrap().why;
            assert!(why.contains(&format!("'{level}'")), "{why}");
        }
    }
}
