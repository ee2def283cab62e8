//! What the lab asks of the suite.

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use crate::way::WAYS;
use crate::{assembler, hand, instructions, kernels, mpx};

/// What a bounds check costs.
pub struct BoundsSuite;

impl Suite for BoundsSuite {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn about(&self) -> &'static str {
        "pointers checked against their bounds: instructions, tables, programs, threads"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        WAYS
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn capabilities(&self) -> Vec<Capability> {
        let mut capabilities = vec![
            assembler::AS.capability(),
            instructions::audit::capability(),
            instructions::counted::capability(),
        ];
        capabilities.extend(kernels::capabilities());
        capabilities.push(mpx::capability());
        capabilities
    }
}

impl SuiteCommand for BoundsSuite {
    fn command(&self) -> Option<clap::Command> {
        Some(hand::command())
    }

    fn run_command(
        &self,
        matches: &clap::ArgMatches,
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(matches, lab)
    }
}
