//! What the lab asks of the suite.

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::option::{OptionValue, SuiteOption};
use lab::run::Lab;
use lab::suite::{Data, Suite};
use machine::capability::Capability;

use crate::limit::mbw;
use crate::memory::physical;
use crate::throughput::SOURCE_OFFSET;
use crate::{delivery, faults, frames, hand, mediation, throughput};

/// Copies into memory that another process or host sees.
pub struct CopySuite;

const fn option(name: &'static str, enables: &'static str) -> SuiteOption {
    set(name, OptionValue::Text, enables)
}

const fn set(name: &'static str, value: OptionValue, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value }
}

/// What a user may allow or set by name.
const OPTIONS: &[SuiteOption] = &[
    option(physical::ALLOW, "maps the physical memory that options name, for reading"),
    option(physical::ALLOW_WRITE, "also writes it, which destroys what it holds"),
    set(
        SOURCE_OFFSET,
        OptionValue::Number,
        "what is added to the index of each byte of the source, as 7",
    ),
    set(
        "physical-address",
        OptionValue::Address,
        "where memory = host-physical is, as /proc/iomem lists it",
    ),
    set(
        "device-address",
        OptionValue::Address,
        "where memory = device is, as /proc/iomem lists it",
    ),
    option("pci-resource", "the file of memory = pci-bar, as /sys/bus/pci/devices/.../resource0"),
    option("dax-device", "the device of memory = dax, as /dev/dax0.0"),
    option("file-folder", "the folder for files that are measured [default: the temporary folder]"),
];

impl Suite for CopySuite {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn about(&self) -> &'static str {
        "copies into memory that another process or host sees"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        &[
            &throughput::Throughput,
            &frames::Frames,
            &mediation::Mediation,
            &faults::PageEvents,
            &delivery::Delivery,
        ]
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn options(&self) -> &'static [SuiteOption] {
        OPTIONS
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![mbw::PROGRAM.capability()]
    }
}

impl SuiteCommand for CopySuite {
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
    use lab::experiment::Profile;
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_is_quick_and_standard_takes_a_coffee() {
        let seconds = |profile| soundness::seconds(&crate::SUITE, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 150.0 && standard < 2700.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
