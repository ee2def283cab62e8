//! `bounds/tables`: the cost of bounds tables in the operating system. A table is mapped when the first pointer of a
//! MiB is stored, and unmapped when the pointer's memory is freed. Without a usable clock, as on an emulated CPU, the
//! tables are checked and page faults counted, and nothing is timed.

pub(crate) mod cli;
pub(crate) mod in_kernel;
mod memory;
mod params;
mod pass;
mod slots;
mod strategies;
mod trap;
mod usage;

use std::time::{Duration, Instant};

use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use lab::statistics::median;
use machine::proc;
use machine::tsc::Tsc;
use machine::usage::Usage;

use memory::SmallPages;
use params::{Counted, TableParams, TableStrategy};
use pass::{Pass, PassCost};
use usage::InstructionCounters;

pub(crate) use usage::capability;

/// Stores pointers whose bounds need a new table each.
pub(crate) struct Tables;

impl Method for Tables {
    type Params = TableParams;

    fn name(&self) -> &'static str {
        "tables"
    }

    fn how(&self) -> &'static str {
        "A pass stores pointers a MiB apart, so that each needs a bounds table of its own, and alternates \
         with a pass that touches the same pages without tables; both are timed by the time-stamp counter. \
         Every pointer must have had its table, and every kept entry must contain its bounds."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &TableParams) -> Result<(), Failure> {
        match params.counted {
            Counted::Instructions => drop(InstructionCounters::open()?),
            Counted::Time => {}
        }
        let max_mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count")?;
        let max_mappings = proc::number(&max_mappings, "").unwrap_or(u64::MAX);
        params.check_capacity(max_mappings, proc::available_memory())
    }

    fn expected(&self, params: &TableParams, budget: Duration) -> Duration {
        params.expected(budget)
    }

    fn probe(&self) -> Result<Box<dyn Probe<TableParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

const METRICS: &[Metric] = &[
    Metric::time("store", "one pointer stored: its memory and its table made (and freed)"),
    Metric::time("table", "one table: the store minus the same store without tables, interleaved").called("time of one table"),
    Metric::new(
        "over_baseline",
        "1",
        Better::Lower,
        "ratio of the store to the same store without tables, interleaved",
    ).called("ratio to the store without tables")
    .from_time(),
    Metric::time("user", "CPU time of one store in user mode, as accounted by the kernel"),
    Metric::time("system", "CPU time of one store in the kernel, as accounted by the kernel"),
    Metric::new(
        "table_system_share",
        "share",
        Better::Neither,
        "share of the kernel in the CPU time that tables add to a store, as accounted by the kernel",
    )
    .signed()
    .from_time(),
    Metric::new("faults", "1", Better::Lower, "page faults per store"),
    Metric::new("user_instructions", "1", Better::Lower, "instructions per store in user mode"),
    Metric::new("system_instructions", "1", Better::Lower, "instructions per store in the kernel"),
];

fn measure(context: &mut Context, params: &TableParams) -> Result<Measurement, Failure> {
    Tables.available(params)?;
    let tsc = context.tsc().ok();
    let _small_pages = SmallPages::only();
    let counters = match params.counted {
        Counted::Instructions => Some(InstructionCounters::open()?),
        Counted::Time => None,
    };
    let passes = passes(params, tsc, counters.as_ref(), context.budget)?;
    Ok(to_measurement(params, &passes, tsc.is_some()))
}

/// A pass with tables and the pass without them that was interleaved with it.
struct PassPair {
    measured: PassCost,
    plain: Option<PassCost>,
}

