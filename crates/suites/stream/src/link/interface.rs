//! Network interfaces: their state, and creation of veth pairs.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use machine::SysError;

use super::ethernet::EthernetAddress;
use super::namespace::Namespace;
use super::netlink::{self, INFO, Request};
use super::refused;

/// Types, attributes and flags of `include/uapi/linux/if_link.h` and `veth.h`.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const XDP_ATTACHED: u16 = 2;
/// Index of the fields `rx_dropped` and `tx_dropped` of `struct rtnl_link_stats64`, in words of 8 bytes.
const RX_DROPPED: usize = 6;
const TX_DROPPED: usize = 7;
/// How often the carrier is looked for.
const CARRIER_INTERVAL: Duration = Duration::from_millis(10);
/// Length of the longest name of an interface, in bytes.
const MAX_NAME: usize = libc::IFNAMSIZ - 1;

/// State of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its name.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// Its Ethernet address; `None` if it has none, e.g. a loopback interface.
    pub ethernet: Option<EthernetAddress>,
    /// Whether it is set up.
    pub is_up: bool,
    /// Whether it has a carrier, e.g. the peer of a veth interface is up.
    pub has_carrier: bool,
    /// How often it got or lost its carrier since it exists; 0 if the kernel does not count that.
    pub carrier_changes: u32,
    /// Received and sent packets that the interface has dropped since it exists.
    pub dropped: [u64; 2],
    /// Whether an XDP program is attached.
    pub has_xdp: bool,
    /// What the kernel provides it as, e.g. `veth`; `None` if it is a device's.
    pub kind: Option<String>,
}

impl NetworkInterface {
    /// Parses `struct ifinfomsg` and its attributes.
    fn of(name: &str, body: &[u8]) -> Option<Self> {
        let (index, flags) = (netlink::word(body, 4)?, netlink::word(body, 8)?.cast_signed());
        let attributes = body.get(INFO..)?;
        let statistics = netlink::find(attributes, libc::IFLA_STATS64);
        let address = netlink::find(attributes, libc::IFLA_ADDRESS);
        let xdp = netlink::find(attributes, libc::IFLA_XDP);
        let attached = xdp.and_then(|xdp| netlink::find(xdp, XDP_ATTACHED));
        let info = netlink::find(attributes, libc::IFLA_LINKINFO);
        let kind = info.and_then(|info| netlink::find(info, INFO_KIND));
        let kind = kind.and_then(|kind| std::str::from_utf8(kind).ok());
        let statistic = |field: usize| {
            let words = statistics.unwrap_or_default().as_chunks().0;
            words.get(field).copied().map_or(0, u64::from_ne_bytes)
        };
        Some(Self {
            name: name.to_owned(),
            index,
            ethernet: address.and_then(|bytes| EthernetAddress::new(bytes.try_into().ok()?)),
            is_up: flags & libc::IFF_UP != 0,
            has_carrier: flags & libc::IFF_LOWER_UP != 0,
            carrier_changes: netlink::find(attributes, libc::IFLA_CARRIER_CHANGES)
                .and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)))
                .unwrap_or_default(),
            dropped: [statistic(RX_DROPPED), statistic(TX_DROPPED)],
            has_xdp: attached.is_some_and(|mode| mode != [0]),
            kind: kind.map(|kind| kind.trim_end_matches('\0').to_owned()),
        })
    }

    /// Describes what carries its packets, e.g. `veth, a link of the kernel`.
    pub fn medium(&self) -> String {
        match (&self.kind, self.ethernet) {
            (Some(kind), _) => format!("{kind}, a link of the kernel"),
            (None, None) => "loopback, a link of the kernel".into(),
            (None, Some(_)) => "a network device".into(),
        }
    }

    /// Checks that it can send packets.
    ///
    /// # Errors
    /// Returns that it is down, or has no carrier.
    pub fn check_up(&self) -> Result<(), SysError> {
        let Self { name, .. } = self;
        let down = io::Error::from_raw_os_error(libc::ENETDOWN);
        if !self.is_up {
            let remedy = format!("set it up: ip link set dev {name} up");
            return Err(refused(format!("the interface {name} is down"), down, remedy));
        }
        if !self.has_carrier {
            let remedy = "connect its cable, or set the other end of a veth pair up";
            return Err(refused(format!("the interface {name} has no carrier"), down, remedy));
        }
        Ok(())
    }

    /// Sets it up.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn set_up(&self) -> Result<(), SysError> {
        let up = libc::IFF_UP as u32;
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, self.index, up, up);
        request.send().map(drop).map_err(|why| {
            refused(format!("set the interface {} up", self.name), why, "run as root")
        })
    }
}

