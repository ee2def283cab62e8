//! bpf(2): the few commands that a program on a tracepoint takes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use lab::sample::Failure;

use super::instructions::Instruction;

/// The kernel gives the clock and the process to programs of a licence that goes with its own.
const LICENCE: &CStr = c"Dual MIT/GPL";
/// Bytes for what the kernel says of a program that it refuses.
const LOG: usize = 64 << 10;

/// Commands, types and flags of `include/uapi/linux/bpf.h`.
const MAP_CREATE: i64 = 0;
const PROG_LOAD: i64 = 5;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const F_MMAPABLE: u32 = 1 << 10;

/// `union bpf_attr` as far as making a map goes.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// `union bpf_attr` as far as loading a program goes.
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

/// `union bpf_attr` as far as attaching to a raw tracepoint goes.
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    _rest: u32,
}

/// Whether the kernel knows the call at all.
pub(super) fn known() -> Result<(), Failure> {
    /// No command has this number, so that none is carried out.
    const NO_COMMAND: i64 = 0xffff;
    // SAFETY: no attributes, of no length.
    unsafe { libc::syscall(libc::SYS_bpf, NO_COMMAND, std::ptr::null::<u8>(), 0) };
    let why = io::Error::last_os_error();
    if why.raw_os_error() == Some(libc::ENOSYS) { Err(refused("bpf(2)", &why)) } else { Ok(()) }
}

/// The failure that a refusal amounts to.
pub(super) fn refused(what: &str, why: &io::Error) -> Failure {
    let text = format!("{what}: {why}");
    match why.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Failure::unavailable(
            text,
            "run as root without kernel lockdown; before kernel 5.11 also: ulimit -l unlimited",
        ),
        Some(libc::ENOSYS | libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP) => {
            Failure::unavailable(
                text,
                "use a kernel from 5.8 with CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS",
            )
        }
        _ => Failure::failed(text),
    }
}

fn bpf<T>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes live through the call and are as long as told; so does what they point to.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes an array of one value, which can be mapped.
pub(super) fn create_map(value_size: usize) -> Result<OwnedFd, Failure> {
    let attributes = MapCreate {
        kind: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: value_size as u32,
        max_entries: 1,
        flags: F_MMAPABLE,
    };
    bpf(MAP_CREATE, &attributes).map_err(|why| refused("make a BPF map", &why))
}

/// Loads a program for raw tracepoints.
pub(super) fn load(program: &[Instruction]) -> Result<OwnedFd, Failure> {
    let mut attributes = ProgLoad {
        kind: PROG_TYPE_RAW_TRACEPOINT,
        instructions: program.len() as u32,
        first: program.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    let why = match bpf(PROG_LOAD, &attributes) {
        Ok(loaded) => return Ok(loaded),
        Err(why) => why,
    };
    // Once more, for what the kernel has against it.
    let mut log = vec![0u8; LOG];
    attributes.log_level = 1;
    attributes.log_size = LOG as u32;
    attributes.log = log.as_mut_ptr() as u64;
    let _ = bpf(PROG_LOAD, &attributes);
    let text = String::from_utf8_lossy(&log);
    let said = text.trim_end_matches('\0').lines().rfind(|line| !line.starts_with("processed"));
    Err(refused(&format!("load a BPF program ({})", said.unwrap_or("no log")), &why))
}

/// Attaches a program to a raw tracepoint, until what is given back is closed.
pub(super) fn attach(tracepoint: &CStr, program: &OwnedFd) -> Result<OwnedFd, Failure> {
    let attributes = RawTracepointOpen {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        _rest: 0,
    };
    let what = || format!("attach BPF to {}", tracepoint.to_string_lossy());
    bpf(RAW_TRACEPOINT_OPEN, &attributes).map_err(|why| refused(&what(), &why))
}
