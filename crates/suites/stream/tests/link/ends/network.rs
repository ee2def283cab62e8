//! A network of three hosts: a client, the host of an application, and the backends of a load balancer.

use std::error::Error;
use std::path::Path;

use stream::link::EthernetAddress;
use stream::link::interface::create_veth;
use stream::link::namespace::Namespace;

use super::programs::{attempt, succeeds};

/// Address of the application.
pub(crate) const SERVED: &str = "10.0.0.100";
/// Addresses of the backends, which one host has.
pub(crate) const BACKENDS: [&str; 2] = ["10.0.2.1", "10.0.2.2"];

const CLIENT: &str = "10.0.1.1";
/// Name of the only interface of each host.
pub(crate) const INTERFACE: &str = "eth0";

/// Network namespaces without a name, connected by veth pairs and a bridge. They end with this process and its children.
///
/// Replies of the backends go directly to the client, with the address of the balancer as their source.
pub(crate) struct Network {
    pub(crate) client: Namespace,
    /// The host of the application. Its interface has no IPv4 address: the kernel gets none of its packets.
    pub(crate) host: Namespace,
    pub(crate) backends: Namespace,
    /// Ethernet address of the backends.
    pub(crate) backend: EthernetAddress,
    /// Contains the bridge.
    _switch: Namespace,
}

impl Network {
    /// Creates the network; `None`, with a record, if something is missing.
    pub(crate) fn create(test: &str, programs: &[&str]) -> Option<Self> {
        let needed = [&["ip", "ethtool", "nft"], programs].concat();
        if !can_run(test, &needed) {
            return None;
        }
        Self::connect().inspect_err(|why| machine::untested::note(test, why)).ok()
    }

    /// Connects the hosts.
    ///
    /// # Errors
    /// Returns which right, or which part of the kernel, is missing.
    fn connect() -> Result<Self, Box<dyn Error>> {
        let (client, host) = (Namespace::new()?, Namespace::new()?);
        let (backends, switch) = (Namespace::new()?, Namespace::new()?);
        attempt(&switch, "ip link add bridge0 type bridge")?;
        succeeds(&switch, "ip link set bridge0 up");
        for (namespace, port) in [(&client, "client"), (&host, "host"), (&backends, "backends")] {
            namespace.run(|| create_veth(INTERFACE, port, &switch))??;
            succeeds(&switch, &format!("ip link set {port} master bridge0"));
            succeeds(namespace, "ip link set lo up");
        }
        succeeds(&client, &format!("ip address add {CLIENT}/16 dev {INTERFACE}"));
        set_offloads(&client, "off");
        set_offloads(&backends, "off");
        for address in BACKENDS {
            succeeds(&backends, &format!("ip address add {address}/16 dev {INTERFACE}"));
        }
        // Stateless: the kernel updates the checksums, and tracks no connections.
        attempt(&backends, "nft add table ip replies")?;
        let chain =
            "nft add chain ip replies source { type filter hook postrouting priority raw; }";
        succeeds(&backends, chain);
        let addresses = BACKENDS.join(", ");
        let rule = format!("ip saddr {{ {addresses} }} ip saddr set {SERVED}");
        succeeds(&backends, &format!("nft add rule ip replies source {rule}"));
        let found = backends.run(|| stream::link::interface::find(INTERFACE))??;
        let backend = found.ethernet.expect("a veth interface has an Ethernet address");
        Ok(Self { client, host, backends, backend, _switch: switch })
    }
}

/// Sets whether a host leaves the checksums of packets that it sends to its interface. A veth interface computes none: packets
/// would arrive with the sums of their pseudo-headers.
pub(crate) fn set_offloads(host: &Namespace, state: &str) {
    succeeds(host, &format!("ethtool -K {INTERFACE} tx {state}"));
}

/// Returns whether there are two CPUs and these programs; records what is missing.
pub(crate) fn can_run(test: &str, programs: &[&str]) -> bool {
    if let Some(missing) = programs.iter().find(|program| !is_installed(program)) {
        machine::untested::note(test, &format!("requires the program {missing}"));
        return false;
    }
    let has_two = machine::topology::allowed_cpus().len() >= 2;
    if !has_two {
        machine::untested::note(test, &"requires two CPUs");
    }
    has_two
}

/// Returns whether a program is in the search path, or is the path of one.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        || Path::new(program).is_absolute() && Path::new(program).is_file()
}
