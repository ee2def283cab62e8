//! `tollgate stream echo`: the application, whose NIC is in another process, or which uses an interface of Linux.

mod core;
mod link;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use lab::factor::LevelType;
use lab::quantity;
use lab::suite::UsageError;
use machine::SysError;
use machine::pin::spawn_pinned;
use serde_json::{Value, json};

use super::Error;
use super::link::LinkOptions;
use super::{Interrupted, say, until};
use crate::host::descriptors::{DriverKind, Sizes};
use crate::link::interface::is_name;
use crate::nic::InterfaceConfig;
use crate::nic::flow_table::{CAPACITY, looked_up};
use crate::nic::layout::{NOTIFICATIONS, PIPES, RING};
use crate::nic::remote::{ConnectError, Connection};
use crate::steering::{CorePipes, Steering};
use crate::suite::params::{Interface, MAX_NOPS};
use crate::suite::testbed_config::MAX_TX_RING;
use crate::wire::sample::SampleTraffic;
use core::{Barriers, Core, CoreRecord, Shared};

/// Maximum size of all rings together unless `--ring` is given, in bytes.
const MAX_DEFAULT_RINGS: usize = 1 << 30;

/// Maximum number of flows with a rule.
const MAX_RULES: i64 = CAPACITY as i64;

/// Options of `tollgate stream echo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of cores
    #[arg(default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: u32,
    /// Pipes (or queues) per core: the first of all cores receives packets to 192.168.0.0, port 80, the next those to
    /// 192.168.0.1, and so on, unless --steering states otherwise
    #[arg(default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(PIPES)))]
    pipes: u32,
    /// NOP instructions per packet
    #[arg(default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_NOPS)))]
    nops: u32,
    /// Interface between NIC and application: pipes, pipes-per-packet, pipes-prefetch, descriptors; or an interface of
    /// Linux, e.g. veth1, whose packets are echoed
    #[arg(long, default_value = "pipes")]
    interface: EchoInterface,
    #[command(flatten)]
    link: LinkOptions,
    /// Size of each pipe's ring [default: 2 MiB, less if all rings would exceed 1 GiB]
    #[arg(long, allow_hyphen_values = true, value_parser = quantity::bytes)]
    ring: Option<u64>,
    /// How packets reach the pipes: rules, one for each of --flows; hash, of any flow; or round-robin, packet by packet
    /// (with generate --round-robin)
    #[arg(long, value_enum, default_value_t = Steering::Rules)]
    steering: Steering,
    /// Flows with a rule, from 192.168.0.0 up, which go to the pipes in turn; --steering rules only [default: one per
    /// pipe]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=MAX_RULES))]
    flows: Option<u32>,
    /// Time between two lines of progress
    #[arg(long, value_name = "DURATION", default_value = "1 s", allow_hyphen_values = true, value_parser = super::interval)]
    interval: Duration,
    /// Descriptors per ring; --interface descriptors only
    #[arg(long, default_value_t = 1024, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(64..))]
    depth: u32,
    /// Socket of the NIC [default: in $XDG_RUNTIME_DIR, or in the temporary folder]
    #[arg(long, value_name = "SOCKET")]
    nic: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the echo receives from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EchoInterface {
    /// An interface of the software NIC.
    Nic(Interface),
    /// The name of an interface of Linux.
    Linux(String),
}

