//! Known delays and faults that test the instrument itself.
//!
//! The suite runs on the machine at hand and uses everything that a real suite uses: orders, fresh
//! processes, the journal, resuming, claims.

mod delay;
mod fault;
mod guest;
mod parts;

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::suite::{Data, Purpose, Suite};

/// The suite, as the program registers it.
pub static SUITE: Planted = Planted;

/// The planted suite.
pub struct Planted;

impl SuiteCommand for Planted {}

impl Suite for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn about(&self) -> &'static str {
        "known delays and faults that test the instrument itself"
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