/// Returns the state of an interface in this thread's network namespace.
///
/// # Errors
/// Returns that there is no such interface.
pub fn find(name: &str) -> Result<NetworkInterface, SysError> {
    let remedy = "name one that 'ip link' lists";
    let attempt = || format!("find the interface {name}");
    if !is_name(name) {
        let why = io::Error::new(io::ErrorKind::InvalidInput, "not a name of an interface");
        return Err(refused(attempt(), why, remedy));
    }
    let request = Request::new(libc::RTM_GETLINK, 0, 0, 0, 0);
    let body = request.attribute(libc::IFLA_IFNAME, &terminated(name)).send();
    let body = body.map_err(|why| refused(attempt(), why, remedy))?;
    NetworkInterface::of(name, &body).ok_or_else(|| {
        let why = io::Error::new(io::ErrorKind::InvalidData, "a broken answer of the kernel");
        refused(attempt(), why, remedy)
    })
}

/// Returns the state of an interface as soon as it has a carrier: a device loses it while a driver restarts it.
///
/// # Errors
/// Returns that there is no such interface, it is set down, or it has no carrier within a time.
pub fn wait_for_carrier(name: &str, max: Duration) -> Result<NetworkInterface, SysError> {
    let start = Instant::now();
    loop {
        let found = find(name)?;
        // A link of the kernel has its carrier at once, or never.
        let may_come = found.is_up && found.kind.is_none();
        if found.has_carrier || !may_come || start.elapsed() > max {
            found.check_up()?;
            return Ok(found);
        }
        std::thread::sleep(CARRIER_INTERVAL);
    }
}

/// Returns whether the kernel accepts a name.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

/// Creates a veth pair in this thread's network namespace, moves its second interface to another one, and sets both up.
///
/// # Errors
/// Returns the error of the kernel.
pub fn create_veth(name: &str, peer: &str, other: &Namespace) -> Result<(), SysError> {
    let fd = other.as_fd().as_raw_fd().to_ne_bytes();
    let mut of_peer = netlink::info(0, 0, 0).to_vec();
    netlink::put(&mut of_peer, libc::IFLA_IFNAME, &terminated(peer));
    netlink::put(&mut of_peer, libc::IFLA_NET_NS_FD, &fd);
    let (mut data, mut info) = (Vec::new(), Vec::new());
    netlink::put(&mut data, VETH_INFO_PEER, &of_peer);
    netlink::put(&mut info, INFO_KIND, b"veth");
    netlink::put(&mut info, INFO_DATA, &data);
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    Request::new(libc::RTM_NEWLINK, flags, 0, 0, 0)
        .attribute(libc::IFLA_IFNAME, &terminated(name))
        .attribute(libc::IFLA_LINKINFO, &info)
        .send()
        .map_err(|why| {
            let remedy = "run as root, on a kernel with CONFIG_VETH";
            refused(format!("create the veth pair {name} and {peer}"), why, remedy)
        })?;
    find(name)?.set_up()?;
    other.run(|| find(peer)?.set_up())?
}

fn terminated(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found() {
        let found = find("lo").unwrap();
        assert_eq!((found.name.as_str(), found.index, found.ethernet), ("lo", 1, None));
        assert_eq!(found.medium(), "loopback, a link of the kernel");
    }

    #[test]
    fn an_interface_that_is_down_or_disconnected_has_one_clear_line() {
        let of = |is_up, has_carrier| NetworkInterface {
            name: "eth0".to_owned(),
            index: 2,
            ethernet: None,
            is_up,
            has_carrier,
            carrier_changes: 0,
            dropped: [0, 0],
            has_xdp: false,
            kind: None,
        };
        let line =
            |is_up, has_carrier| of(is_up, has_carrier).check_up().map_err(|why| why.to_string());
        assert!(line(false, false).unwrap_err().ends_with("; set it up: ip link set dev eth0 up"));
        assert!(line(true, false).unwrap_err().contains("eth0 has no carrier"));
        assert_eq!(line(true, true), Ok(()));
    }

    #[test]
    fn a_missing_interface_has_one_clear_line() {
        for name in ["nosuchif0", "", "a name", "longer-than-15-bytes", "a/b", ".."] {
            let line = find(name).unwrap_err().to_string();
            assert!(line.contains("ip link") && line.lines().count() == 1, "{line}");
        }
    }
}
