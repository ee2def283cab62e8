//! The suite by hand: `tollgate stream`.

// Arguments may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod echo;
mod generate;
mod pcap;
mod rate;
mod search;
mod socket;
mod watch;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::run::Lab;

/// What a person reads where something is wrong.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// From the NIC to the application, by hand
#[derive(Debug, Parser)]
#[command(name = "stream", disable_version_flag = true, max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes files of packets to send
    Pcap(pcap::Options),
    /// The NIC, and packets of a file on its wire
    Generate(generate::Options),
    /// The application, which sends packets back; its NIC is in another process
    Echo(echo::Options),
    /// The largest load that loses nothing, and that which loses little
    Search(search::Options),
}

/// Returns the clap command.
pub(crate) fn command() -> clap::Command {
    Options::command()
}

/// Does what the arguments ask for. Gives the exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    match Options::from_arg_matches(matches)?.command {
        Command::Pcap(options) => pcap::main(&options),
        Command::Generate(options) => generate::main(&options),
        Command::Echo(options) => echo::main(&options),
        Command::Search(options) => search::main(&options, lab),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_a_value_out_of_range() {
        for (words, due) in [
            (&["generate", "x.pcap", "1", "--count", "-1"][..], "-1 is not in 1.."),
            (&["generate", "x.pcap", "-1"], "give a rate: "),
            (&["generate", "x.pcap", "1", "--modelled-doorbell", "-1 ns"], "'--modelled-doorbell"),
            (&["echo", "-1", "2", "0"], "-1 is not in 1..=1024"),
            (&["echo", "1", "2", "-1"], "-1 is not in 0.."),
            (&["echo", "1", "2", "0", "--depth", "-1"], "-1 is not in 64.."),
            (&["pcap", "--packets", "-1"], "-1 is not in 0.."),
            (&["search", "--iters", "-1"], "-1 is not in 1..=10000"),
        ] {
            let words = [&["stream"], words].concat();
            let told = Options::try_parse_from(words).unwrap_err().to_string();
            assert!(told.contains(due) && !told.contains("unexpected argument"), "{told}");
        }
        assert!(Options::try_parse_from(["stream", "search", "--cores", "-1"]).is_ok());
    }

    #[test]
    fn a_search_has_as_many_rounds_as_a_run_may_have() {
        for (rounds, fits) in [(0, true), (1, false)] {
            let iters = (lab::experiment::MAX_ROUNDS + rounds).to_string();
            let parsed = Options::try_parse_from(["stream", "search", "--iters", &iters]);
            assert_eq!(parsed.is_ok(), fits, "{iters}");
        }
    }

    #[test]
    fn a_folder_for_files_that_are_named_is_refused() {
        let words = ["stream", "pcap", "2_64_1_2.pcap", "--folder", "elsewhere"];
        let told = Options::try_parse_from(words).unwrap_err();
        assert_eq!(told.kind(), clap::error::ErrorKind::ArgumentConflict);
        assert!(Options::try_parse_from(["stream", "pcap", "--folder", "elsewhere"]).is_ok());
    }
}
