//! Packets that `generate` sends: those of a file, or the traffic of an application.

use std::fmt::Write;
use std::path::Path;

use applications::maglev::table::MAX_BACKENDS;
use clap::Args;
use clap::builder::RangedI64ValueParser;
use lab::factor::LevelType;
use lab::method::Params;
use lab::suite::UsageError;

use crate::application::{ApplicationKind, BACKENDS, KEYS};
use crate::cli::Error;
use crate::cli::workload::{MAX_KEYS, WorkloadOptions, meaningless};
use crate::generator::Expectation;
use crate::nic::flow_table::{CAPACITY, looked_up};
use crate::nic::layout::PIPES;
use crate::steering::Steering;
use crate::suite::params::CommonParams;
use crate::wire::sample::{SampleError, Sizes};
use crate::wire::traffic::Traffic;
use crate::workload::application_traffic::{ApplicationTraffic, Generated};
use crate::workload::log_lines::MatchingLines;
use crate::workload::params::Flows;
use crate::workload::{WorkloadError, rules_of_command};

/// Options about the traffic of an application.
#[derive(Debug, Args)]
pub(super) struct TrafficOptions {
    #[command(flatten)]
    workload: WorkloadOptions,
    /// Packet size on the wire, including the FCS, in bytes; or imix (64, 594 and 1518 B as 7:4:1); with --application
    /// [default: 64]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    packet_bytes: Option<String>,
    /// Number of flows, or per-pipe; with --application [default: per-pipe]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    flows: Option<String>,
    /// Cores that the application has; with --application [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: Option<u32>,
    /// Pipes (or queues) per core that the application has; with --application [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(PIPES)))]
    pipes: Option<u32>,
    /// How the application has packets reach its pipes; with --application [default: rules]
    #[arg(long, value_enum)]
    steering: Option<Steering>,
    /// Keys of the store, all of which are requested; key-value only [default: 4194304]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(1..=MAX_KEYS))]
    keys: Option<u64>,
    /// Backends of the load balancer; maglev and maglev-enso only [default: 1000]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=MAX_BACKENDS as i64))]
    backends: Option<u32>,
}

impl TrafficOptions {
    /// Returns the application; `None` if packets come from a file.
    pub(super) fn application(&self) -> Option<ApplicationKind> {
        self.workload.application
    }

    /// Checks that no option about an application is given, because there is none.
    ///
    /// # Errors
    /// Returns a usage error.
    pub(super) fn check_unused(&self) -> Result<(), Error> {
        let others = [
            ("--packet-bytes", self.packet_bytes.is_some()),
            ("--flows", self.flows.is_some()),
            ("--cores", self.cores.is_some()),
            ("--pipes", self.pipes.is_some()),
            ("--steering", self.steering.is_some()),
            ("--keys", self.keys.is_some()),
            ("--backends", self.backends.is_some()),
        ];
        let other = others.into_iter().find_map(|(name, given)| given.then_some(name));
        let Some(name) = self.workload.given().or(other) else { return Ok(()) };
        let why = format!(
            "{name}: is about the traffic of an application; name one with --application in place of the packet file"
        );
        Err(UsageError::new(why).into())
    }

    /// Returns the traffic of an application.
    ///
    /// # Errors
    /// Returns a usage error if there is no such traffic, or the application's command would not receive it.
    pub(super) fn of(&self, application: ApplicationKind) -> Result<ApplicationTraffic, Error> {
        self.check_used(application)?;
        let (cores, per_core) = (self.cores.unwrap_or(1), self.pipes.unwrap_or(1));
        let of = ApplicationTraffic {
            application,
            workload: self.workload.params(application)?,
            sizes: level("packet_bytes", self.packet_bytes.as_deref(), Sizes::One(64))?,
            flows: level("flows", self.flows.as_deref(), Flows::PerPipe)?,
            steering: self.steering.unwrap_or_default(),
            pipes: cores.saturating_mul(per_core),
            cores: cores as usize,
            keys: self.keys.unwrap_or(KEYS as u64),
            backends: self.backends.unwrap_or(BACKENDS),
        };
        let refused =
            |why: &dyn std::fmt::Display| UsageError::new(format!("{application}: {why}"));
        of.check().map_err(|why| refused(&why))?;
        match unreceived(&of) {
            Some(why) => Err(refused(&why).into()),
            None => Ok(of),
        }
    }

