//! The command `tollgate stream`, and what its subcommands share.

// Arguments may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::DirBuilder;
use std::io;
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::suite::Lab;
use signal_hook::consts::{SIGINT, SIGTERM};

mod generate;
pub(crate) mod json;
mod link;
mod pcap;
mod rate;
mod search;
mod serve;
mod workload;

/// An error to print.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Run the software NIC and its generator, or an application, directly
#[derive(Debug, Parser)]
#[command(name = "stream", disable_version_flag = true, max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write pcap files of sample traffic
    Pcap(pcap::Options),
    /// Run the NIC and replay a packet file, or an application's traffic, on its wire; or a file through an interface of Linux
    Generate(generate::Options),
    /// Run the echo, which sends packets back to a NIC in another process, or through an interface of Linux
    Echo(serve::EchoOptions),
    /// Run the load balancer Maglev in place of the echo
    Maglev(serve::MaglevOptions),
    /// Run the key-value store, which answers requests in UDP packets
    #[command(visible_alias = "kv")]
    KeyValue(serve::KeyValueOptions),
    /// Run the log monitor, which finds lines that report failures and sends nothing
    LogMonitor(serve::LogMonitorOptions),
    /// Run telemetry, which counts packets by addresses and sends them back unchanged
    Telemetry(serve::TelemetryOptions),
    /// Find the zero-loss (NDR) and partial-loss (PDR) rates
    Search(search::Options),
}

/// Returns the clap definition of the command.
pub(crate) fn command() -> clap::Command {
    Options::command()
}

/// Runs a subcommand. Returns the exit status: 0, or 1 if measuring failed.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(crate) fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    match Options::from_arg_matches(matches)?.command {
        Command::Pcap(options) => pcap::main(&options),
        Command::Generate(options) => generate::main(&options),
        Command::Echo(options) => serve::main(&options),
        Command::Maglev(options) => serve::main(&options),
        Command::KeyValue(options) => serve::main(&options),
        Command::LogMonitor(options) => serve::main(&options),
        Command::Telemetry(options) => serve::main(&options),
        Command::Search(options) => search::main(&options, lab),
    }
}

/// Returns the default socket path, in the user's runtime directory, which is created if needed.
///
/// # Errors
/// Returns an error if the directory cannot be created, or if other users can write to it.
pub(super) fn default_socket() -> Result<PathBuf, Error> {
    let user = rustix::process::geteuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("tollgate"),
        None => std::env::temp_dir().join(format!("tollgate-{user}")),
    };
    let refused = |why: &dyn std::fmt::Display| {
        format!("{}: cannot listen ({why}); choose another socket with --nic", folder.display())
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(refused(&why).into()),
        _ => {}
    }
    let metadata = folder.metadata().map_err(|why| refused(&why))?;
    if metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return Err(refused(&"other users can write to it").into());
    }
    Ok(folder.join("nic.sock"))
}

/// Interval at which conditions are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Set by the first Ctrl-C or SIGTERM. A second one ends the process immediately.
pub(super) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// Returns why a handler cannot be installed.
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

/// Allowed times between two lines of progress.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Parses the time between two lines of progress.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = lab::quantity::duration(text).map_err(|why| why.to_string())?;
    match INTERVALS.contains(&time) {
        true => Ok(time),
        false => Err(format!("'{text}' is not in 100 ms to 1 h")),
    }
}

/// Waits until `done` returns true. Calls `each` after each `interval`, with the seconds since the start and since its last
/// call.
pub(super) fn until(
    interval: Duration,
    mut done: impl FnMut() -> bool,
    mut each: impl FnMut(f64, f64),
) {
    let start = Instant::now();
    let mut last = start;
    while !done() {
        std::thread::sleep(POLL_INTERVAL);
        let since = last.elapsed();
        if since >= interval {
            last = Instant::now();
            each(start.elapsed().as_secs_f64(), since.as_secs_f64());
        }
    }
}

/// Prints a line to standard error. A closed standard error is ignored.
pub(super) fn say(line: &str) {
    let _ = writeln!(lab::terminal::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_are_out_of_range() {
        for (words, expected) in [
            (&["generate", "x.pcap", "1", "--count", "-1"][..], "-1 is not in 1.."),
            (&["generate", "x.pcap", "-1"], "not a rate; "),
            (&["generate", "x.pcap", "1", "--modelled-doorbell", "-1 ns"], "'--modelled-doorbell"),
            (&["echo", "-1", "2", "0"], "-1 is not in 1..=1024"),
            (&["echo", "1", "2", "-1"], "-1 is not in 0.."),
            (&["echo", "1", "2", "0", "--depth", "-1"], "-1 is not in 64.."),
            (&["maglev", "--backends", "-1"], "-1 is not in 1..=6553"),
            (&["key-value", "--keys", "-1"], "-1 is not in 1..="),
            (&["telemetry", "1", "2", "--one-in", "-1"], "-1 is not in 1.."),
            (&["pcap", "--packets", "-1"], "-1 is not in 0.."),
            (&["search", "--rounds", "-1"], "-1 is not in 1..=10000"),
        ] {
            let words = [&["stream"], words].concat();
            let error = Options::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("unexpected argument"), "{error}");
        }
        assert!(Options::try_parse_from(["stream", "search", "--cores", "-1"]).is_ok());
    }

    #[test]
    fn a_search_may_have_as_many_rounds_as_a_run() {
        for (rounds, fits) in [(0, true), (1, false)] {
            let given = (lab::experiment::MAX_ROUNDS + rounds).to_string();
            let parsed = Options::try_parse_from(["stream", "search", "--rounds", &given]);
            assert_eq!(parsed.is_ok(), fits, "{given}");
        }
    }

    #[test]
    fn only_addresses_of_hosts_are_accepted() {
        for (name, text, is_accepted) in [
            ("--backend", "10.0.2.1", true),
            ("--backend", "10.0.2", false),
            ("--address", "10.0.0.100", true),
            ("--address", "224.0.0.1", false),
            ("--address", "0.0.0.0", false),
            ("--address", "255.255.255.255", false),
            ("--address", "::1", false),
            ("--next-hop", "02:00:00:00:00:01", true),
            ("--next-hop", "ff:ff:ff:ff:ff:ff", false),
        ] {
            let parsed = Options::try_parse_from(["stream", "maglev", name, text]);
            assert_eq!(parsed.is_ok(), is_accepted, "{name} {text}");
        }
        let both = ["stream", "maglev", "--backends", "3", "--backend", "10.0.2.1"];
        let error = Options::try_parse_from(both).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
    }

    #[test]
    fn a_port_of_dpdk_excludes_other_interfaces() {
        for other in ["--interface=veth1", "--nic=socket", "--ring=2MiB", "--flows=2"] {
            for dpdk in ["--dpdk", "--dpdk=--no-pci --vdev=net_null0"] {
                let error = Options::try_parse_from(["stream", "echo", dpdk, other]).unwrap_err();
                assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{other}");
            }
        }
        // Its value follows an equals sign, because numbers follow.
        assert!(Options::try_parse_from(["stream", "echo", "--dpdk", "2", "1", "0"]).is_ok());
    }

    #[test]
    fn a_folder_conflicts_with_named_files() {
        let words = ["stream", "pcap", "2_64_1_2.pcap", "--folder", "elsewhere"];
        let error = Options::try_parse_from(words).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
        assert!(Options::try_parse_from(["stream", "pcap", "--folder", "elsewhere"]).is_ok());
    }
}
