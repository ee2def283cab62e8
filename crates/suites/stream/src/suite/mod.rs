//! What the lab asks of the suite.

mod application;
pub mod ceiling;
mod closed;
mod interface;
mod load;
mod measured;
mod methods;
pub mod metrics;
pub mod params;
mod search;
pub mod setting;
pub mod stall;
mod stand;

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use crate::hand;

/// From the NIC to the application.
pub struct StreamSuite;

/// Cores of the application that the source's claims need: one of them, and all.
const CORES: [usize; 2] = [1, 8];

impl Suite for StreamSuite {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "from the NIC to the application: a stream of packets against a descriptor a packet"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        methods::METHODS
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../../experiments.toml"),
            claims: include_str!("../../claims.toml"),
            promises: include_str!("../../promises.toml"),
            figures: include_str!("../../figures.toml"),
        }
    }

    fn capabilities(&self) -> Vec<Capability> {
        CORES.iter().map(|cores| setting::capability(*cores)).collect()
    }
}

impl SuiteCommand for StreamSuite {
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

#[cfg(test)]
mod tests {
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }
}
