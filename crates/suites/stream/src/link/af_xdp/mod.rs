//! AF_XDP: a socket whose frames are in memory that the program shares with the kernel.

mod program;
mod ring;

#[cfg(test)]
mod ring_model;
#[cfg(test)]
mod ring_tests;

/// Parts of the rings that the loom tests replace.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};

    pub(super) use machine::mapping::Mapping;
}

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use machine::SysError;
use machine::mapping::Mapping;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use super::interface::NetworkInterface;
use super::socket::{self, ioctl};
use super::{Drops, FRAME, Link, LinkMode, inconsistent, not_permitted, refused};
use crate::wire::PacketRef;
use program::Attached;
use ring::{Descriptor, Ring};

/// Frames for receiving, and for sending: entries of each ring.
const RX: u32 = 4096;
const TX: u32 = 2048;
/// Bytes of all frames. Frames for receiving are first.
const MEMORY: usize = (RX + TX) as usize * FRAME;

/// Time in which the kernel releases a queue after its socket was closed.
const RELEASE: Duration = Duration::from_secs(2);

/// Maximum number of system calls by which one burst is sent: the kernel takes 32 packets at a time.
const MAX_WAKEUPS: u32 = 8;

const SUPPORT: &str = "use a kernel from 5.9 with CONFIG_XDP_SOCKETS, or --link af-packet";

/// An AF_XDP socket that receives from one queue of an interface.
pub(super) struct AfXdp {
    name: String,
    // Detached before the socket is closed.
    program: Attached,
    zero_copy: bool,
    fill: Ring<u64>,
    completion: Ring<u64>,
    rx: Ring<Descriptor>,
    tx: Ring<Descriptor>,
    socket: OwnedFd,
    /// Frames of `receive`.
    taken: Vec<u64>,
    /// Frames that can be sent.
    free: Vec<u64>,
    memory: Mapping,
    /// Sets the interface promiscuous as long as it is open.
    _promiscuous: OwnedFd,
}

// SAFETY: nothing else has pointers into the mappings.
unsafe impl Send for AfXdp {}

impl AfXdp {
    /// Opens a socket and attaches a program that redirects packets to it.
    ///
    /// # Errors
    /// Returns what is not permitted, not supported, or in use.
    pub(super) fn open(interface: &NetworkInterface, queue: Option<u32>) -> Result<Self, SysError> {
        let name = interface.name.as_str();
        let failed = |why: io::Error| {
            not_permitted(format!("open an AF_XDP socket at {name}"), why, SUPPORT)
        };
        let promiscuous = socket::packet().map_err(failed)?;
        let queue = queue.map_or_else(|| only_queue(&promiscuous, name), Ok)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None);
        let socket = socket.map_err(|why| failed(why.into()))?;
        let memory = Mapping::anonymous(MEMORY)?;
        let [fill, completion, rx, tx] =
            set_rings(&socket, &memory).map_err(|why| failed(why.into()))?;
        let mut fill = Ring::map(&socket, XDP_UMEM_PGOFF_FILL_RING, &fill, RX)?;
        let completion = Ring::map(&socket, XDP_UMEM_PGOFF_COMPLETION_RING, &completion, TX)?;
        let rx = Ring::map(&socket, XDP_PGOFF_RX_RING, &rx, RX)?;
        let tx = Ring::map(&socket, XDP_PGOFF_TX_RING, &tx, TX)?;
        (0..RX).for_each(|frame| fill.push(address(frame)));
        fill.publish();
        bind_when_free(&socket, interface.index, queue).map_err(|why| match why {
            Errno::BUSY => refused(
                format!("bind an AF_XDP socket to queue {queue} of {name}"),
                io::Error::other("another socket is bound to it"),
                "stop the other program, or choose another --queue",
            ),
            Errno::INVAL => {
                let why = io::Error::other("there is no such queue, or its buffers are too small");
                refused(format!("bind an AF_XDP socket to queue {queue} of {name}"), why, SUPPORT)
            }
            why => failed(why.into()),
        })?;
        let options = xdp_options(&socket).map_err(|why| failed(why.into()))?;
        let program = program::attach(name, interface.index, queue, &socket)?;
        socket::set_promiscuous(&promiscuous, interface.index).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            program,
            zero_copy: options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY),
            fill,
            completion,
            rx,
            tx,
            socket,
            taken: Vec::new(),
            free: (RX..RX.saturating_add(TX)).map(address).collect(),
            memory,
            _promiscuous: promiscuous,
        })
    }

    /// Takes back the frames that the kernel has sent.
    fn complete(&mut self) -> Result<(), SysError> {
        let Self { completion, free, .. } = self;
        completion.consume(TX, |address| {
            let is_ours = (self::address(RX)..MEMORY as u64).contains(&address);
            if !is_ours || free.len() >= TX as usize {
                return Err(inconsistent("take back sent frames of AF_XDP"));
            }
            free.push(start_of(address));
            Ok(())
        })
    }

    /// Has the kernel send what is in the ring.
    fn wake(&mut self) -> Result<(), SysError> {
        let mut wakeups = 0;
        while self.tx.pending()? > 0 && self.tx.needs_wakeup() && wakeups < MAX_WAKEUPS {
            wakeups = u32::saturating_add(wakeups, 1);
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => {}
                Err(why) if socket::is_temporary(why) => {}
                Err(why) => {
                    let attempt = format!("send through {}", self.name);
                    return Err(not_permitted(attempt, why, SUPPORT));
                }
            }
        }
        Ok(())
    }
}