/// Runs pairs of passes until the budget is spent, at least one. The order within a pair alternates.
fn passes(
    params: &TableParams,
    tsc: Option<&Tsc>,
    counters: Option<&InstructionCounters>,
    budget: Duration,
) -> Result<Vec<PassPair>, Failure> {
    let end = Instant::now() + budget;
    let pass = Pass::from_params(params);
    let run = |strategy| pass.run(strategy, tsc, counters);
    let mut pairs = Vec::new();
    loop {
        pairs.push(match (params.tables, pairs.len() % 2) {
            (TableStrategy::None, _) => {
                PassPair { measured: run(TableStrategy::None)?, plain: None }
            }
            (strategy, 0) => {
                let plain = Some(run(TableStrategy::None)?);
                PassPair { measured: run(strategy)?, plain }
            }
            (strategy, _) => {
                PassPair { measured: run(strategy)?, plain: Some(run(TableStrategy::None)?) }
            }
        });
        if Instant::now() >= end {
            return Ok(pairs);
        }
    }
}

/// Returns the medians and means as metrics; times only if the passes were `timed`.
fn to_measurement(params: &TableParams, pairs: &[PassPair], timed: bool) -> Measurement {
    let count = params.count as f64;
    let median_of = |value: &dyn Fn(&PassPair) -> Option<f64>| {
        median(&pairs.iter().filter_map(value).collect::<Vec<_>>())
    };
    // The kernel accounts CPU time in ticks, so all passes are summed.
    let mean = |value: &dyn Fn(&PassCost) -> f64| {
        pairs.iter().map(|pair| value(&pair.measured)).sum::<f64>() / pairs.len() as f64 / count
    };
    let plain = |pair: &PassPair| pair.plain.and_then(|plain| plain.time);
    let cpu =
        |time: fn(&Usage) -> Duration| timed.then(|| mean(&|cost| nanoseconds(time(&cost.usage))));
    let instructions = |mode: usize| {
        median_of(&|pair: &PassPair| pair.measured.instructions.map(|counts| counts[mode] / count))
    };
    let values = [
        ("store", median_of(&|pair| Some(pair.measured.time? / count))),
        ("table", median_of(&|pair| Some((pair.measured.time? - plain(pair)?) / count))),
        ("over_baseline", median_of(&|pair| Some(pair.measured.time? / plain(pair)?))),
        ("user", cpu(|usage| usage.user)),
        ("system", cpu(|usage| usage.system)),
        ("table_system_share", table_system_share(pairs).filter(|_| timed)),
        ("faults", Some(mean(&|cost| cost.usage.faults() as f64))),
        ("user_instructions", instructions(0)),
        ("system_instructions", instructions(1)),
    ];
    let present = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let measurement = present
        .fold(Measurement::default(), |measurement, (name, value)| measurement.value(name, value));
    match params.counted {
        Counted::Instructions => measurement.covariate("counted_by", "performance-counters"),
        Counted::Time => measurement,
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Returns the kernel's share of the difference between the passes with tables and those without; `None` if the
/// kernel's accounting shows no difference.
fn table_system_share(pairs: &[PassPair]) -> Option<f64> {
    let added = |time: fn(&Usage) -> Duration| -> Option<f64> {
        let differences = pairs.iter().map(|pair| {
            let plain = pair.plain.as_ref()?;
            Some(nanoseconds(time(&pair.measured.usage)) - nanoseconds(time(&plain.usage)))
        });
        differences.sum()
    };
    let (system, user) = (added(|usage| usage.system)?, added(|usage| usage.user)?);
    (system + user > 0.0).then(|| system / (system + user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_kernel_is_that_of_the_difference() {
        let cost = |user, system| {
            let [user, system] = [user, system].map(Duration::from_micros);
            PassCost { usage: Usage { user, system, ..Usage::default() }, ..PassCost::default() }
        };
        let pair = |measured, plain| PassPair { measured, plain: Some(plain) };
        // The tables add 30 us, 27 of them in the kernel; all of the store is 70% in the kernel.
        let passes = [pair(cost(20, 30), cost(18, 20)), pair(cost(10, 40), cost(9, 23))];
        assert_eq!(table_system_share(&passes), Some(0.9));
        assert_eq!(table_system_share(&[pair(cost(1, 2), cost(2, 2))]), None);
        let none = PassPair { measured: cost(1, 1), plain: None };
        assert_eq!(table_system_share(&[none]), None);
    }
}
