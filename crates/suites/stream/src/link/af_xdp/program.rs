//! The XDP program: it redirects the packets of one queue to a socket, and passes all others to the kernel.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use machine::SysError;

use super::super::{not_permitted, refused};

/// Licence of the program.
const LICENCE: &CStr = c"Dual MIT/GPL";

/// Commands, types and flags of `include/uapi/linux/bpf.h` and `if_link.h`.
const MAP_CREATE: i64 = 0;
const MAP_UPDATE_ELEM: i64 = 2;
const PROG_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const GENERIC_MODE: u32 = 1 << 1;
const NATIVE_MODE: u32 = 1 << 2;
/// The result by which a program passes a packet to the kernel.
const XDP_PASS: i32 = 2;
/// Number of the helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

const SUPPORT: &str = "use a kernel from 5.9 with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL, or --link \
                       af-packet";

/// `union bpf_attr` for the creation of a map.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// `union bpf_attr` for an element of a map.
#[repr(C)]
struct MapUpdate {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `union bpf_attr` for loading a program.
#[repr(C)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    first: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// `union bpf_attr` for attaching a program by a link.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// `struct bpf_insn`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The destination register, and 16 times the source register.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers, offset, immediate }
}

/// Returns `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS)`.
fn program(map: i32) -> [Instruction; 6] {
    [
        // r2 = context->rx_queue_index, a word.
        instruction(0x61, 0x12, RX_QUEUE_INDEX, 0),
        // r1 = map, in two instructions; the source register 1 means that the value is a descriptor.
        instruction(0x18, 0x11, 0, map),
        instruction(0, 0, 0, 0),
        // r3 = XDP_PASS, the result if the map has no socket for the queue.
        instruction(0xb7, 0x03, 0, XDP_PASS),
        // call bpf_redirect_map; exit.
        instruction(0x85, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0),
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
    let map = MapCreate {
        kind: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: queue.saturating_add(1),
        flags: 0,
    };
    let map = create(MAP_CREATE, &map).map_err(|why| failed("create a BPF map", why))?;
    let value = socket.as_fd().as_raw_fd();
    let element = MapUpdate {
        map: map.as_raw_fd() as u32,
        _padding: 0,
        key: (&raw const queue) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &element).map_err(|why| failed("enter the socket into a BPF map", why))?;
    let instructions = program(map.as_raw_fd());
    let load = ProgLoad {
        kind: PROG_TYPE_XDP,
        instructions: instructions.len() as u32,
        first: instructions.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    let program = create(PROG_LOAD, &load).map_err(|why| failed("load an XDP program", why))?;
    let attach = |flags| {
        let program = program.as_raw_fd() as u32;
        create(LINK_CREATE, &LinkCreate { program, interface, attach_type: ATTACH_XDP, flags })
    };
    let attached = match attach(NATIVE_MODE) {
        Ok(link) => Ok((link, true)),
        Err(why) if is_final(&why) => Err(why),
        Err(_) => attach(GENERIC_MODE).map(|link| (link, false)),
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

fn create<T>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: i64, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes, with their stated length, and all they refer to outlive the call. The kernel does not write to
    // them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