impl FromStr for EchoInterface {
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

/// Echoes until interrupted or the NIC ends, and prints the number of packets.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(crate) fn main(options: &Options) -> Result<i32, Error> {
    let interface = match &options.interface {
        EchoInterface::Linux(name) => return link::main(options, name),
        EchoInterface::Nic(interface) => {
            options.link.check_unused()?;
            *interface
        }
    };
    let config = options.config(interface)?;
    let of_cores = options.pipes_of_cores()?;
    let path = options.nic.clone().map_or_else(super::default_socket, Ok)?;
    let interrupted = Interrupted::listen()?;
    let connection = connect(&path, config, &interrupted)?;
    let cpus = cpus(connection.nic_cpu(), options.cores as usize)?;
    let shared = Arc::new(Shared::new(cpus.len()));
    let cores = (0..)
        .zip(cpus)
        .zip(of_cores)
        .map(|(cpu, pipes)| options.start(cpu, pipes, (interface, config), &connection, &shared))
        .collect::<Result<Vec<_>, Error>>()?;
    shared.ready.wait();
    let stopped = || shared.stop.load(Ordering::Relaxed) || interrupted.is_set();
    if !stopped() && connection.ready().is_ok() {
        say(&format!("ready: {}", options.describe(config)));
        let unbound = shared.unbound.load(Ordering::Relaxed);
        if unbound > 0 {
            let all = options.flow_count();
            say(&format!(
                "{unbound} of {all} flows have no rule, so their packets are dropped: the NIC's flow table \
                 is full; use fewer flows, or --steering hash"
            ));
        }
    }
    let start = Instant::now();
    let mut before = shared.each();
    until(
        options.interval,
        || stopped() || connection.is_closed(),
        |at, since| {
            let now = shared.each();
            say(&progress(at, since, &before, &now));
            before = now;
        },
    );
    let (seconds, closed) = (start.elapsed().as_secs_f64(), connection.is_closed());
    shared.stop.store(true, Ordering::Relaxed);
    let ended = |core: JoinHandle<_>| -> Result<CoreRecord, Error> {
        Ok(core.join().map_err(|_| "a core stopped early; start the echo again")??)
    };
    let records = cores.into_iter().map(ended).collect::<Result<Vec<_>, _>>()?;
    options.print(&shared, &records, config, seconds, closed)?;
    Ok(0)
}

/// Connects to the NIC, waiting until there is one.
fn connect(
    path: &Path,
    config: InterfaceConfig,
    interrupted: &Interrupted,
) -> Result<Arc<Connection>, Error> {
    let mut reported = false;
    loop {
        match Connection::open(path, config) {
            Err(ConnectError::NoServer(..)) if !interrupted.is_set() => {}
            connected => return Ok(connected?),
        }
        if !reported {
            let start = "tollgate stream generate PCAP RATE";
            say(&format!("waiting for a NIC at {}; start it with: {start}", path.display()));
            reported = true;
        }
        std::thread::sleep(super::POLL_INTERVAL);
    }
}

/// Selects a CPU for each core, none of them the NIC's. Those that share the NIC's core come last.
fn cpus(nic: usize, cores: usize) -> Result<Vec<usize>, Error> {
    let topology = machine::topology::Topology::detect();
    let mut cpus = machine::topology::allowed_cpus();
    cpus.retain(|cpu| *cpu != nic);
    cpus.sort_by_key(|cpu| topology.siblings(nic).contains(cpu));
    if cpus.len() < cores {
        return Err(format!(
            "needs {} CPUs ({cores} for the application, 1 for the NIC), but only {} are allowed; \
             use at most {} cores",
            cores.saturating_add(1),
            cpus.len().saturating_add(1),
            cpus.len()
        )
        .into());
    }
    cpus.truncate(cores);
    Ok(cpus)
}

