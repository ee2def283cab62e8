//! `copy/mediation`: a pool whose rules state which host may read and write which range.
//!
//! ESCAPE enforces its rules in an FPGA that its hosts cannot reach; here the kernel enforces them, set
//! by a mediator that the hosts cannot reach: see [`Mediator`]. Every allowed access must succeed and
//! every forbidden one must be stopped, including attempts of a host to bypass the rules.

pub(crate) mod guard;
mod host;
mod mediator;
mod pool;
mod socket;

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;
use machine::mapping::Mapping;

pub use host::HostConfig;
pub use mediator::{AccessCounts, Mediator};
pub use vm::rules::{Access, HOSTS, Permission, Range, Rules};

use crate::{functions, lengths, levels, metrics};

/// Offsets of each range at which accesses are tried.
const OFFSETS: usize = 8;
/// Minimum and maximum number of rule changes for a median.
const CHANGES: std::ops::Range<usize> = 5..64;
/// The host whose permission changes, and that copies.
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

/// Params of `mediation`.
#[derive(Debug, Clone, Params)]
pub(crate) struct MediationParams {
    /// bytes per copy
    #[factor(default = "64 KiB", levels = Levels::Bytes(1, lengths::MAX_LENGTH))]
    length: usize,
    /// copy function: one of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(levels::suite_function))]
    function: String,
    /// divisor of ESCAPE's 16 GiB pool
    #[factor(default = "256", levels = Levels::Count(1, u64::MAX))]
    scale: u64,
    /// yes (the rules are enforced) or no (every host may access everything, unconfined)
    #[factor(default = "yes")]
    mediated: Mediated,
    /// timed change of a rule: grant (write permission to a reader) or revoke (the reverse)
    #[factor(default = "revoke")]
    change: Change,
}

const METRICS: &[Metric] = &[
    metrics::THROUGHPUT_METRIC,
    metrics::CHECKED_METRIC,
    Metric::count("allowed", "allowed accesses that succeeded"),
    Metric::count(
        "stopped",
        "forbidden accesses, and attempts to bypass the rules, that were stopped",
    ),
    Metric::count("leaked", "forbidden accesses that succeeded; must be 0"),
    Metric::time(
        "rule_change",
        "from the decision to change a rule until it takes effect for both hosts",
    ),
];

struct Plan {
    rules: Rules,
    range: usize,
    length: usize,
    mediated: bool,
    permission: Permission,
}

impl Plan {
    fn new(params: &MediationParams) -> Result<Self, Failure> {
        let wrong = |why: String| {
            Failure::unavailable(why, "choose another length or scale: `tollgate list`")
        };
        let length = params.length;
        let rules = Rules::escape(params.scale).map_err(|why| wrong(why.to_string()))?;
        let range =
            rules.shared().ok_or_else(|| wrong("no range is shared by both hosts".into()))?;
        let capacity = rules.ranges[range].length;
        if !(1..=capacity).contains(&length) {
            return Err(wrong(format!("{length} B exceed the shared range of {capacity} B")));
        }
        let mediated = params.mediated == Mediated::Yes;
        let permission = match params.change {
            Change::Grant => Permission::ReadWrite,
            Change::Revoke => Permission::Read,
        };
        let rules = if mediated { rules } else { rules.open() };
        Ok(Self { rules, range, length, mediated, permission })
    }
}

/// The method `mediation`: copies into a pool whose rules a mediator enforces.
pub(crate) struct Mediation;

impl Method for Mediation {
    type Params = MediationParams;

    fn name(&self) -> &'static str {
        "mediation"
    }

    fn how(&self) -> &'static str {
        "The median batch of copies and, with rules, the median change of a rule are timed by the time-stamp \
         counter. First two processes try loads and stores at 8 offsets of each range: each access that a \
         rule allows must succeed, each other one must be stopped; copied bytes and changed rules are checked \
         too."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &MediationParams) -> Result<(), Failure> {
        let plan = Plan::new(params)?;
        functions::check(&params.function)?;
        // While a rule changes, two copies of a range exist.
        let (needed, free) = (2 * plan.rules.length() as u64, machine::proc::available_memory());
        if needed > free {
            return Err(Failure::unavailable(
                format!("the pool needs {} MiB and {} MiB are free", needed >> 20, free >> 20),
                "raise scale, or free memory",
            ));
        }
        Ok(())
    }

    /// Includes preparation: the pool is created once, and its shared range again with every change.
    fn expected(&self, params: &MediationParams, budget: Duration) -> Duration {
        let bytes = Plan::new(params).map_or(0, |plan| plan.rules.length());
        let renewals = CHANGES.start + 5;
        budget.saturating_mul(2)
            + Duration::from_millis(10)
            + Duration::from_secs_f64(bytes as f64 * renewals as f64 / 1.5e9)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["copy::functions", "copy::mediation::guard"]
    }

    fn code(&self, params: &MediationParams, _: &BTreeMap<String, String>) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<MediationParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

