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

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;
use machine::mapping::Mapping;

pub use mediator::Mediator;
pub use peer::Terms;
pub use rules::{Access, HOSTS, Range, Right, Rules};
pub use tally::Tally;

use crate::{factors, functions, lengths, metrics};

/// Pages of each range at which accesses are tried.
const PLACES: usize = 8;
/// The least changes of a rule that make a median, and the most.
const CHANGES: std::ops::Range<usize> = 5..64;
/// The host whose right changes, and that copies.
const CHANGED: usize = 1;

/// Whether the rules are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Mediated {
    Yes,
    No,
}

/// Which change of a rule is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Change {
    Grant,
    Revoke,
}

/// Levels of `mediation`.
#[derive(Debug, Clone, Params)]
pub(crate) struct MediationParams {
    /// bytes a copy
    #[factor(default = "64 KiB", levels = Levels::Bytes(1, lengths::LONGEST))]
    length: usize,
    /// what copies: a function of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(factors::suite_function))]
    function: String,
    /// by how much ESCAPE's 16 GiB pool is divided
    #[factor(default = "256", levels = Levels::Count(1, u64::MAX))]
    scale: u64,
    /// yes (the rules are enforced) or no (every host may do all, unconfined)
    #[factor(default = "yes")]
    mediated: Mediated,
    /// which change of a rule is timed: grant (write where it could read) or revoke (the reverse)
    #[factor(default = "revoke")]
    change: Change,
}

const METRICS: &[Metric] = &[
    metrics::THROUGHPUT_METRIC,
    metrics::CHECKED_METRIC,
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

struct Setup {
    rules: Rules,
    range: usize,
    length: usize,
    mediated: bool,
    right: Right,
}

impl Setup {
    fn new(params: &MediationParams) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::unavailable(why, "see `tollgate list` for the levels");
        let length = params.length;
        let rules = Rules::escape(params.scale).map_err(|why| wrong(why.to_string()))?;
        let range =
            rules.shared().ok_or_else(|| wrong("no range is shared by both hosts".into()))?;
        let room = rules.ranges[range].length;
        if !(1..=room).contains(&length) {
            return Err(wrong(format!("{length} B do not fit into a shared range of {room} B")));
        }
        let mediated = params.mediated == Mediated::Yes;
        let right = match params.change {
            Change::Grant => Right::Write,
            Change::Revoke => Right::Read,
        };
        let rules = if mediated { rules } else { rules.open() };
        Ok(Self { rules, range, length, mediated, right })
    }
}

/// Copies into a pool whose rules a mediator enforces.
pub(crate) struct Mediation;

impl Method for Mediation {
    type Params = MediationParams;

    fn name(&self) -> &'static str {
        "mediation"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &MediationParams) -> Result<(), Failure> {
        let setup = Setup::new(params)?;
        functions::check(&params.function)?;
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

    /// With all that it prepares: the pool is made once, and its shared range again with every change.
    fn expected(&self, params: &MediationParams, budget: Duration) -> Duration {
        let bytes = Setup::new(params).map_or(0, |setup| setup.rules.length());
        let renewals = CHANGES.start + 5;
        budget.saturating_mul(2)
            + Duration::from_millis(10)
            + Duration::from_secs_f64(bytes as f64 * renewals as f64 / 1.5e9)
    }

    fn code(&self, params: &MediationParams) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<MediationParams>>, Failure> {
        Ok(Box::new(MediationProbe))
    }
}

struct MediationProbe;

impl Probe<MediationParams> for MediationProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &MediationParams,
    ) -> Result<Measurement, Failure> {
        let setup = Setup::new(params)?;
        let function = functions::find(&params.function)?;
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
    use lab::point::Point;

    use super::*;

    #[test]
    fn the_pool_shrinks_with_the_scale() {
        let of = |scale: &str| {
            let point = Point::from([("length", "4 KiB"), ("scale", scale)]);
            Setup::new(&MediationParams::with_defaults(&point)?).map(|setup| setup.rules.length())
        };
        let default = MediationParams::with_defaults(&Point::default()).unwrap();
        assert_eq!(of("256").ok(), Setup::new(&default).ok().map(|setup| setup.rules.length()));
        assert!(of("1024").unwrap() < of("256").unwrap());
        for scale in ["", "x", "0", "-1", "1.5", "18446744073709551616"] {
            assert!(of(scale).unwrap_err().why.starts_with("factor 'scale': "), "{scale}");
        }
    }
}