impl Options {
    /// Returns the NIC configuration that the options need.
    fn config(&self, interface: Interface) -> Result<InterfaceConfig, Error> {
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
    fn has_default_steering(&self) -> bool {
        self.flows.is_none() && self.steering == Steering::default()
    }

    /// Returns the number of flows with a rule.
    fn flow_count(&self) -> u32 {
        self.flows.unwrap_or(self.cores.saturating_mul(self.pipes))
    }

    /// Returns the pipes of each core, with their flows.
    ///
    /// # Errors
    /// Returns a usage error if flows are given that have no rule, or pipes would have no flow.
    fn pipes_of_cores(&self) -> Result<Vec<CorePipes>, Error> {
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
        let rule = |to| looked_up(&SampleTraffic::flow_to(to), false);
        let rules: Vec<_> = (0..flows).map(rule).collect();
        let per_core = self.pipes as usize;
        Ok(CorePipes::of_cores(&rules, pipes as usize, per_core, self.steering))
    }

    /// Starts a core; it echoes once all cores are ready.
    fn start(
        &self,
        (core, cpu): (u32, usize),
        of_core: CorePipes,
        (interface, config): (Interface, InterfaceConfig),
        connection: &Arc<Connection>,
        shared: &Arc<Shared>,
    ) -> Result<JoinHandle<Result<CoreRecord, SysError>>, Error> {
        let (connection, shared) = (Arc::clone(connection), Arc::clone(shared));
        let (port, nops) = (connection.port(), self.nops);
        let prefetch = interface.prefetches();
        let body = move || {
            let (count, barriers) = (&shared.packets[core as usize].0, Barriers::new(&shared));
            let core = Core { count, barriers, nops };
            // Closing the connection frees all pipes at once; each pipe on its own would wait for the NIC.
            core.run(&port, config, &of_core, prefetch, || connection.close())
        };
        spawn_pinned(cpu, body)
            .map_err(|why| format!("run a core on CPU {cpu}: {why}; name allowed CPUs").into())
    }

    fn describe(&self, config: InterfaceConfig) -> String {
        let Self { cores, pipes, nops, .. } = self;
        let s = |count: &u32| if *count == 1 { "" } else { "s" };
        let (core, pipe) = (s(cores), s(pipes));
        let steering = match (self.steering, self.flows) {
            (Steering::Rules, None) => String::new(),
            (Steering::Rules, Some(flows)) => format!("{flows} flows, "),
            (Steering::Hash, _) => "by the hash of the flow, ".into(),
            (Steering::RoundRobin, _) => "round-robin, ".into(),
        };
        format!(
            "{cores} core{core} with {pipes} pipe{pipe} each, {steering}{nops} NOPs per packet, {config}"
        )
    }

    fn print(
        &self,
        shared: &Shared,
        records: &[CoreRecord],
        config: InterfaceConfig,
        seconds: f64,
        closed: bool,
    ) -> Result<(), Error> {
        let cores = shared.each();
        let packets = shared.all();
        let ended = if closed { "the NIC stopped" } else { "interrupted" };
        let mut out = lab::terminal::stdout();
        if self.json {
            let result = json!({
                "packets": packets,
                "cores": cores,
                "core_use": records.iter().map(use_json).collect::<Vec<_>>(),
                "pipes": self.pipes,
                "steering": self.steering.name(),
                "flows": (self.steering == Steering::Rules).then(|| self.flow_count()),
                "nops": self.nops,
                "interface": config.to_string(),
                "seconds": seconds,
                "ended": ended,
            });
            writeln!(out, "{result}")?;
        } else {
            writeln!(out, "{}", self.describe(config))?;
            writeln!(out, "echoed {packets} packets in {seconds:.1} s; {ended}")?;
            for ((core, packets), record) in cores.iter().enumerate().zip(records) {
                writeln!(out, "  core {core}: {packets}; {}", use_text(record))?;
            }
        }
        Ok(())
    }
}

/// Describes how a core spent its time, e.g. `busy 42%, looked for packets for 60% of the time, so it waited for packets; 17
/// packets per iteration, 8.1 cycles each`.
fn use_text(record: &CoreRecord) -> String {
    let used = record.core_use();
    let Some(packets) = used.packets_per_iteration else { return "no packets".into() };
    let cycles = record.cycles_per_packet().map(|cycles| format!(", {cycles:.1} cycles each"));
    let bottleneck = match used.is_saturated() {
        true => "application-bound: this core had no time left",
        false => "so it waited for packets",
    };
    let (used, cycles) = (used.describe(), cycles.unwrap_or_default());
    format!("{used}, {bottleneck}; {packets:.1} packets per iteration{cycles}")
}

fn use_json(record: &CoreRecord) -> Value {
    let used = record.core_use();
    json!({
        "busy": used.busy,
        "polling": used.polling,
        "saturated": used.is_saturated(),
        "packets_per_iteration": used.packets_per_iteration,
        "cycles_per_packet": record.cycles_per_packet(),
    })
}

/// Returns a line of progress: the packets of all cores and, of several cores, the rate of each.
fn progress(at: f64, since: f64, before: &[u64], now: &[u64]) -> String {
    let rate = |(now, before): (&u64, &u64)| now.saturating_sub(*before) as f64 / since / 1e6;
    let each: Vec<f64> = now.iter().zip(before).map(rate).collect();
    let (all, packets) = (each.iter().sum::<f64>(), now.iter().sum::<u64>());
    let mut text = format!("{at:6.1} s  echoed {all:8.3} Mpps  {packets} packets");
    if each.len() > 1 {
        let each: Vec<_> = each.iter().map(|rate| format!("{rate:.3}")).collect();
        text += &format!("  cores {} Mpps", each.join(" "));
    }
    text
}
