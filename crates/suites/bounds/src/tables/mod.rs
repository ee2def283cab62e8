//! `bounds/tables`: what the tables of bounds cost in the operating system: mapped when the first pointer
//! of a MiB is stored, and unmapped when its memory is freed.

pub(crate) mod hand;
mod instructions;
mod memory;
mod pass;
mod setting;
mod slots;
mod trap;
mod usage;
mod ways;

use std::time::{Duration, Instant};

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;
use lab::statistics::median;
use machine::tsc::Tsc;

use crate::way::Way;
use instructions::Instructions;
use memory::SmallPages;
use pass::{Kind, Took};
use setting::Setting;

/// This way of measuring.
pub(crate) static WAY: Way = Way {
    name: "tables",
    factors: FACTORS,
    metrics: METRICS,
    available,
    expected,
    artefacts: |_| Vec::new(),
    probe: || Box::new(Measured),
};

const FACTORS: &[Factor] = &[
    Factor {
        name: "tables",
        about: "none; inline: the store looks whether there is one and maps it; trap: the store faults \
                and the handler maps it; arena: taken from one mapping made before",
        levels: Levels::Names(&["none", "inline", "trap", "arena"]),
        default: None,
    },
    Factor {
        name: "life",
        about: "kept, or freed with its pointer's memory before the next is made",
        levels: Levels::Names(&["kept", "freed"]),
        default: None,
    },
    Factor {
        name: "slots",
        about: "own: each pointer lies in memory mapped for it; shared: all in one mapping",
        levels: Levels::Names(&["own", "shared"]),
        default: None,
    },
    Factor {
        name: "counted",
        about: "time alone, or with it instructions by performance counters",
        levels: Levels::Names(&["time", "instructions"]),
        default: None,
    },
    Factor {
        name: "count",
        about: "pointers, each with a table of its own",
        levels: Levels::Count(1, setting::MAX_COUNT as u64),
        default: None,
    },
];

const METRICS: &[Metric] = &[
    Metric::time("store", "one pointer stored, with its memory and its table made (and freed)"),
    Metric::time("table", "one table: the store less the same store without tables, in turns"),
    Metric::new(
        "over_baseline",
        "1",
        Better::Lower,
        "the store over the same store without tables, in turns",
    ),
    Metric::time("user", "CPU time in user mode of one store, as the kernel accounts it"),
    Metric::time("system", "CPU time in the kernel of one store, as it accounts it"),
    Metric::new(
        "system_share",
        "share",
        Better::Neither,
        "the kernel's part of the CPU time of a store, as it accounts it",
    ),
    Metric::new("faults", "1", Better::Lower, "page faults of one store"),
    Metric::new("user_instructions", "1", Better::Lower, "instructions of one store in user mode"),
    Metric::new(
        "system_instructions",
        "1",
        Better::Lower,
        "instructions of one store in the kernel",
    ),
];

struct Measured;

impl Probe for Measured {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        available(point)?;
        let tsc = context.tsc()?;
        let setting = Setting::of(point)?;
        let _small = SmallPages::only();
        let counters = setting.counted.then(Instructions::open).transpose()?;
        let passes = passes(&setting, tsc, counters.as_ref(), context.budget)?;
        told(&setting, &passes)
    }
}

/// A pass as asked for, and one without tables in its turn.
struct Turn {
    asked: Took,
    plain: Option<Took>,
}

/// Passes in turns until the budget is spent, one at least. Every other turn goes the other way round.
fn passes(
    setting: &Setting,
    tsc: &Tsc,
    counters: Option<&Instructions>,
    budget: Duration,
) -> Result<Vec<Turn>, Failure> {
    let end = Instant::now() + budget;
    let run = |kind| setting.pass.run(kind, tsc, counters);
    let mut turns = Vec::new();
    loop {
        turns.push(match (setting.kind, turns.len() % 2) {
            (Kind::None, _) => Turn { asked: run(Kind::None)?, plain: None },
            (kind, 0) => {
                let plain = Some(run(Kind::None)?);
                Turn { asked: run(kind)?, plain }
            }
            (kind, _) => Turn { asked: run(kind)?, plain: Some(run(Kind::None)?) },
        });
        if Instant::now() >= end {
            return Ok(turns);
        }
    }
}

fn told(setting: &Setting, turns: &[Turn]) -> Result<Measurement, Failure> {
    let count = setting.pass.count as f64;
    let middle = |value: &dyn Fn(&Turn) -> Option<f64>| {
        median(&turns.iter().filter_map(value).collect::<Vec<_>>())
    };
    // The kernel's account comes in ticks, so that its passes are added up.
    let mean = |value: &dyn Fn(&Took) -> f64| {
        turns.iter().map(|turn| value(&turn.asked)).sum::<f64>() / turns.len() as f64 / count
    };
    let plain = |turn: &Turn| turn.plain.map(|plain| plain.time);
    let counted = |which: usize| {
        middle(&|turn: &Turn| turn.asked.instructions.map(|counts| counts[which] / count))
    };
    let values = [
        ("store", middle(&|turn| Some(turn.asked.time / count))),
        ("table", middle(&|turn| Some((turn.asked.time - plain(turn)?) / count))),
        ("over_baseline", middle(&|turn| Some(turn.asked.time / plain(turn)?))),
        ("user", Some(mean(&|took| took.usage.user))),
        ("system", Some(mean(&|took| took.usage.system))),
        ("system_share", system_share(turns)),
        ("faults", Some(mean(&|took| took.usage.faults))),
        ("user_instructions", counted(0)),
        ("system_instructions", counted(1)),
    ];
    let given = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    Ok(given.fold(Measurement::default(), |told, (name, value)| told.value(name, value)))
}

/// Of all passes; none where they were too short for the kernel's account.
fn system_share(turns: &[Turn]) -> Option<f64> {
    let system: f64 = turns.iter().map(|turn| turn.asked.usage.system).sum();
    let user: f64 = turns.iter().map(|turn| turn.asked.usage.user).sum();
    (system + user > 0.0).then(|| system / (system + user))
}

/// Whether a point can be measured here.
fn available(point: &Point) -> Result<(), Failure> {
    let setting = Setting::of(point)?;
    if setting.counted {
        Instructions::open()?;
    }
    setting.room(
        number("/proc/sys/vm/max_map_count", "")?,
        number("/proc/meminfo", "MemAvailable:")? << 10,
    )
}

/// How long a sample takes.
fn expected(point: &Point, budget: Duration) -> Duration {
    match Setting::of(point) {
        Ok(setting) if available(point).is_ok() => setting.expected(budget),
        _ => Duration::ZERO,
    }
}

/// The number behind a word in a file of the kernel's.
fn number(file: &str, word: &str) -> Result<u64, Failure> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Failure::failed(format!("{file}: no number behind '{word}'")))
}
