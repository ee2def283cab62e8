//! The words of `tollgate crossing`.

use std::path::PathBuf;

use clap::builder::RangedI64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use lab::experiment::{MAX_ROUNDS, Profile};

use crate::guest::StandaloneParams;
use crate::one_way::MAX_CROSSINGS;

/// From user to kernel and back: prints the seed's table beside this machine's, and what a round
/// trip consists of
#[derive(Debug, Parser)]
#[command(
    name = "crossing",
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub(super) struct Options {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) measure: Measure,
    /// The folder of all results
    #[arg(long, value_name = "DIR", default_value = "results", global = true)]
    pub(super) results: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    /// Crossings a sample (default: those of the profile; the seed makes 1,000,000)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CROSSINGS)))]
    pub(super) crossings: Option<u32>,
    /// Rounds, each in a fresh process
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(super) rounds: Option<u32>,
    /// How much is measured
    #[arg(long, value_enum, default_value = "quick")]
    pub(super) profile: ProfileName,
    /// Allow what is not done unless asked for: tracefs (an instance of our own), bpf (a program)
    #[arg(long, value_name = "WHAT", value_parser = ["tracefs", "bpf"])]
    pub(super) allow: Vec<String>,
    #[command(flatten)]
    pub(super) output: lab::adhoc::OutputArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ProfileName {
    /// A look
    Quick,
    /// Figures to rely on
    Standard,
    /// Figures to publish
    Full,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Quick => Self::Quick,
            ProfileName::Standard => Self::Standard,
            ProfileName::Full => Self::Full,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write the guest as an image that a multiboot loader such as GRUB starts on bare metal
    Guest {
        /// Where to
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
        /// Rounds that it measures
        #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = StandaloneParams::default().rounds, value_parser = clap::value_parser!(u32).range(1..=i64::from(StandaloneParams::MAX_ROUNDS)))]
        rounds: u32,
        /// Crossings of each kind in a round
        #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = StandaloneParams::default().crossings, value_parser = RangedI64ValueParser::<u64>::new().range(1..=i64::from(MAX_CROSSINGS)))]
        crossings: u64,
    },
    /// Journal what the guest printed on bare metal, as a run of its own
    Import {
        /// What came through the serial line
        file: PathBuf,
        /// What the machine is called
        #[arg(long, value_name = "NAME", default_value = "bare-metal")]
        host: String,
    },
    /// Run as the first process of a virtual machine (the lab starts this itself)
    #[command(hide = true)]
    GuestInit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_a_value_out_of_range() {
        for words in [
            &["--rounds"][..],
            &["--crossings"],
            &["guest", "--write", "image", "--rounds"],
            &["guest", "--write", "image", "--crossings"],
        ] {
            let words = [&["crossing"], words, &["-1"]].concat();
            let told = Options::try_parse_from(words).unwrap_err().to_string();
            assert!(told.contains("-1 is not in 1..="), "{told}");
        }
    }
}
