//! The suite by hand: `tollgate stream`.

// Arguments may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::DirBuilder;
use std::io;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::run::Lab;
use signal_hook::consts::{SIGINT, SIGTERM};

mod echo;
mod generate;
mod pcap;
mod rate;
mod search;

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

/// The socket in the runtime folder of this person, which is made where it is not there.
///
/// # Errors
/// Where the folder cannot be made, or others could put a socket there.
pub(super) fn default_socket() -> Result<PathBuf, Error> {
    let user = rustix::process::geteuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("tollgate"),
        None => std::env::temp_dir().join(format!("tollgate-{user}")),
    };
    let refused = |why: &dyn std::fmt::Display| {
        format!(
            "{}: no NIC can be found there ({why}); name another socket with --nic",
            folder.display()
        )
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(refused(&why).into()),
        _ => {}
    }
    let metadata = folder.metadata().map_err(|why| refused(&why))?;
    if metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return Err(refused(&"others may write to it").into());
    }
    Ok(folder.join("nic.sock"))
}

/// How often is looked whether there is something to do.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether a person wants it to end. A second Ctrl-C ends the process at once.
pub(super) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// From now on, Ctrl-C is a wish.
    ///
    /// # Errors
    /// Where the system refuses.
    pub(super) fn listen() -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .map_err(|why| format!("handle signal {signal}: {why}; start it again"))?;
        }
        Ok(Self(flag))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waits until something holds; `told` hears of each second, with the seconds since the beginning and since it
/// heard last.
pub(super) fn until(mut holds: impl FnMut() -> bool, mut told: impl FnMut(f64, f64)) {
    let start = Instant::now();
    let mut last = start;
    while !holds() {
        std::thread::sleep(POLL_INTERVAL);
        let since = last.elapsed();
        if since >= Duration::from_secs(1) {
            last = Instant::now();
            told(start.elapsed().as_secs_f64(), since.as_secs_f64());
        }
    }
}

/// Tells a person. That nobody listens is no fault.
pub(super) fn say(line: &str) {
    let _ = writeln!(lab::terminal::stderr(), "{line}");
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
