//! Arguments of `tollgate crossing`.

use std::path::PathBuf;

use clap::builder::RangedI64ValueParser;
use clap::{Parser, Subcommand};
use lab::experiment::{MAX_ROUNDS, Profile};

use crate::guest::StandaloneParams;
use crate::one_way::MAX_CROSSINGS;

/// Measure user-kernel crossings; print xperf's table with rows for this machine, and a breakdown of a round trip
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
    /// Results folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(super) results: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    /// Crossings per sample; xperf uses 1,000,000 [default: the profile's]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CROSSINGS)))]
    pub(super) crossings: Option<u32>,
    /// Number of rounds, each in a fresh process
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(super) rounds: Option<u32>,
    /// Measuring effort
    #[arg(long, value_enum, default_value = "quick")]
    pub(super) profile: Profile,
    /// Enable an opt-in feature: tracefs creates a trace instance, bpf loads a BPF program (repeatable)
    #[arg(long, value_name = "FEATURE", value_parser = ["tracefs", "bpf"], hide_possible_values = true)]
    pub(super) allow: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write the micro-guest as an image for a multiboot loader, e.g. GRUB, to boot on bare metal
    Guest {
        /// Image file
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
        /// Number of rounds
        #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = StandaloneParams::default().rounds, value_parser = clap::value_parser!(u32).range(1..=i64::from(StandaloneParams::MAX_ROUNDS)))]
        rounds: u32,
        /// Crossings of each kind per round
        #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = StandaloneParams::default().crossings, value_parser = RangedI64ValueParser::<u64>::new().range(1..=i64::from(MAX_CROSSINGS)))]
        crossings: u64,
    },
    /// Import the output of the guest on bare metal as a new run
    Import {
        /// Captured serial output of the guest
        file: PathBuf,
        /// Host name of the machine
        #[arg(long, value_name = "NAME", default_value = "bare-metal")]
        host: String,
        /// Results folder
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_out_of_range() {
        for words in [
            &["--rounds"][..],
            &["--crossings"],
            &["guest", "--write", "image", "--rounds"],
            &["guest", "--write", "image", "--crossings"],
        ] {
            let words = [&["crossing"], words, &["-1"]].concat();
            let error = Options::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains("-1 is not in 1..="), "{error}");
        }
    }
}
