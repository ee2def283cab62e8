//! The interface of a role on its host: its name, its state, and what the kernel counts there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lab::measure::Measurement;
use lab::option::is_allowed;
use lab::sample::Failure;
use machine::SysError;

use super::Role;
use crate::link::interface::{self, NetworkInterface};
use crate::link::namespace::Namespace;
use crate::link::{self, ALLOW_NETWORK, Drops, Link, LinkKind, LinkParams, LinkStatus};
use crate::nic::LinkMode;
use crate::suite::links;

/// Maximum time until an interface has its carrier again after a link was opened.
const MAX_CARRIER_WAIT: Duration = Duration::from_secs(10);

/// An interface as an option names it: `[NAMESPACE/]NAME[:QUEUE]`.
#[derive(Debug, PartialEq, Eq)]
struct InterfaceName<'a> {
    /// The namespace in which it is, as `ip netns` names it; `None` for that of the worker.
    namespace: Option<&'a str>,
    name: &'a str,
    /// Queue of an AF_XDP socket; `None` for the only one.
    queue: Option<u32>,
}

impl<'a> InterfaceName<'a> {
    /// Parses it; `None` if it is not valid.
    fn parse(text: &'a str) -> Option<Self> {
        let (namespace, text) = match text.split_once('/') {
            Some((namespace, text)) => (Some(namespace), text),
            None => (None, text),
        };
        let (name, queue) = match text.split_once(':') {
            Some((name, queue)) => (name, Some(queue.parse().ok()?)),
            None => (text, None),
        };
        let is_valid = interface::is_name(name) && namespace.is_none_or(Namespace::is_name);
        is_valid.then_some(Self { namespace, name, queue })
    }
}

/// The interface of a role while its link is used by another thread.
pub(super) struct LinkWatch {
    namespace: Option<Namespace>,
    name: String,
    mode: LinkMode,
    medium: String,
    status: Arc<LinkStatus>,
    drops: Box<dyn Drops>,
}

/// Opens the interface of a role.
///
/// # Errors
/// Returns `unavailable` with what is missing on this host and the remedy.
pub(super) fn open(
    role: Role,
    kind: LinkKind,
    options: &BTreeMap<String, String>,
) -> Result<(Box<dyn Link>, LinkWatch), Failure> {
    if !is_allowed(options, ALLOW_NETWORK) {
        let why = "packets of an interface are not taken from the kernel without permission";
        return Err(Failure::unavailable(why, "--allow network"));
    }
    let usage = format!("--set {}=[NAMESPACE/]NAME[:QUEUE]", role.option());
    let Some(text) = options.get(role.option()) else {
        return Err(Failure::unavailable("no network interface is named for it", usage));
    };
    let Some(named) = InterfaceName::parse(text) else {
        return Err(Failure::unavailable(format!("'{text}' is not an interface"), usage));
    };
    if named.queue.is_some() && kind != LinkKind::AfXdp {
        return Err(Failure::unsupported("only an AF_XDP socket has a queue", "omit the queue"));
    }
    open_named(&named, kind).map_err(Failure::refused)
}

fn open_named(
    named: &InterfaceName,
    kind: LinkKind,
) -> Result<(Box<dyn Link>, LinkWatch), SysError> {
    let namespace = named.namespace.map(Namespace::open).transpose()?;
    let (params, name) = (
        LinkParams { interface: named.name.to_owned(), kind, queue: named.queue },
        named.name.to_owned(),
    );
    let (link, found) = within(namespace.as_ref(), || -> Result<_, SysError> {
        interface::wait_for_carrier(&params.interface, MAX_CARRIER_WAIT)?;
        let link = link::open(&params)?;
        // Some drivers restart the device when a program is attached.
        Ok((link, interface::wait_for_carrier(&params.interface, MAX_CARRIER_WAIT)?))
    })??;
    let (mode, drops, medium) = (link.mode(), link.drops()?, found.medium());
    let status = Arc::<LinkStatus>::default();
    Ok((link, LinkWatch { namespace, name, mode, medium, status, drops }))
}

/// Runs a function in a namespace, or in that of this thread.
fn within<T: Send>(
    namespace: Option<&Namespace>,
    body: impl FnOnce() -> T + Send,
) -> Result<T, SysError> {
    match namespace {
        Some(namespace) => namespace.run(body),
        None => Ok(body()),
    }
}

