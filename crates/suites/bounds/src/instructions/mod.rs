//! `bounds/instructions`: latency and reciprocal throughput of forms given as text.

mod artefact;
pub(crate) mod audit;
mod chain;
pub(crate) mod counted;
mod effects;
mod events;
mod feature;
mod forms;
pub(crate) mod hand;
pub(crate) mod list;
mod measured;
mod operand;
mod plan;
mod prepared;
mod probe;
mod share;
pub(crate) mod sharing;
mod sibling;
mod value;

use std::time::Duration;

use lab::factor::{Factor, Levels};
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;

use crate::way::Way;

pub(crate) static WAY: Way = Way {
    name: "instructions",
    factors: FACTORS,
    metrics: METRICS,
    available,
    expected: |point, budget| match available(point) {
        Ok(()) => probe::expected(budget),
        Err(_) => Duration::ZERO,
    },
    artefacts: |_| vec![artefact::recipe()],
    probe: probe::probe,
};

fn available(point: &Point) -> Result<(), Failure> {
    match point.text("sibling") {
        "busy" => sibling::cpu().map(drop),
        _ => Ok(()),
    }
}

const FACTORS: &[Factor] = &[
    Factor {
        name: "form",
        about: "an instruction with its operands; also 'all', 'class mpx', 'marked integer'",
        levels: Levels::Listed(meant),
        default: None,
    },
    Factor {
        name: "sibling",
        about: "what the other thread of the core does: nothing, or the same instructions",
        levels: Levels::Names(&["idle", "busy"]),
        default: None,
    },
];

/// Ports that a processor counts as one are one metric.
const fn port(name: &'static str) -> Metric {
    let about =
        "micro-operations that the port (or those ports) gets in a core cycle, where counted";
    Metric::new(name, "1", Better::Neither, about)
}

const METRICS: &[Metric] = &[
    Metric::new(
        "throughput",
        "cycles",
        Better::Lower,
        "core cycles an instruction of copies that do not wait for one another (reciprocal throughput)",
    ),
    Metric::new(
        "latency",
        "cycles",
        Better::Lower,
        "core cycles an instruction of copies that each feed the next; 'chain' says by what",
    ),
    Metric::new(
        "round_trip",
        "cycles",
        Better::Lower,
        "core cycles of the form and the one that leads its output back into its input",
    ),
    Metric::count(
        "off_integer",
        "how far a latency that is expected to be whole is from it, over max(0.05 cycle, 0.5%)",
    ),
    Metric::count("uops", "micro-operations an instruction, where performance counters count them"),
    port("port_0"),
    port("port_1"),
    port("port_2"),
    port("port_3"),
    port("port_4"),
    port("port_5"),
    port("port_6"),
    port("port_7"),
    port("port_2_3"),
    port("port_2_3_10"),
    port("port_4_9"),
    port("port_5_11"),
    port("port_7_8"),
    Metric::time("measuring", "what measuring the form took, preparing not counted"),
];

/// The levels that a word means.
fn meant(word: &str) -> Vec<String> {
    // A list at fault is told by whoever measures, with its line.
    list::OWN.as_ref().map(|list| list.meant(word)).unwrap_or_default()
}