    /// Checks that no option is about another application.
    fn check_used(&self, application: ApplicationKind) -> Result<(), Error> {
        let is_balancer =
            matches!(application, ApplicationKind::Maglev | ApplicationKind::MaglevEnso);
        let is_store = application == ApplicationKind::KeyValue;
        let has_sizes = !is_store && application != ApplicationKind::LogMonitor;
        for (option, given, has, what) in [
            ("--backends", self.backends.is_some(), is_balancer, "only maglev has backends"),
            ("--keys", self.keys.is_some(), is_store, "only key-value has keys"),
            (
                "--packet-bytes",
                self.packet_bytes.is_some(),
                has_sizes,
                "packets of requests and log lines have their own size",
            ),
        ] {
            if given && !has {
                return Err(meaningless(option, what).into());
            }
        }
        Ok(())
    }
}

/// Parses a level of a factor of experiments.
fn level<T: LevelType>(name: &str, text: Option<&str>, default: T) -> Result<T, Error> {
    let Some(text) = text else { return Ok(default) };
    let level = lab::factor::find(CommonParams::FACTORS, name)
        .and_then(|factor| factor.level(text))
        .map_err(UsageError::new)?;
    Ok(T::from_level(level.as_str()).unwrap_or(default))
}

/// Returns why the application's command, with the same pipes, would not receive the traffic.
fn unreceived(of: &ApplicationTraffic) -> Option<String> {
    let (pipes, flows) = (of.pipes, of.flow_count());
    if pipes > PIPES {
        return Some(format!("{pipes} pipes: a NIC has {PIPES}; use fewer"));
    }
    if of.steering != Steering::Rules {
        return None;
    }
    if flows < pipes {
        return Some(format!(
            "{flows} flows leave some of {pipes} pipes without packets; use at least {pipes} --flows"
        ));
    }
    if flows as usize > CAPACITY {
        return Some(format!(
            "the flow table has {CAPACITY} rules, and {flows} flows need one each; use --steering hash"
        ));
    }
    let (flow, syn) = of.flow(0);
    let rules = rules_of_command(of.application);
    let is_received = rules.iter().any(|rule| rule(0) == looked_up(&flow, syn));
    (!is_received).then(|| {
        let name = of.application;
        format!("'stream {name}' has rules for UDP only; use --steering hash, here and there")
    })
}

/// Packets to send, and the properties known of them.
pub(super) struct Source {
    pub(super) traffic: Traffic,
    /// The application of which it is the traffic; `None` if it comes from a file.
    pub(super) application: Option<ApplicationTraffic>,
    /// The lines that a log monitor finds.
    pub(super) matching: Option<MatchingLines>,
}

impl Source {
    /// Generates the traffic of an application.
    ///
    /// # Errors
    /// Returns why it cannot be generated.
    pub(super) fn generate(of: ApplicationTraffic) -> Result<Self, Error> {
        let Generated { traffic, matching } = of.traffic().map_err(|why| match why {
            WorkloadError::Memory(_) | WorkloadError::Sample(SampleError::Memory(_)) => {
                Error::from(why)
            }
            why => UsageError::new(format!("{}: {why}", of.application)).into(),
        })?;
        Ok(Self { traffic, application: Some(of), matching })
    }

    /// Returns what the application returns; `None` if it is not known.
    pub(super) fn expectation(&self) -> Option<Expectation> {
        self.application.as_ref().map(ApplicationTraffic::expectation)
    }
}

/// Returns the arguments of `tollgate stream` for an application that receives this traffic.
pub(super) fn command(of: &ApplicationTraffic, nic: Option<&Path>) -> String {
    let per_core = of.pipes.checked_div(of.cores as u32).unwrap_or(of.pipes);
    let (name, options) = match of.application {
        ApplicationKind::MaglevEnso => ("maglev", format!(" --enso{}", backends(of))),
        ApplicationKind::Maglev => ("maglev", backends(of)),
        ApplicationKind::KeyValue => ("key-value", format!(" --keys {} --fill", of.keys)),
        ApplicationKind::Echo | ApplicationKind::LogMonitor | ApplicationKind::Telemetry => {
            (of.application.name(), String::new())
        }
    };
    let mut command = format!("tollgate stream {name} {} {per_core}{options}", of.cores);
    let flows = of.flow_count();
    // Writing to a string does not fail.
    let _ = match of.steering {
        Steering::Rules if flows == of.pipes => Ok(()),
        Steering::Rules => write!(command, " --flows {flows}"),
        Steering::Hash | Steering::RoundRobin => write!(command, " --steering {}", of.steering),
    };
    if let Some(path) = nic {
        let _ = write!(command, " --nic {}", path.display());
    }
    command
}