impl Link for AfXdp {
    fn mode(&self) -> LinkMode {
        LinkMode::AfXdp { zero_copy: self.zero_copy, native: self.program.is_native }
    }

    fn receive(&mut self, max: usize, frames: &mut Vec<PacketRef>) -> Result<(), SysError> {
        if self.fill.needs_wakeup() {
            // Has a driver that ran out of frames continue. It delivers nothing by this call.
            let _ = recv(&self.socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
        }
        let Self { rx, taken, memory, .. } = self;
        rx.consume(max as u32, |Descriptor { address, length, .. }| {
            let start = start_of(address);
            let end = address.saturating_add(length.into());
            if start >= self::address(RX) || end > start.saturating_add(FRAME as u64) {
                return Err(inconsistent("receive frames of AF_XDP"));
            }
            taken.push(start);
            let start = memory.as_ptr().wrapping_add(address as usize);
            frames.push(PacketRef { start, bytes: length });
            Ok(())
        })
    }

    fn release(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        // The ring has as many entries as there are frames.
        self.taken.drain(..).for_each(|frame| self.fill.push(frame));
        self.fill.publish();
    }

    fn reserve(&mut self, max: usize, places: &mut Vec<*mut u8>) -> Result<(), SysError> {
        self.complete()?;
        self.wake()?;
        // The ring has as many entries as there are frames.
        let frames = self.free.iter().rev().take(max);
        places.extend(frames.map(|frame| self.memory.as_mut_ptr().wrapping_add(*frame as usize)));
        Ok(())
    }

    fn send(&mut self, lengths: &[u32]) -> Result<(), SysError> {
        for length in lengths {
            let Some(address) = self.free.pop() else { break };
            self.tx.push(Descriptor { address, length: *length, options: 0 });
        }
        self.tx.publish();
        self.wake()
    }

    fn drops(&self) -> Result<Box<dyn Drops>, SysError> {
        let socket = self.socket.try_clone();
        let socket =
            socket.map_err(|why| refused("duplicate a socket", why, "close some files"))?;
        Ok(Box::new(XdpDrops(socket)))
    }
}

/// The kernel's counts at the socket.
struct XdpDrops(OwnedFd);

impl Drops for XdpDrops {
    fn read(&mut self) -> Vec<(&'static str, u64)> {
        let Ok(counts) = xdp_statistics(&self.0) else { return Vec::new() };
        vec![
            ("receive ring full", counts.rx_ring_full.unwrap_or(0)),
            ("no free frame, or too long", counts.rx_dropped),
        ]
    }
}

/// Returns the address of a frame.
fn address(frame: u32) -> u64 {
    u64::from(frame).saturating_mul(FRAME as u64)
}

/// Returns the address of the frame in which an address is.
fn start_of(address: u64) -> u64 {
    address & (FRAME as u64).wrapping_neg()
}

/// Returns queue 0 if the interface has no other.
fn only_queue(socket: impl AsFd, name: &str) -> Result<u32, SysError> {
    match ioctl::rx_queues(socket, name) {
        Some(queues) if queues > 1 => Err(refused(
            format!("receive from {name}"),
            io::Error::other(format!(
                "it has {queues} receive queues, and an AF_XDP socket has one"
            )),
            format!(
                "use one (ethtool -L {name} combined 1), or steer packets to one and name it with --queue"
            ),
        )),
        _ => Ok(0),
    }
}

/// Registers the memory and creates the rings. Returns the offsets of the fill, completion, receive and transmit ring.
fn set_rings(
    socket: &OwnedFd,
    memory: &Mapping,
) -> rustix::io::Result<[rustix::net::xdp::XdpRingOffset; 4]> {
    let registration = XdpUmemReg {
        addr: memory.as_ptr() as u64,
        len: MEMORY as u64,
        chunk_size: FRAME as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    set_xdp_umem_reg(socket, registration)?;
    set_xdp_umem_fill_ring_size(socket, RX)?;
    set_xdp_umem_completion_ring_size(socket, TX)?;
    set_xdp_rx_ring_size(socket, RX)?;
    set_xdp_tx_ring_size(socket, TX)?;
    let offsets = xdp_mmap_offsets(socket)?;
    Ok([offsets.fr, offsets.cr, offsets.rx, offsets.tx])
}

/// Binds a socket to a queue, without copies if the driver supports it. The kernel releases a queue some time after its last
/// socket was closed.
fn bind_when_free(socket: &OwnedFd, interface: u32, queue: u32) -> rustix::io::Result<()> {
    let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    let start = Instant::now();
    loop {
        match bind(socket, &SocketAddrXdp::new(flags, interface, queue)) {
            Err(Errno::BUSY) if start.elapsed() < RELEASE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            bound => return bound,
        }
    }
}
