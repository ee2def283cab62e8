//! The options of all applications.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lab::factor::LevelType;
use lab::quantity;
use lab::suite::UsageError;

use super::addresses::AddressOptions;
use crate::application::ApplicationKind;
use crate::cli::Error;
use crate::cli::link::LinkOptions;
use crate::host::descriptors::{DriverKind, Sizes};
use crate::link::interface::is_name;
use crate::nic::InterfaceConfig;
use crate::nic::flow_table::CAPACITY;
use crate::nic::layout::{NOTIFICATIONS, PIPES, RING};
use crate::steering::{CorePipes, Steering};
use crate::suite::params::Interface;
use crate::suite::testbed_config::MAX_TX_RING;
use crate::workload::rules_of_command;

/// Maximum size of all rings together unless `--ring` is given, in bytes.
const MAX_DEFAULT_RINGS: usize = 1 << 30;

/// Maximum number of flows with a rule.
const MAX_RULES: i64 = CAPACITY as i64;

/// Options of all applications.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Number of cores
    #[arg(default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) cores: u32,
    /// Pipes (or queues) per core: the first of all cores receives packets to 192.168.0.0, port 80, the next those to
    /// 192.168.0.1, and so on, unless --steering states otherwise
    #[arg(default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(PIPES)))]
    pub(super) pipes: u32,
    /// Interface between NIC and application: pipes, pipes-per-packet, pipes-prefetch, descriptors; or an interface of
    /// Linux, e.g. veth1
    #[arg(long, default_value = "pipes")]
    pub(super) interface: ServeInterface,
    /// Serve the only port of DPDK, in place of --interface; several cores and pipes are queues, with --steering hash. Its
    /// value has options of EAL, e.g. --dpdk="-a 0000:3b:00.0 -l 2-4"
    #[arg(long, value_name = "EAL OPTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["interface", "nic", "ring", "flows"])]
    pub(super) dpdk: Option<String>,
    #[command(flatten)]
    pub(super) link: LinkOptions,
    #[command(flatten)]
    pub(super) addresses: AddressOptions,
    /// Size of each pipe's ring [default: 2 MiB, less if all rings would exceed 1 GiB]
    #[arg(long, allow_hyphen_values = true, value_parser = quantity::bytes)]
    ring: Option<u64>,
    /// How packets reach the pipes: rules, one for each of --flows; hash, of any flow; or round-robin, packet by packet
    /// (with generate --round-robin)
    #[arg(long, value_enum, default_value_t = Steering::Rules)]
    pub(super) steering: Steering,
    /// Flows with a rule, from 192.168.0.0 up, which go to the pipes in turn; --steering rules only [default: one per
    /// pipe]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=MAX_RULES))]
    flows: Option<u32>,
    /// Time between two lines of progress
    #[arg(long, value_name = "DURATION", default_value = "1 s", allow_hyphen_values = true, value_parser = crate::cli::interval)]
    pub(super) interval: Duration,
    /// Descriptors per ring; --interface descriptors and --dpdk only
    #[arg(long, default_value_t = 1024, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(64..))]
    pub(super) depth: u32,
    /// Socket of the NIC [default: in $XDG_RUNTIME_DIR, or in the temporary folder]
    #[arg(long, value_name = "SOCKET")]
    pub(super) nic: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Interface from which an application receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServeInterface {
    /// An interface of the software NIC.
    Nic(Interface),
    /// The name of an interface of Linux.
    Linux(String),
}

impl FromStr for ServeInterface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(interface) = <Interface as ValueEnum>::from_str(text, false) {
            return Ok(Self::Nic(interface));
        }
        if Interface::from_level(text).is_some() {
            return Err(
                "an interface of experiments; name an interface of Linux, e.g. veth1".into()
            );
        }
        match is_name(text) {
            true => Ok(Self::Linux(text.to_owned())),
            false => {
                Err("neither an interface of the NIC nor a name of an interface of Linux".into())
            }
        }
    }
}

impl ServeOptions {
    /// Returns the number of cores.
    pub(super) fn cores(&self) -> usize {
        self.cores as usize
    }

