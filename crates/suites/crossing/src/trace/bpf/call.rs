//! Commands of bpf(2) for a program on a raw tracepoint.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use lab::sample::Failure;

use super::instructions::Instruction;

/// Licence of the program: the kernel provides the helpers only to GPL-compatible programs.
const LICENCE: &CStr = c"Dual MIT/GPL";
/// Size of the verifier's log, in bytes.
const LOG_SIZE: usize = 64 << 10;

/// Commands, types and flags of `include/uapi/linux/bpf.h`.
const MAP_CREATE: i64 = 0;
const PROG_LOAD: i64 = 5;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const F_MMAPABLE: u32 = 1 << 10;

/// `union bpf_attr` for the creation of a map.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
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

/// `union bpf_attr` for attaching to a raw tracepoint.
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    _padding: u32,
}

/// Checks that the kernel has bpf(2).
pub(super) fn check_exists() -> Result<(), Failure> {
    /// An unused command number, so that the call has no effect.
    const NO_COMMAND: i64 = 0xffff;
    // SAFETY: the attributes have length 0.
    unsafe { libc::syscall(libc::SYS_bpf, NO_COMMAND, std::ptr::null::<u8>(), 0) };
    let why = io::Error::last_os_error();
    if why.raw_os_error() == Some(libc::ENOSYS) { Err(to_failure("bpf(2)", &why)) } else { Ok(()) }
}

/// Converts an error of the kernel to a failure.
pub(super) fn to_failure(what: &str, why: &io::Error) -> Failure {
    let text = format!("{what}: {why}");
    match why.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Failure::unavailable(
            text,
            "run as root, without kernel lockdown; before kernel 5.11 also run 'ulimit -l unlimited'",
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
    // SAFETY: the attributes, with their stated length, and all they refer to outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Creates an array map with one value, which can be mapped into memory.
pub(super) fn create_map(value_size: usize) -> Result<OwnedFd, Failure> {
    let attributes = MapCreate {
        kind: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: value_size as u32,
        max_entries: 1,
        flags: F_MMAPABLE,
    };
    bpf(MAP_CREATE, &attributes).map_err(|why| to_failure("create a BPF map", &why))
}

/// Loads a raw-tracepoint program.
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
    // Load again with the verifier's log.
    let mut log = vec![0u8; LOG_SIZE];
    attributes.log_level = 1;
    attributes.log_size = LOG_SIZE as u32;
    attributes.log = log.as_mut_ptr() as u64;
    let _ = bpf(PROG_LOAD, &attributes);
    let text = String::from_utf8_lossy(&log);
    let line = text.trim_end_matches('\0').lines().rfind(|line| !line.starts_with("processed"));
    Err(to_failure(&format!("load a BPF program ({})", line.unwrap_or("no log")), &why))
}

/// Attaches a program to a raw tracepoint, until the returned link is closed.
pub(super) fn attach(tracepoint: &CStr, program: &OwnedFd) -> Result<OwnedFd, Failure> {
    let attributes = RawTracepointOpen {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        _padding: 0,
    };
    let what = || format!("attach BPF to {}", tracepoint.to_string_lossy());
    bpf(RAW_TRACEPOINT_OPEN, &attributes).map_err(|why| to_failure(&what(), &why))
}
