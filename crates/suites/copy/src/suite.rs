//! The suite as the lab sees it: methods, data, options.

use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::option::{OptionValue, SuiteOption};
use lab::run::Lab;
use lab::suite::{Data, Suite};
use machine::capability::Capability;

use crate::mbw;
use crate::memory::{FILE_FOLDER, physical};
use crate::throughput::SOURCE_OFFSET;
use crate::{cli, delivery, faults, frames, mediation, throughput};

/// The copy suite.
pub struct CopySuite;

const fn text(name: &'static str, enables: &'static str) -> SuiteOption {
    option(name, OptionValue::Text, enables)
}

const fn option(name: &'static str, value: OptionValue, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value }
}

/// Options that a user may allow or set by name.
const OPTIONS: &[SuiteOption] = &[
    text(physical::ALLOW, "map the named physical memory for reading"),
    text(physical::ALLOW_WRITE, "also write it, which destroys its contents"),
    option(
        SOURCE_OFFSET,
        OptionValue::Number,
        "number added to the index of each source byte, e.g. 7",
    ),
    option(
        physical::HOST_ADDRESS,
        OptionValue::Address,
        "physical address of memory = host-physical, as in /proc/iomem",
    ),
    option(
        physical::DEVICE_ADDRESS,
        OptionValue::Address,
        "physical address of memory = device, as in /proc/iomem",
    ),
    text(
        physical::PCI_RESOURCE,
        "file of memory = pci-bar, e.g. /sys/bus/pci/devices/.../resource0",
    ),
    text(physical::DAX_DEVICE, "device of memory = dax, e.g. /dev/dax0.0"),
    text(FILE_FOLDER, "folder of the measured files [default: the temporary folder]"),
];

impl Suite for CopySuite {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn about(&self) -> &'static str {
        "copies into memory that another process, host or device sees"
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

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_name_only_what_exists() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_takes_minutes_and_standard_under_an_hour() {
        let seconds = |profile| soundness::seconds(&crate::SUITE, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 150.0 && standard < 2700.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
