//! Known delays and known faults: what the lab must find and survive.
//!
//! The suite tests the instrument itself, on the machine at hand, through everything that a real
//! suite goes through: orders, fresh processes, the journal, resuming, claims.

mod delay;
mod fault;
mod guest;
mod parts;

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::suite::{Data, Purpose, Suite};

/// The suite.
pub static SUITE: Planted = Planted;

/// Known delays and known faults.
pub struct Planted;

impl SuiteCommand for Planted {}

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

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        &[
            &delay::Delay,
            &fault::Faults,
            &parts::Roles,
            &parts::EdgeSearch,
            &parts::Prepared,
            &guest::InGuest,
        ]
    }
}
