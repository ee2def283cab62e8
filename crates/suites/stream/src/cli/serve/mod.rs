//! `tollgate stream echo`, `maglev` and so on: an application whose NIC is in another process, or which uses an interface of
//! Linux or a port of DPDK.

mod addresses;
mod commands;
mod core;
#[cfg(feature = "dpdk")]
mod dpdk;
mod link;
mod options;
mod output;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use machine::pin::spawn_pinned;

use super::Error;
use super::{Interrupted, say, until};
use crate::application::{ApplicationKind, ApplicationSpec, CoreNumber};
use crate::nic::InterfaceConfig;
use crate::nic::remote::{ConnectError, Connection};
use crate::steering::CorePipes;
use crate::suite::params::Interface;
pub(super) use commands::{
    EchoOptions, KeyValueOptions, LogMonitorOptions, MaglevOptions, Serve, TelemetryOptions,
};
use core::{Barriers, Core, CoreRecord, OverPort, Shared};
use options::{ServeInterface, ServeOptions};
use output::{Run, progress};

/// Runs an application until interrupted or the NIC ends, and prints its counts.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(super) fn main(command: &impl Serve) -> Result<i32, Error> {
    let (options, spec) = command.application()?;
    if let Some(eal) = &options.dpdk {
        return dpdk::main(options, &spec, eal);
    }
    match &options.interface {
        ServeInterface::Linux(name) => link::main(options, &spec, name),
        ServeInterface::Nic(interface) => {
            options.link.check_unused()?;
            options.addresses.check_unused()?;
            serve(options, spec, *interface)
        }
    }
}

/// The stand-in for ports of DPDK in a build without them.
#[cfg(not(feature = "dpdk"))]
mod dpdk {
    use lab::suite::UsageError;

    use super::{ApplicationSpec, Error, ServeOptions};

    pub(super) fn main(_: &ServeOptions, _: &ApplicationSpec, _: &str) -> Result<i32, Error> {
        let why = "--dpdk: this build of tollgate has no DPDK; build it with --features dpdk";
        Err(UsageError::new(why).into())
    }
}

/// Runs an application over the interface of a NIC.
fn serve(
    options: &ServeOptions,
    spec: ApplicationSpec,
    interface: Interface,
) -> Result<i32, Error> {
    let config = options.config(interface)?;
    let of_cores = options.pipes_of_cores(spec.kind())?;
    let path = options.nic.clone().map_or_else(super::default_socket, Ok)?;
    let interrupted = Interrupted::listen()?;
    let connection = connect(&path, config, spec.kind(), &interrupted)?;
    let cpus = cpus(connection.nic_cpu(), options.cores())?;
    let shared = Arc::new(Shared::new(cpus.len()));
    let start = |((cpu, of_core), number)| {
        let interface = NicInterface { config, of_core, prefetch: interface.prefetches() };
        start(cpu, (spec.clone(), number), interface, &connection, &shared)
    };
    let cores = cpus.into_iter().zip(of_cores).zip(CoreNumber::all(options.cores()));
    let cores = cores.map(start).collect::<Result<Vec<_>, Error>>()?;
    shared.ready.wait();
    let stopped = || shared.stop.load(Ordering::Relaxed) || interrupted.is_set();
    if !stopped() && connection.ready().is_ok() {
        let described = spec.describe(options.cores());
        say(&format!("ready: {described}, {}", options.describe(config)));
        let rules = options.rule_count(spec.kind());
        report_unbound(shared.unbound.load(Ordering::Relaxed), rules);
    }
    let (start, mut before, verb) = (Instant::now(), shared.each(), spec.kind().verb());
    until(
        options.interval,
        || stopped() || connection.is_closed(),
        |at, since| {
            let now = shared.each();
            say(&progress(verb, (at, since), &before, &now));
            before = now;
        },
    );
    let (seconds, closed) = (start.elapsed().as_secs_f64(), connection.is_closed());
    shared.stop.store(true, Ordering::Relaxed);
    let ended = |core: JoinHandle<_>| -> Result<CoreRecord, Error> {
        core.join().map_err(|_| "a core stopped early; start the application again")?
    };
    let records = cores.into_iter().map(ended).collect::<Result<Vec<_>, _>>()?;
    let (packets, findings) = (shared.each(), shared.findings());
    let run = Run { spec: &spec, packets, records: &records, findings, seconds };
    output::print(options, &run, config, if closed { "the NIC stopped" } else { "interrupted" })?;
    Ok(0)
}

/// Connects to the NIC, waiting until there is one.
fn connect(
    path: &Path,
    config: InterfaceConfig,
    application: ApplicationKind,
    interrupted: &Interrupted,
) -> Result<Arc<Connection>, Error> {
    let mut reported = false;
    loop {
        match Connection::open(path, config) {
            Err(ConnectError::NoServer(..)) if !interrupted.is_set() => {}
            connected => return Ok(connected?),
        }
        if !reported {
            let packets = match application {
                ApplicationKind::Echo => "PCAP".to_owned(),
                ApplicationKind::MaglevEnso
                | ApplicationKind::Maglev
                | ApplicationKind::KeyValue
                | ApplicationKind::LogMonitor
                | ApplicationKind::Telemetry => format!("--application {application}"),
            };
            let start = format!("tollgate stream generate {packets} RATE");
            say(&format!("waiting for a NIC at {}; start it with: {start}", path.display()));
            reported = true;
        }
        std::thread::sleep(super::POLL_INTERVAL);
    }
}

/// Selects a CPU for each core, none of them the NIC's. CPUs that share the NIC's core are last.
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

/// Reports flows for which the NIC has no rule.
fn report_unbound(unbound: usize, flows: usize) {
    if unbound > 0 {
        say(&format!(
            "{unbound} of {flows} flows have no rule, so their packets are dropped: the NIC's flow table is full; \
             use fewer flows, or --steering hash"
        ));
    }
}

/// The interface of a NIC, on one core.
struct NicInterface {
    config: InterfaceConfig,
    of_core: CorePipes,
    prefetch: bool,
}

/// Starts a core; it processes packets once all cores are ready.
fn start(
    cpu: usize,
    (spec, number): (ApplicationSpec, CoreNumber),
    interface: NicInterface,
    connection: &Arc<Connection>,
    shared: &Arc<Shared>,
) -> Result<JoinHandle<Result<CoreRecord, Error>>, Error> {
    let (connection, shared) = (Arc::clone(connection), Arc::clone(shared));
    let body = move || {
        let barriers = Barriers::new(&shared);
        let count = &shared.packets[usize::from(number.core)].0;
        let core = Core { count, barriers, max_work: spec.max_work() };
        let port = connection.port();
        // Closing the connection frees all pipes at once; each pipe on its own would wait for the NIC.
        let last = || connection.close();
        Ok(spec.with(number, OverPort { core, port: &port, interface: &interface, last })??)
    };
    spawn_pinned(cpu, body)
        .map_err(|why| format!("run a core on CPU {cpu}: {why}; name allowed CPUs").into())
}
