//! The XDP program: it redirects the packets of one queue to a socket, and passes all others to the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use machine::SysError;
use machine::bpf::{self, Instruction, MapType, ProgramType, XdpMode};

use super::super::{not_permitted, refused};

/// The result by which a program passes a packet to the kernel.
const XDP_PASS: i32 = 2;
/// Number of the helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

const SUPPORT: &str = "use a kernel from 5.9 with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL, or --link \
                       af-packet";

/// Returns `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS)`.
fn program(map: i32) -> [Instruction; 6] {
    [
        // r2 = context->rx_queue_index, a word.
        Instruction::new(0x61, 2, 1, RX_QUEUE_INDEX, 0),
        // r1 = map, in two instructions; the source register 1 means that the value is a descriptor.
        Instruction::new(0x18, 1, 1, 0, map),
        Instruction::new(0, 0, 0, 0, 0),
        // r3 = XDP_PASS, the result if the map has no socket for the queue.
        Instruction::new(0xb7, 3, 0, 0, XDP_PASS),
        // call bpf_redirect_map; exit.
        Instruction::new(0x85, 0, 0, 0, REDIRECT_MAP),
        Instruction::new(0x95, 0, 0, 0, 0),
    ]
}

/// An attached program, which is detached when this value is dropped or the process ends.
pub(super) struct Attached {
    _link: OwnedFd,
    _map: OwnedFd,
    /// Whether the driver runs it.
    pub(super) is_native: bool,
}

/// Attaches a program that redirects packets of a queue of an interface to a socket.
///
/// # Errors
/// Returns what is not permitted or not supported, or that the interface has another program.
pub(super) fn attach(
    name: &str,
    interface: u32,
    queue: u32,
    socket: impl AsFd,
) -> Result<Attached, SysError> {
    let failed = |what: &str, why| not_permitted(format!("{what} for {name}"), why, SUPPORT);
    let map = bpf::create_map(MapType::XskMap, 4, queue.saturating_add(1), 0);
    let map = map.map_err(|why| failed("create a BPF map", why))?;
    bpf::set_file(&map, queue, socket.as_fd())
        .map_err(|why| failed("enter the socket into a BPF map", why))?;
    let program = bpf::load(ProgramType::Xdp, &program(map.as_raw_fd()))
        .map_err(|why| failed(&format!("load an XDP program ({})", why.log), why.source))?;
    let attach = |mode| bpf::attach_to_interface(interface, &program, mode);
    let attached = match attach(XdpMode::Native) {
        Ok(link) => Ok((link, true)),
        Err(why) if is_final(&why) => Err(why),
        Err(_) => attach(XdpMode::Generic).map(|link| (link, false)),
    };
    let (link, is_native) = attached.map_err(|why| match why.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => refused(
            format!("attach an XDP program to {name}"),
            io::Error::other("it has another one"),
            format!("detach that: ip link set dev {name} xdp off"),
        ),
        _ => failed("attach an XDP program", why),
    })?;
    Ok(Attached { _link: link, _map: map, is_native })
}

/// Returns whether an error of the native mode is also one of the generic mode.
fn is_final(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EPERM | libc::EBUSY | libc::EEXIST | libc::ENODEV))
}