fn measure(context: &mut Context, params: &MediationParams) -> Result<Measurement, Failure> {
    let plan = Plan::new(params)?;
    let function = functions::find(&params.function)?;
    let source = filled(plan.length)?;
    let first = *context.cpus.first().ok_or_else(|| Failure::failed("no CPU is allowed"))?;
    let config = HostConfig {
        cpus: [first, *context.cpus.get(1).unwrap_or(&first)],
        copy: function.pointer(),
        source: &source,
        confined: plan.mediated,
    };
    let mut mediator = Mediator::new(plan.rules.clone(), &config)?;
    let mut counts = AccessCounts::default();
    mediator.verify(OFFSETS, &mut counts)?;
    let ticks = context.tsc()?.ticks(context.budget);
    let copy = mediator.copy(plan.range, CHANGED, &source, ticks)?;
    function.record();
    let mut measurement = Measurement::default().value(
        "throughput",
        plan.length as f64 * context.tsc()?.hertz / copy.max(f64::MIN_POSITIVE),
    );
    if plan.mediated {
        mediator.attack(plan.range, CHANGED, &mut counts)?;
        let change = changes(&mut mediator, &plan, context, &mut counts)?;
        measurement = measurement.value("rule_change", change);
    }
    counts.check()?;
    Ok(measurement
        .value("allowed", counts.allowed as f64)
        .value("stopped", counts.stopped as f64)
        .value("leaked", counts.leaked as f64)
        .value("checked", plan.length as f64))
}

/// Revokes and grants a permission repeatedly, and verifies after each change that it has taken effect.
/// Returns the median time of the requested change, in ns.
fn changes(
    mediator: &mut Mediator,
    plan: &Plan,
    context: &Context,
    counts: &mut AccessCounts,
) -> Result<f64, Failure> {
    let mut times = Vec::new();
    let end = std::time::Instant::now() + context.budget;
    while times.len() < CHANGES.end
        && (times.len() < CHANGES.start || std::time::Instant::now() < end)
    {
        for permission in [Permission::Read, Permission::ReadWrite] {
            let ticks = mediator.change(plan.range, CHANGED, permission)?;
            mediator.verify(1, counts)?;
            if permission == plan.permission {
                times.push(ticks);
            }
        }
    }
    times.sort_unstable();
    let median = times[times.len() / 2].saturating_sub(context.tsc()?.overhead);
    Ok(context.tsc()?.nanoseconds(median as f64))
}

fn filled(length: usize) -> Result<Mapping, Failure> {
    let source = Mapping::anonymous(length)?;
    for index in 0..length {
        // SAFETY: the index is in the mapping, which only this function uses.
        unsafe { source.as_mut_ptr().add(index).write((index % 251) as u8 + 1) };
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use lab::point::Point;

    use super::*;

    #[test]
    fn the_scale_divides_the_pool() {
        let of = |scale: &str| {
            let point = Point::from([("length", "4 KiB"), ("scale", scale)]);
            Plan::new(&MediationParams::with_defaults(&point)?).map(|plan| plan.rules.length())
        };
        let default = MediationParams::with_defaults(&Point::default()).unwrap();
        assert_eq!(of("256").ok(), Plan::new(&default).ok().map(|plan| plan.rules.length()));
        assert!(of("1024").unwrap() < of("256").unwrap());
        for scale in ["", "x", "0", "-1", "1.5", "18446744073709551616"] {
            assert!(of(scale).unwrap_err().why.starts_with("factor 'scale': "), "{scale}");
        }
    }
}
