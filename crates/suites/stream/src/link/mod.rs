//! Links: interfaces of Linux through which packets are sent and received, in place of the software NIC.
//!
//! A generator or an application moves packets through a [`Link`]: an AF_XDP socket, a packet socket, or a TAP interface. Everything
//! else, the generator with its order, pacing, checks and round-trip times, and the NIC's thread, is the same as for the other
//! interfaces: [`LinkEngine`] is an engine of the NIC.

// A number that the kernel reports may have any value, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod af_packet;
mod af_xdp;
pub(crate) mod arp;
mod engine;
mod ethernet;
pub(crate) mod filter;
pub mod interface;
pub mod namespace;
mod netlink;
mod socket;
mod tap;

use std::io;

use lab::factor::LevelType;
use machine::SysError;

pub use engine::{LinkEngine, LinkStatus};
pub use ethernet::EthernetAddress;

use crate::nic::LinkMode;
use crate::wire::PacketRef;

/// The option that allows links: they take the packets of an interface.
pub const ALLOW_NETWORK: &str = "allow-network";

/// Size of the memory of a frame, in bytes: the longest frame, the kernel's headroom of 256 B, and padding.
pub(crate) const FRAME: usize = 2048;
/// Maximum number of packets that are sent, and received, at a time.
pub(crate) const BURST: usize = 64;

/// How packets pass an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum LinkKind {
    /// An AF_XDP socket: rings in memory that the program shares with the kernel, without copies if the driver supports it.
    AfXdp,
    /// A packet socket with rings in shared memory (TPACKET_V2).
    AfPacket,
    /// A TAP interface, which is created if it does not exist; the program is the other end of its wire.
    Tap,
}

/// Params of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkParams {
    /// Name of the interface.
    pub interface: String,
    /// How packets pass it.
    pub kind: LinkKind,
    /// Queue of an AF_XDP socket. If `None`, the interface must have only one.
    pub queue: Option<u32>,
}

/// An interface of Linux that sends and receives packets for one thread.
///
/// Addresses of frames are valid until the link is dropped, those of received frames until [`release`](Self::release).
pub trait Link: Send {
    /// Returns how packets pass the interface.
    fn mode(&self) -> LinkMode;

    /// Appends up to `max` received frames, in order. They belong to the caller, who may change them, until
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// Returns why the link cannot be used any more.
    fn receive(&mut self, max: usize, frames: &mut Vec<PacketRef>) -> Result<(), SysError>;

    /// Returns the received frames to the kernel.
    fn release(&mut self);

    /// Appends the addresses of the frames that can be sent next, at most `max`: aligned to a flit, with [`FRAME`] bytes.
    ///
    /// # Errors
    /// Returns why the link cannot be used any more.
    fn reserve(&mut self, max: usize, places: &mut Vec<*mut u8>) -> Result<(), SysError>;

    /// Sends the first of the reserved frames, which have these lengths. The others stay free.
    ///
    /// # Errors
    /// Returns why the link cannot be used any more.
    fn send(&mut self, lengths: &[u32]) -> Result<(), SysError>;

    /// Returns a reader of the kernel's counts of packets that it dropped at the socket.
    ///
    /// # Errors
    /// Returns why the socket cannot be duplicated.
    fn drops(&self) -> Result<Box<dyn Drops>, SysError>;
}

/// A reader of the packets that the kernel dropped before a link received them.
pub trait Drops: Send {
    /// Returns the number of dropped packets since the link was opened, by cause.
    fn read(&mut self) -> Vec<(&'static str, u64)>;
}

/// The drops of a link of which the kernel counts none.
struct NoDrops;

impl Drops for NoDrops {
    fn read(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Opens a link. Nothing of it remains when the process ends, even if it is killed: its XDP program is attached by a BPF link,
/// and a TAP interface that it created is removed.
///
/// # Errors
/// Returns in one line what is missing: the interface, its state, a right, or support by the kernel.
pub fn open(params: &LinkParams) -> Result<Box<dyn Link>, SysError> {
    if let LinkKind::Tap = params.kind {
        return Ok(Box::new(tap::Tap::open(&params.interface)?));
    }
    let interface = interface::find(&params.interface)?;
    interface.check_up()?;
    Ok(match params.kind {
        LinkKind::AfXdp => Box::new(af_xdp::AfXdp::open(&interface, params.queue)?),
        LinkKind::AfPacket | LinkKind::Tap => Box::new(af_packet::AfPacket::open(&interface)?),
    })
}

/// Creates an error.
fn refused(
    attempt: impl Into<String>,
    source: impl Into<io::Error>,
    remedy: impl Into<String>,
) -> SysError {
    SysError { attempt: attempt.into(), source: source.into(), remedy: remedy.into() }
}

/// Creates the error of a call that needs a right, support by the kernel, or an interface that is up.
fn not_permitted(attempt: String, source: impl Into<io::Error>, support: &str) -> SysError {
    let source = source.into();
    let remedy = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root".into(),
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
            "set the interface up: ip link set dev NAME up".into()
        }
        _ => support.to_owned(),
    };
    SysError { attempt, source, remedy }
}

/// Creates the error of an index or address from the kernel that is out of range.
fn inconsistent(what: &str) -> SysError {
    let source =
        io::Error::new(io::ErrorKind::InvalidData, "an index from the kernel is out of range");
    refused(what, source, "report this, with the version of the kernel and the driver")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_remedy() {
        let line = |errno| {
            let why = io::Error::from_raw_os_error(errno);
            not_permitted("open a socket".into(), why, "use another kernel").to_string()
        };
        assert!(line(libc::EPERM).ends_with("; run as root"));
        assert!(line(libc::ENETDOWN).contains("ip link set dev"));
        assert!(line(libc::EAFNOSUPPORT).ends_with("; use another kernel"));
    }
}
