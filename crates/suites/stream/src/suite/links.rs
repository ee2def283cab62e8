//! The interfaces `af-xdp`, `af-packet` and `tap`: packets pass the kernel, in network namespaces that end with the sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use lab::option::is_allowed;
use lab::sample::Failure;
use machine::SysError;
use machine::tsc::TickRate;
use rustix::thread::{CapabilitySet, capabilities};

use super::application::{ApplicationCore, CoreApplication, CorePort};
use super::testbed_config::{Cpus, TestbedConfig};
use crate::generator::GeneratorCommand;
use crate::iterations::StallThreshold;
use crate::link::interface::create_veth;
use crate::link::namespace::Namespace;
use crate::link::{ALLOW_NETWORK, Link, LinkEngine, LinkKind, LinkParams, LinkStatus, open};
use crate::nic::{LinkMode, Nic, NicParams};
use crate::serve::LinkServer;
use crate::wire::Wire;

/// Memory of both links, at most, in bytes.
pub(super) const MEMORY: u64 = 32 << 20;
/// Frames of the rings for receiving.
const DEPTH: u32 = 4096;

/// The links of both sides.
pub(super) struct Links {
    mode: LinkMode,
    statuses: [Arc<LinkStatus>; 2],
}

impl Links {
    /// Returns how packets pass the kernel.
    pub(super) fn mode(&self) -> LinkMode {
        self.mode
    }

    /// Checks that both links work.
    ///
    /// # Errors
    /// Returns why one does not.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.statuses.iter().try_for_each(|status| check_status(status))
    }
}

/// Checks that a link works.
///
/// # Errors
/// Returns why it does not.
pub(super) fn check_status(status: &LinkStatus) -> Result<(), Failure> {
    status.error().map_or(Ok(()), |why| Err(Failure::failed(why.to_string())))
}

/// Checks that the user allows links, if a point has some.
///
/// # Errors
/// Returns `unavailable` unless the user gave `--allow network`.
pub(super) fn check_allowed(
    config: &TestbedConfig,
    options: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    if config.interface.link().is_none() || is_allowed(options, ALLOW_NETWORK) {
        return Ok(());
    }
    let why = "network namespaces and interfaces are not created without permission";
    Err(Failure::unavailable(why, "--allow network"))
}

/// Checks whether this machine can measure a configuration.
///
/// # Errors
/// Returns what is missing and the remedy.
pub(super) fn available(config: &TestbedConfig) -> Result<(), Failure> {
    check_config(config)?;
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::SYS_ADMIN;
    let effective = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    match effective.contains(needed) {
        true => Ok(()),
        false => Err(Failure::unavailable("network namespaces need rights", "run as root")),
    }
}

/// Checks that links support a configuration, on any machine.
///
/// # Errors
/// Returns `unsupported` with what they do not support.
pub(super) fn check_config(config: &TestbedConfig) -> Result<(), Failure> {
    if config.depth != DEPTH {
        return Err(Failure::unsupported(
            format!("the rings of a link have {DEPTH} entries"),
            format!("use depth {DEPTH}"),
        ));
    }
    if config.cores > 1 {
        return Err(Failure::unsupported("a link has one core", "use cores 1"));
    }
    config.without_model("an interface of Linux")
}

/// Starts a NIC whose wire is a link, and an application with the link at its other end.
///
/// # Errors
/// Returns why a part cannot run.
pub(super) fn start(
    kind: LinkKind,
    (config, application): (&TestbedConfig, CoreApplication),
    cpus: &Cpus,
    rate: TickRate,
    wire: impl Wire<Command = GeneratorCommand>,
) -> Result<(Nic<GeneratorCommand>, ApplicationCore, Links), Failure> {
    let (here, there) =
        connect(kind).map_err(|why| Failure::unavailable(why.to_string(), why.remedy))?;
    let mode = here.mode();
    let statuses = [Arc::<LinkStatus>::default(), Arc::default()];
    let [of_nic, of_core] = statuses.clone();
    let params = NicParams { cpu: cpus.nic, ..NicParams::default() };
    let nic = Nic::start(params, LinkEngine::new(here, of_nic), wire);
    let nic = nic.map_err(|why| Failure::failed(why.to_string()))?;
    let port = CorePort::Link(Box::new(LinkServer::new(there, of_core)));
    let (cpu, threshold) = (cpus.applications[0], StallThreshold::new(rate));
    let core = ApplicationCore::start(cpu, config, application, port, threshold)?;
    Ok((nic, core, Links { mode, statuses }))
}

/// A link and the one at its other end.
type Ends = (Box<dyn Link>, Box<dyn Link>);

/// Opens two connected links. Their sockets keep the namespaces, and so the interfaces, alive.
fn connect(kind: LinkKind) -> Result<Ends, SysError> {
    let link = |interface: &str, kind| {
        open(&LinkParams { interface: interface.into(), kind, queue: None })
    };
    let here = Namespace::new()?;
    if let LinkKind::Tap = kind {
        return here.run(|| Ok((link("tap0", kind)?, link("tap0", LinkKind::AfPacket)?)))?;
    }
    let there = Namespace::new()?;
    here.run(|| create_veth("veth0", "veth1", &there))??;
    Ok((here.run(|| link("veth0", kind))??, there.run(|| link("veth1", kind))??))
}