impl LinkWatch {
    /// Returns the status that the link's thread sets.
    pub(super) fn status(&self) -> Arc<LinkStatus> {
        Arc::clone(&self.status)
    }

    /// Returns how packets pass the interface.
    pub(super) fn mode(&self) -> LinkMode {
        self.mode
    }

    /// Returns the number of received packets that are not of the traffic.
    pub(super) fn stray(&self) -> u64 {
        self.status.stray()
    }

    /// Checks that the link still works.
    ///
    /// # Errors
    /// Returns why it does not; that the sample is void if only its carrier was lost, which it may have again.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let interface = self.interface()?;
        self.check_carrier(interface.is_up && !interface.has_carrier)?;
        links::check_status(&self.status)?;
        Ok(interface.check_up()?)
    }

    /// Returns how often the interface got or lost its carrier.
    pub(super) fn carrier_changes(&self) -> u32 {
        self.interface().map_or(0, |interface| interface.carrier_changes)
    }

    /// Checks that the carrier was not lost in a trial.
    ///
    /// # Errors
    /// Returns that the sample is void.
    pub(super) fn check_carrier(&self, is_lost: bool) -> Result<(), Failure> {
        match is_lost {
            true => Err(Failure::void(format!("the interface {} lost its carrier", self.name))),
            false => Ok(()),
        }
    }

    /// Returns the packets that the kernel has dropped, at the socket and by the interface, since both exist; 0 by an
    /// interface that was removed.
    pub(super) fn dropped(&mut self) -> u64 {
        let at_socket: u64 = self.drops.read().iter().map(|(_, packets)| packets).sum();
        let by_interface = self.interface().map_or(0, |it| it.dropped.iter().sum());
        at_socket + by_interface
    }

    /// Records how packets pass the interface, and what the interface is, with a prefix.
    pub(super) fn describe(&self, measurement: Measurement, prefix: &str) -> Measurement {
        measurement
            .covariate(&format!("{prefix}link"), self.mode.to_string().as_str())
            .covariate(&format!("{prefix}medium"), self.medium.as_str())
    }

    fn interface(&self) -> Result<NetworkInterface, SysError> {
        let name = &self.name;
        within(self.namespace.as_ref(), || interface::find(name)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn interfaces_have_namespaces_and_queues() {
        let of = |namespace, name, queue| Some(InterfaceName { namespace, name, queue });
        for (text, expected) in [
            ("eth1", of(None, "eth1", None)),
            ("b/veth1", of(Some("b"), "veth1", None)),
            ("eth1:3", of(None, "eth1", Some(3))),
            ("b/eth1:0", of(Some("b"), "eth1", Some(0))),
            ("", None),
            ("/eth1", None),
            ("../eth1", None),
            ("a/b/eth1", None),
            ("eth1:", None),
            ("eth1:-1", None),
            ("a name", None),
        ] {
            assert_eq!(InterfaceName::parse(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_name_leaves_the_folder_of_namespaces(text in ".*") {
            if let Some(InterfaceName { namespace: Some(namespace), .. }) = InterfaceName::parse(&text) {
                prop_assert!(!namespace.contains('/') && namespace != ".." && !namespace.is_empty());
            }
        }
    }

    #[test]
    fn what_is_missing_has_a_remedy() {
        let open = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            super::open(Role::Dut, LinkKind::AfPacket, &options.collect()).map(|_| ()).unwrap_err()
        };
        let allowed = (ALLOW_NETWORK, "yes");
        let named = |name| open(&[allowed, ("dut-interface", name)]);
        for (failure, remedy) in [
            (open(&[]), "--allow network"),
            (open(&[allowed]), "--set dut-interface="),
            (open(&[allowed, ("generator-interface", "eth1")]), "--set dut-interface="),
            (named("a/b/c"), "--set dut-interface="),
            (named("nosuchif0"), "'ip link'"),
            (named("nosuchnamespace0/eth1"), "'ip netns'"),
        ] {
            assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
            assert!(failure.remedy.as_ref().unwrap().contains(remedy), "{failure}");
        }
        assert_eq!(named("eth1:1").kind, FailureKind::Unsupported);
    }
}
