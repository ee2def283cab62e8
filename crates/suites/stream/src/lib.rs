//! From the NIC to the application: a stream of contiguous packets (pipes, after Ensō) against one descriptor per
//! packet.

mod cli;
pub mod echo;
pub mod generator;
pub mod host;
pub mod nic;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod wire;

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use suite::{METHODS, testbed_config};

/// The stream suite.
pub static SUITE: StreamSuite = StreamSuite;

/// The type that implements [`Suite`] for this crate.
pub struct StreamSuite;

/// Numbers of application cores that claims need: one, and eight as in the Ensō evaluation.
const CORES: [usize; 2] = [1, 8];

impl Suite for StreamSuite {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "from the NIC to the application: a packet stream against one descriptor per packet"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        METHODS
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
        CORES.iter().map(|cores| testbed_config::capability(*cores)).collect()
    }
}

impl SuiteCommand for StreamSuite {
    fn command(&self) -> Option<clap::Command> {
        Some(cli::command())
    }

    fn run_command(
        &self,
        matches: &clap::ArgMatches,
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        cli::main(matches, lab)
    }
}