/// Returns the option that sets Maglev's backends, unless it has the default.
fn backends(of: &ApplicationTraffic) -> String {
    if of.backends == BACKENDS { String::new() } else { format!(" --backends {}", of.backends) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        traffic: TrafficOptions,
    }

    fn of(words: &str) -> Result<ApplicationTraffic, Error> {
        let words = format!("generate --application {words}");
        let Command { traffic } = Command::try_parse_from(words.split_whitespace())?;
        traffic.of(traffic.application().unwrap())
    }

    #[test]
    fn the_command_of_the_application_has_what_the_traffic_needs() {
        for (words, expected) in [
            ("echo --pipes 2", "echo 1 2"),
            ("maglev --workload cached --pipes 2", "maglev 1 2 --flows 16"),
            ("maglev-enso --backends 10 --workload syn-flood", "maglev 1 1 --enso --backends 10"),
            ("key-value --cores 2 --keys 1000", "key-value 2 1 --keys 1000 --fill"),
            ("log-monitor --steering hash --flows 100", "log-monitor 1 1 --steering hash"),
            ("telemetry --workload zipf-0.9 --pipes 4", "telemetry 1 4"),
            ("echo --workload syn-flood --steering hash", "echo 1 1 --steering hash"),
        ] {
            let found = command(&of(words).unwrap(), Some(Path::new("nic")));
            assert_eq!(found, format!("tollgate stream {expected} --nic nic"), "{words}");
        }
    }

    #[test]
    fn impossible_traffic_is_refused_in_one_line() {
        for (words, expected) in [
            ("maglev --keys 10", "--keys: only key-value has keys; omit it"),
            ("telemetry --backends 10", "--backends: only maglev has backends; omit it"),
            ("key-value --packet-bytes 64", "--packet-bytes: packets of requests"),
            ("maglev --get-share 10", "--get-share: only key-value gets requests; omit it"),
            ("key-value --match-share 10", "--match-share: only log-monitor gets lines"),
            ("key-value --get-share 101", "factor 'get_share': '101'"),
            ("key-value --requests-per-packet 61", "factor 'requests_per_packet': '61'"),
            ("key-value --workload in-turn", "key-value: the keys of requests have a distribution"),
            ("key-value --cores 2 --steering hash", "use steering rules"),
            ("log-monitor --workload uniform", "use workload in-turn"),
            ("maglev --workload fast", "factor 'workload': 'fast'"),
            ("maglev --workload syn-flood --packet-bytes 128", "use packet_bytes 64"),
            ("echo --workload syn-flood", "'stream echo' has rules for UDP only"),
            ("echo --flows 8193", "the flow table has 8192 rules"),
            ("echo --pipes 4 --flows 3", "3 flows leave some of 4 pipes"),
            ("echo --packet-bytes 63", "factor 'packet_bytes': '63'"),
            ("echo --cores 1024 --pipes 9", "9216 pipes: a NIC has 8192"),
        ] {
            let why = of(words).unwrap_err();
            assert!(why.is::<UsageError>(), "{words}");
            let why = why.to_string();
            assert!(why.contains(expected) && !why.contains('\n'), "{words}: {why}");
        }
        let given = |words: &str| {
            let Command { traffic } = Command::try_parse_from(words.split_whitespace()).unwrap();
            traffic.check_unused()
        };
        given("generate").unwrap();
        for option in ["--workload cached", "--keys 5", "--cores 2", "--match-share 3"] {
            let why = given(&format!("generate {option}")).unwrap_err().to_string();
            let name = option.split(' ').next().unwrap();
            assert!(
                why.starts_with(&format!("{name}: ")) && why.contains("--application"),
                "{why}"
            );
        }
    }
}
