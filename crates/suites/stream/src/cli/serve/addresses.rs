//! Options about the addresses of an application over an interface of Linux, or over a port of DPDK.

use std::net::Ipv4Addr;

use clap::Args;
use lab::suite::UsageError;

use crate::cli::Error;
use crate::link::{EthernetAddress, interface};
use crate::nic::LinkMode;
use crate::serve::LinkAddresses;

/// Options about addresses.
#[derive(Debug, Args)]
pub(super) struct AddressOptions {
    /// Process only packets to this address, and answer ARP requests for it; interfaces of Linux and --dpdk
    /// only [default: packets to any address, without ARP]
    #[arg(long, value_name = "ADDRESS", value_parser = of_host)]
    address: Option<Ipv4Addr>,
    /// Send packets to this Ethernet address, from that of the interface; replies return to their sender; interfaces of Linux
    /// and --dpdk only [default: with the addresses that they have]
    #[arg(long, value_name = "MAC")]
    next_hop: Option<EthernetAddress>,
}

impl AddressOptions {
    /// Checks that no option about addresses is given, because the NIC has none.
    ///
    /// # Errors
    /// Returns a usage error.
    pub(super) fn check_unused(&self) -> Result<(), UsageError> {
        let name = match (&self.address, &self.next_hop) {
            (None, None) => return Ok(()),
            (Some(_), _) => "--address",
            (None, Some(_)) => "--next-hop",
        };
        let why =
            format!("{name}: is about an interface of Linux; name one, e.g. --interface veth0");
        Err(UsageError::new(why))
    }

    /// Returns the addresses of the application at an interface of Linux.
    ///
    /// # Errors
    /// Returns an error if an option is given and the interface has no Ethernet address.
    pub(super) fn of_interface(
        &self,
        interface: &str,
        mode: LinkMode,
    ) -> Result<LinkAddresses, Error> {
        let ours = || -> Result<_, Error> {
            let ethernet = interface::find(interface)?.ethernet;
            // The interface is the kernel's end of the wire; the program is at the other one.
            Ok(match mode {
                LinkMode::Tap => ethernet.map(EthernetAddress::other_end),
                LinkMode::AfXdp { .. } | LinkMode::AfPacket => ethernet,
            })
        };
        self.of(interface, ours)
    }

    /// Returns the addresses of the application at an interface or port, of which `ours` returns the Ethernet address.
    ///
    /// # Errors
    /// Returns an error if an option is given and there is no Ethernet address.
    pub(super) fn of(
        &self,
        name: &str,
        ours: impl FnOnce() -> Result<Option<EthernetAddress>, Error>,
    ) -> Result<LinkAddresses, Error> {
        let Self { address, next_hop } = *self;
        if address.is_none() && next_hop.is_none() {
            return Ok(LinkAddresses::default());
        }
        let ours = ours()?.ok_or_else(|| {
            format!(
                "--address and --next-hop: {name} has no Ethernet address; omit them, or use another \
                 interface"
            )
        })?;
        Ok(LinkAddresses {
            served: address.map(|address| (address, ours)),
            next_hop: next_hop.map(|next_hop| [ours, next_hop]),
        })
    }
}

/// Parses the IPv4 address of a host.
fn of_host(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr =
        text.parse().map_err(|_| "not an IPv4 address such as 10.0.0.100".to_owned())?;
    match address.is_unspecified() || address.is_broadcast() || address.is_multicast() {
        true => Err("not the address of one host".into()),
        false => Ok(address),
    }
}
