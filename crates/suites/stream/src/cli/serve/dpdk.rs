//! An application over a port of DPDK, on one or more cores.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use applications::Application;
use lab::suite::UsageError;
use machine::SysError;
use machine::pin::spawn_pinned;

use super::core::{Barriers, Core, CoreRecord, Shared};
use super::options::ServeOptions;
use super::output::{Run, print_dpdk, progress};
use crate::application::{ApplicationSpec, CoreNumber, WithApplication};
use crate::cli::json::PortOutput;
use crate::cli::{Error, Interrupted, say, until};
use crate::dpdk::{Drops, Eal, Port, PortDescription, Queue, version};
use crate::link::LinkStatus;
use crate::serve::{DpdkServer, LinkAddresses};
use crate::steering::Steering;

/// Maximum number of queues, and of descriptors per queue.
const MAX_QUEUES: u32 = 1024;
const MAX_DEPTH: u32 = 32_768;

/// Report of a command on its port.
pub(super) struct PortSummary {
    port: PortDescription,
    queues: usize,
    depths: [u16; 2],
    /// Received and sent packets, as the port counts them.
    packets: [u64; 2],
    /// Received packets that are not the application's.
    stray: u64,
    drops: Drops,
}

/// Runs an application until interrupted, and prints its counts.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(super) fn main(
    options: &ServeOptions,
    spec: &ApplicationSpec,
    eal: &str,
) -> Result<i32, Error> {
    let (queues, depth) = queues(options)?;
    let interrupted = Interrupted::listen()?;
    let words: Vec<_> = eal.split_whitespace().collect();
    let eal = Eal::start(&words)?;
    let (warnings, cpus) = (eal.messages().to_vec(), eal.cpus(options.cores())?);
    let (port, queues) = Port::start(eal, queues, depth)?;
    warnings.iter().for_each(|warning| say(warning));
    let described = port.describe()?;
    let addresses = options.addresses.of(&described.name, || Ok(described.ethernet))?;
    let shared = Arc::new(Shared::new(cpus.len()));
    let statuses: Vec<_> = cpus.iter().map(|_| Arc::<LinkStatus>::default()).collect();
    let mut queues = queues.into_iter();
    let cores = cpus.into_iter().zip(CoreNumber::all(options.cores())).zip(&statuses);
    let cores = cores.map(|((cpu, number), status)| {
        let queues = queues.by_ref().take(options.pipes as usize).collect();
        let port = CorePort { queues, status: Arc::clone(status), addresses };
        start(cpu, (spec.clone(), number), port, &shared)
    });
    let cores = cores.collect::<Result<Vec<_>, Error>>()?;
    let summary = || -> Result<PortSummary, Error> {
        Ok(PortSummary {
            port: port.describe()?,
            queues: options.cores().saturating_mul(options.pipes as usize),
            depths: port.depths(),
            packets: port.packets(),
            stray: statuses.iter().map(|status| status.stray()).sum(),
            drops: port.drops(),
        })
    };
    shared.ready.wait();
    let (start, mut before, verb) = (Instant::now(), shared.each(), spec.kind().verb());
    // Even if it fails, the cores must end before the port is closed.
    let at_start = summary();
    if let Ok(at_start) = &at_start {
        say(&format!("ready: {}, {}", spec.describe(options.cores()), at_start.describe()));
        until(
            options.interval,
            || shared.stop.load(Ordering::Relaxed) || interrupted.is_set(),
            |at, since| {
                let now = shared.each();
                let dropped = dropped(&port.drops());
                say(&format!("{}{dropped}", progress(verb, (at, since), &before, &now)));
                before = now;
            },
        );
    }
    let seconds = start.elapsed().as_secs_f64();
    shared.stop.store(true, Ordering::Relaxed);
    let ended = |core: JoinHandle<_>| -> Result<CoreRecord, Error> {
        core.join().map_err(|_| "a core stopped early; start the application again")?
    };
    // All of them, before the port is closed.
    let ended: Vec<_> = cores.into_iter().map(ended).collect();
    at_start?;
    let records = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (packets, findings) = (shared.each(), shared.findings());
    let run = Run { spec, packets, records: &records, findings, seconds };
    print_dpdk(options.json, &run, &summary()?)?;
    Ok(0)
}