    /// Returns the NIC configuration that the options need.
    pub(super) fn config(&self, interface: Interface) -> Result<InterfaceConfig, Error> {
        let pipes = u64::from(self.cores).saturating_mul(self.pipes.into());
        if pipes > u64::from(PIPES) {
            let why = format!("{pipes} pipes: a NIC has {PIPES}; use fewer");
            return Err(UsageError::new(why).into());
        }
        let config = match interface.notify() {
            None => {
                let sizes = Sizes { rx: self.depth, tx: self.depth.min(MAX_TX_RING) };
                sizes.config(DriverKind::default().size)
            }
            Some(notify) => {
                let each = MAX_DEFAULT_RINGS
                    .checked_div(pipes as usize)
                    .map_or(RING, |each| each.min(RING));
                let default = 1 << each.ilog2();
                let ring = self.ring.map_or(default, |ring| ring as usize);
                InterfaceConfig::Pipes { notify, ring, notifications: NOTIFICATIONS }
            }
        };
        if !config.is_possible() {
            let why = format!(
                "{config}: sizes must be powers of two; rings have 4 KiB to 1 GiB, or 64 to 1048576 \
                 descriptors"
            );
            return Err(UsageError::new(why).into());
        }
        let (needed, free) = (config.memory(pipes), machine::proc::available_memory());
        if needed > free / 2 {
            let [needed, free] = [needed, free].map(quantity::format_bytes);
            let why = format!(
                "{pipes} pipes or queues with {config} need {needed} of memory, and {free} are free"
            );
            return Err(format!("{why}; use fewer or smaller ones").into());
        }
        Ok(config)
    }

    /// Returns whether no option about steering is given.
    pub(super) fn has_default_steering(&self) -> bool {
        self.flows.is_none() && self.steering == Steering::default()
    }

    /// Returns the number of flows with a rule.
    pub(super) fn flow_count(&self) -> u32 {
        self.flows.unwrap_or(self.cores.saturating_mul(self.pipes))
    }

    /// Returns the number of rules of an application.
    pub(super) fn rule_count(&self, application: ApplicationKind) -> usize {
        (self.flow_count() as usize).saturating_mul(rules_of_command(application).len())
    }

    /// Returns the pipes of each core, with the rules of an application.
    ///
    /// # Errors
    /// Returns a usage error if flows are given that have no rule, or pipes would have no flow.
    pub(super) fn pipes_of_cores(
        &self,
        application: ApplicationKind,
    ) -> Result<Vec<CorePipes>, Error> {
        let (pipes, flows) = (self.cores.saturating_mul(self.pipes), self.flow_count());
        if self.flows.is_some() && self.steering != Steering::Rules {
            let why =
                format!("--flows: with --steering {} no flow has a rule; omit it", self.steering);
            return Err(UsageError::new(why).into());
        }
        if flows < pipes {
            let why = format!(
                "--flows: {flows} flows leave some of {pipes} pipes without packets; use at least {pipes}"
            );
            return Err(UsageError::new(why).into());
        }
        let of_cores = |rule| {
            let rules: Vec<_> = (0..flows).map(rule).collect();
            CorePipes::of_cores(&rules, pipes as usize, self.pipes as usize, self.steering)
        };
        let mut kinds = rules_of_command(application).iter().map(of_cores);
        let mut cores = kinds.next().unwrap_or_default();
        for more in kinds {
            for (core, other) in cores.iter_mut().zip(more) {
                core.rules.extend(other.rules);
            }
        }
        Ok(cores)
    }

    /// Describes cores, pipes and interface, e.g. `1 core with 2 pipes each, ...`.
    pub(super) fn describe(&self, config: InterfaceConfig) -> String {
        let Self { cores, pipes, .. } = self;
        let s = |count: &u32| if *count == 1 { "" } else { "s" };
        let (core, pipe) = (s(cores), s(pipes));
        let steering = match (self.steering, self.flows) {
            (Steering::Rules, None) => String::new(),
            (Steering::Rules, Some(flows)) => format!("{flows} flows, "),
            (Steering::Hash, _) => "by the hash of the flow, ".into(),
            (Steering::RoundRobin, _) => "round-robin, ".into(),
        };
        format!("{cores} core{core} with {pipes} pipe{pipe} each, {steering}{config}")
    }
}
