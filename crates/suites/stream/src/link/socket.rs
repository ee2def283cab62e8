//! Packet sockets and options of sockets for which rustix has no functions.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

/// A value of a socket option: plain numbers without padding.
pub(super) trait OptionValue: Copy {
    /// A value of zeros.
    const ZERO: Self;
}

impl OptionValue for i32 {
    const ZERO: Self = 0;
}

impl OptionValue for libc::tpacket_req {
    const ZERO: Self = Self { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
}

impl OptionValue for libc::packet_mreq {
    const ZERO: Self = Self { mr_ifindex: 0, mr_type: 0, mr_alen: 0, mr_address: [0; 8] };
}

impl OptionValue for libc::tpacket_stats {
    const ZERO: Self = Self { tp_packets: 0, tp_drops: 0 };
}

/// Creates a packet socket that receives nothing until it is bound.
pub(super) fn packet() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None::<Protocol>)?)
}

/// Binds a packet socket to an interface, from which it receives all packets.
pub(super) fn bind_packet(socket: impl AsFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address, with its stated length, outlives the call.
    check(unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), length) })
}

/// Sets an interface promiscuous until the socket is closed: the Ethernet addresses of packets contain marks.
pub(super) fn set_promiscuous(socket: impl AsFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        ..libc::packet_mreq::ZERO
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Sets an option of a packet socket.
pub(super) fn set<T: OptionValue>(socket: impl AsFd, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the value, with its stated length, outlives the call.
    check(unsafe {
        libc::setsockopt(fd, libc::SOL_PACKET, name, std::ptr::from_ref(value).cast(), length)
    })
}

/// Returns an option of a packet socket.
pub(super) fn get<T: OptionValue>(socket: impl AsFd, name: i32) -> io::Result<T> {
    let (mut value, mut length) = (T::ZERO, size_of::<T>() as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to the value, for which any bits are valid.
    check(unsafe {
        libc::getsockopt(fd, libc::SOL_PACKET, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// Returns whether an error of sending is temporary: the packets stay in the ring, or the interface has dropped one.
pub(super) fn is_temporary(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    [Errno::AGAIN, Errno::BUSY, Errno::NOBUFS, Errno::INTR, Errno::NOMEM].contains(&errno)
}

/// The ioctl commands and structures that find the number of an interface's queues and open a TAP interface.
pub(super) mod ioctl {
    use super::{AsFd, AsRawFd, check, io};

    /// `ETHTOOL_GCHANNELS` of `include/uapi/linux/ethtool.h`.
    const GCHANNELS: u32 = 0x3c;

    /// `struct ifreq`.
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        value: u64,
        _rest: [u64; 2],
    }

    /// `struct ethtool_channels`: the command, four maxima, and the numbers of channels for receiving, sending, other uses and
    /// both.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        maxima: [u32; 4],
        rx: u32,
        tx: u32,
        other: u32,
        combined: u32,
    }

    impl Request {
        /// Creates a request about an interface. Longer names are cut off.
        fn new(name: &str, value: u64) -> Self {
            let mut bytes = [0; libc::IFNAMSIZ];
            let ends = libc::IFNAMSIZ.saturating_sub(1);
            bytes.iter_mut().take(ends).zip(name.bytes()).for_each(|(to, from)| *to = from);
            Self { name: bytes, value, _rest: [0; 2] }
        }
    }

    /// Returns the number of queues from which an interface receives; `None` if its driver does not report it.
    pub(in super::super) fn rx_queues(socket: impl AsFd, name: &str) -> Option<u32> {
        let mut channels = Channels { command: GCHANNELS, ..Channels::default() };
        let mut request = Request::new(name, (&raw mut channels) as u64);
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the request and the channels outlive the call, and have the size that the kernel expects.
        let done = unsafe { libc::ioctl(fd, libc::SIOCETHTOOL, &raw mut request) };
        check(done).ok()?;
        Some(channels.rx.saturating_add(channels.combined))
    }

    /// Makes an open `/dev/net/tun` the other end of a TAP interface, which is created if it does not exist.
    pub(in super::super) fn set_tap(device: impl AsFd, name: &str) -> io::Result<()> {
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
        let mut request = Request::new(name, flags.into());
        // SAFETY: the request outlives the call, and has the size that the kernel expects.
        check(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
    }

    const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