/// Checks the options. Returns the number of queues of all cores, and of descriptors per queue.
fn queues(options: &ServeOptions) -> Result<(u16, u16), Error> {
    options.link.check_unused()?;
    options.link.check_allowed("--dpdk: takes all packets of a port")?;
    let queues = options.cores.saturating_mul(options.pipes);
    if queues > 1 && options.steering != Steering::Hash {
        let why = format!(
            "--dpdk: only the hash of a flow can choose one of {queues} queues; add --steering hash"
        );
        return Err(UsageError::new(why).into());
    }
    if queues == 1 && options.steering == Steering::RoundRobin {
        let why = "--steering round-robin: a port of DPDK has no such mode; omit it";
        return Err(UsageError::new(why).into());
    }
    if queues > MAX_QUEUES || options.depth > MAX_DEPTH {
        let why = format!(
            "--dpdk: {queues} queues of {} descriptors; use at most {MAX_QUEUES} of {MAX_DEPTH}",
            options.depth
        );
        return Err(UsageError::new(why).into());
    }
    Ok((queues as u16, options.depth as u16))
}

/// Port from which a core receives.
struct CorePort {
    queues: Vec<Queue>,
    status: Arc<LinkStatus>,
    addresses: LinkAddresses,
}

/// Starts a core; it processes packets once all cores are ready.
fn start(
    cpu: usize,
    (spec, number): (ApplicationSpec, CoreNumber),
    port: CorePort,
    shared: &Arc<Shared>,
) -> Result<JoinHandle<Result<CoreRecord, Error>>, Error> {
    let shared = Arc::clone(shared);
    let body = move || {
        let barriers = Barriers::new(&shared);
        let count = &shared.packets[usize::from(number.core)].0;
        let core = Core { count, barriers, max_work: spec.max_work() };
        Ok(spec.with(number, OverPort { core, port })??)
    };
    spawn_pinned(cpu, body)
        .map_err(|why| format!("run a core on CPU {cpu}: {why}; name allowed CPUs by -l").into())
}

/// Runs an application over queues of the port.
struct OverPort<'a> {
    core: Core<'a>,
    port: CorePort,
}

impl WithApplication for OverPort<'_> {
    type Output = Result<CoreRecord, SysError>;

    fn run<A: Application>(self, application: A) -> Self::Output {
        let Self { mut core, port: CorePort { queues, status, addresses } } = self;
        let mut server = DpdkServer::new(queues, status, addresses)?;
        Ok(core.run(&mut server, application, || {}))
    }
}

/// Returns the part of a line of progress about dropped packets; empty if there are none.
fn dropped(drops: &Drops) -> String {
    let all: u64 = drops.iter().map(|(_, packets)| packets).sum();
    if all == 0 { String::new() } else { format!("  dropped {all}") }
}

impl PortSummary {
    /// Describes the port, e.g. `0000:3b:00.0, net_ice, 1 queue of 1024 + 1024 descriptors, link up at 100 Gbps`.
    pub(super) fn describe(&self) -> String {
        let Self { port, queues, depths: [rx, tx], .. } = self;
        let s = if *queues == 1 { "" } else { "s" };
        let link = match (port.is_up, port.speed) {
            (false, _) => "down".into(),
            (true, None) => "up".into(),
            (true, Some(mbps)) => format!("up at {} Gbps", f64::from(mbps) / 1e3),
        };
        let PortDescription { name, driver, .. } = port;
        format!("{name}, {driver}, {queues} queue{s} of {rx} + {tx} descriptors, link {link}")
    }

    /// Returns the lines about the port's packets.
    pub(super) fn text(&self) -> String {
        let [received, sent] = self.packets;
        let each = self.drops.iter().filter(|(_, packets)| *packets > 0);
        let each: Vec<_> = each.map(|(cause, packets)| format!("{packets} ({cause})")).collect();
        let dropped = if each.is_empty() { "none".into() } else { each.join(", ") };
        format!(
            "{received:>10} packets received by the port, {sent} sent\n\
             {:>10} {} received packets that are not of the traffic\n{:>10} {dropped}\n",
            "stray", self.stray, "dropped"
        )
    }

    /// Returns the name of the port.
    pub(super) fn name(&self) -> &str {
        &self.port.name
    }

    /// Returns what is printed as JSON.
    pub(super) fn json(&self) -> PortOutput {
        let Self { port, queues, depths, packets, stray, drops } = self;
        PortOutput {
            driver: port.driver.clone(),
            dpdk: version(),
            ethernet: port.ethernet.map(|address| address.to_string()),
            link_up: port.is_up,
            link_mbps: port.speed,
            queues: *queues,
            rx_descriptors: depths[0],
            tx_descriptors: depths[1],
            received: packets[0],
            sent: packets[1],
            stray: *stray,
            dropped: drops.iter().copied().collect(),
        }
    }
}
