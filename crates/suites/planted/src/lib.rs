//! Known delays and known faults: what the lab must find and survive.
//!
//! The suite tests the instrument itself, on the machine at hand, through everything that a real
//! suite goes through: orders, fresh processes, the journal, resuming, claims.

mod delay;
mod fault;
mod guest;
mod parts;

use lab::artefact::Recipe;
use lab::factor::{Factor, Levels};
use lab::guest::Guest;
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::{Data, Probe, Purpose, Suite};

/// The suite.
pub static SUITE: Planted = Planted;

/// Known delays and known faults.
pub struct Planted;

const FACTORS: &[Factor] = &[
    Factor {
        name: "effect",
        about: "How much longer the body is",
        levels: Levels::Checked(delay::effect_level),
    },
    Factor {
        name: "disturbance",
        about: "What is injected besides",
        levels: Levels::Names(&["calm", "drift-and-stalls"]),
    },
    Factor { name: "fault", about: "What goes wrong", levels: Levels::Names(fault::FAULTS) },
    Factor {
        name: "wait",
        about: "How long a role waits, in ms",
        levels: Levels::Count(0, 10_000),
    },
    Factor {
        name: "edge",
        about: "Up to where the condition holds",
        levels: Levels::Count(0, 1000),
    },
    Factor {
        name: "artefact",
        about: "What the host must make",
        levels: Levels::Names(&["table", "impossible"]),
    },
    Factor {
        name: "place",
        about: "Where it runs: here, in a guest, or in one that does not come to be",
        levels: Levels::Names(&["host", "guest", "panic", "unmakeable"]),
    },
];

const METRICS: &[Metric] = &[
    Metric { name: "time", unit: "ns", better: Better::Lower, about: "One pass of the body" },
    Metric { name: "waited", unit: "ns", better: Better::Neither, about: "From start to stop" },
    Metric { name: "sent", unit: "1", better: Better::Neither, about: "Stops sent" },
    Metric::new("ready_at", "us", Better::Neither, "When a role was ready, by the host's clock"),
    Metric::new("started_at", "us", Better::Neither, "When it started, by the same clock"),
    Metric::new("stopped_at", "us", Better::Neither, "When it stopped, by the same clock"),
    Metric { name: "found", unit: "1", better: Better::Higher, about: "The edge that was found" },
    Metric { name: "inside", unit: "1", better: Better::Neither, about: "Whether in a guest" },
];

impl Suite for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn about(&self) -> &'static str {
        "Known delays and known faults: tests the instrument itself"
    }

    fn purpose(&self) -> Purpose {
        Purpose::SelfTest
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn factors(&self) -> &'static [Factor] {
        FACTORS
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn artefacts(&self, experiment: &str, point: &Point) -> Vec<Recipe> {
        if experiment == "artefact" {
            vec![parts::recipe(point.text("artefact"))]
        } else {
            Vec::new()
        }
    }

    fn guest(&self, experiment: &str, point: &Point) -> Option<Guest> {
        if experiment == "guest" { guest::of(point) } else { None }
    }

    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
        match experiment {
            "delay" | "disturbed" => Ok(Box::new(delay::Delay)),
            "faults" => Ok(Box::new(fault::Fault)),
            "roles" => Ok(Box::new(parts::Roles)),
            "search" => Ok(Box::new(parts::Edge)),
            "artefact" => Ok(Box::new(parts::Artefact)),
            "guest" => Ok(Box::new(guest::Place)),
            other => Err(Failure::failed(format!("there is no experiment 'planted/{other}'"))),
        }
    }
}
