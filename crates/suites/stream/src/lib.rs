//! From the NIC to the application: a stream of contiguous packets (pipes, after Ensō) against one descriptor per
//! packet.

pub mod application;
mod cli;
pub mod core_use;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod generator;
pub mod host;
pub mod iterations;
pub mod link;
pub mod losses;
pub mod nic;
pub mod serve;
pub mod steering;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod wire;
pub mod workload;

use lab::option::{OptionValue, SuiteOption};
use lab::suite::{Suite, SuiteCommand};

use suite::dpdk::TESTPMD;
use suite::{METHODS, testbed_config, two_hosts};

/// Numbers of application cores that claims need: one, and eight as in the Ensō evaluation.
const CORES: [usize; 2] = [1, 8];

/// Options of the suite.
const OPTIONS: &[SuiteOption] = &[
    SuiteOption {
        name: link::ALLOW_NETWORK,
        enables: "takes the packets of network interfaces: attaches XDP programs, sets interfaces promiscuous and up, \
                  creates TAP interfaces and network namespaces",
        value: OptionValue::Text,
    },
    two_hosts::OPTIONS[0],
    two_hosts::OPTIONS[1],
];

/// The suite.
pub static SUITE: Suite = Suite::new(
    "stream",
    "from the NIC to the application: a packet stream against one descriptor per packet",
    lab::suite_data!(),
    METHODS,
)
.with_capabilities(|| {
    let cores = CORES.iter().map(|cores| testbed_config::capability(*cores));
    cores.chain([TESTPMD.capability()]).collect()
})
.with_options(OPTIONS)
.with_command(SuiteCommand { command: cli::command, run: cli::main })
.with_outputs(cli::json::SCHEMAS);
