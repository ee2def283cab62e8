//! Programs and maps of BPF: commands of bpf(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Licence of programs: the kernel provides some helpers only to GPL-compatible ones.
const LICENCE: &CStr = c"Dual MIT/GPL";
/// Size of the verifier's log, in bytes.
const LOG_SIZE: usize = 64 << 10;

/// Commands of `include/uapi/linux/bpf.h`.
const MAP_CREATE: i64 = 0;
const MAP_UPDATE_ELEM: i64 = 2;
const PROG_LOAD: i64 = 5;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const LINK_CREATE: i64 = 28;
/// Attachment of an XDP program (`BPF_XDP`).
const ATTACH_XDP: u32 = 37;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register, and 16 times the source register.
    pub registers: u8,
    /// Offset of a jump or an access.
    pub offset: i16,
    /// Immediate operand.
    pub immediate: i32,
}

impl Instruction {
    /// Creates an instruction with a destination and a source register.
    pub const fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        Self { code, registers: from << 4 | to, offset, immediate }
    }
}

/// A type of map, with keys of 4 bytes (`enum bpf_map_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapType {
    /// An array.
    Array = 2,
    /// AF_XDP sockets by queue.
    XskMap = 17,
}

/// A type of program (`enum bpf_prog_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgramType {
    /// For an interface's received packets.
    Xdp = 6,
    /// For a raw tracepoint.
    RawTracepoint = 17,
}

/// Flag of a map: its values can be mapped into memory (`BPF_F_MMAPABLE`).
pub const MMAPABLE: u32 = 1 << 10;

/// Where an XDP program runs (`XDP_FLAGS_*` of `if_link.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum XdpMode {
    /// In the network stack.
    Generic = 1 << 1,
    /// In the driver.
    Native = 1 << 2,
}

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
#[error("{source} ({log})")]
pub struct LoadError {
    /// The kernel's error.
    pub source: io::Error,
    /// The last line of the verifier's log, or `no log`.
    pub log: String,
}

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

/// `union bpf_attr` for attaching to a raw tracepoint.
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    _padding: u32,
}

/// `union bpf_attr` for attaching by a link.
#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// Checks that the kernel has bpf(2).
///
/// # Errors
/// Returns `ENOSYS` if it does not.
pub fn check_exists() -> io::Result<()> {
    /// An unused command number, so that the call has no effect.
    const NO_COMMAND: i64 = 0xffff;
    match bpf(NO_COMMAND, &()) {
        Err(why) if why.raw_os_error() == Some(libc::ENOSYS) => Err(why),
        _ => Ok(()),
    }
}

/// Creates a map of `entries` values.
///
/// # Errors
/// Returns the error of bpf(2).
pub fn create_map(kind: MapType, value_size: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let kind = kind as u32;
    create(MAP_CREATE, &MapCreate { kind, key_size: 4, value_size, max_entries: entries, flags })
}

/// Sets the value of a map with values of 4 bytes to an open file.
///
/// # Errors
/// Returns the error of bpf(2).
pub fn set_file(map: &OwnedFd, key: u32, file: BorrowedFd<'_>) -> io::Result<()> {
    let value = file.as_raw_fd();
    let element = MapUpdate {
        map: map.as_raw_fd() as u32,
        _padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &element).map(|_| ())
}

/// Loads a program.
///
/// # Errors
/// Returns the error of bpf(2), with the verifier's last line.
pub fn load(kind: ProgramType, program: &[Instruction]) -> Result<OwnedFd, LoadError> {
    let mut attributes = ProgLoad {
        kind: kind as u32,
        instructions: program.len() as u32,
        first: program.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    let source = match create(PROG_LOAD, &attributes) {
        Ok(loaded) => return Ok(loaded),
        Err(why) => why,
    };
    // Load again with the verifier's log.
    let mut log = vec![0u8; LOG_SIZE];
    attributes.log_level = 1;
    attributes.log_size = LOG_SIZE as u32;
    attributes.log = log.as_mut_ptr() as u64;
    drop(create(PROG_LOAD, &attributes));
    let text = String::from_utf8_lossy(&log);
    let line = text.trim_end_matches('\0').lines().rfind(|line| !line.starts_with("processed"));
    Err(LoadError { source, log: line.unwrap_or("no log").to_owned() })
}

/// Attaches a program to a raw tracepoint, until the returned link is closed.
///
/// # Errors
/// Returns the error of bpf(2).
pub fn attach_to_tracepoint(name: &CStr, program: &OwnedFd) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let name = name.as_ptr() as u64;
    create(RAW_TRACEPOINT_OPEN, &RawTracepointOpen { name, program, _padding: 0 })
}

/// Attaches an XDP program to an interface, given by its index, until the returned link is closed.
///
/// # Errors
/// Returns the error of bpf(2).
pub fn attach_to_interface(
    interface: u32,
    program: &OwnedFd,
    mode: XdpMode,
) -> io::Result<OwnedFd> {
    let (program, flags) = (program.as_raw_fd() as u32, mode as u32);
    create(LINK_CREATE, &LinkCreate { program, target: interface, attach_type: ATTACH_XDP, flags })
}

/// Executes a command that creates a file descriptor.
fn create<T>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: i64, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes, with their stated length, and all they refer to outlive the call; the kernel writes only to
    // the log.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// `exit`, and `r0 = 0`.
    const EXIT: Instruction = Instruction::new(0x95, 0, 0, 0, 0);
    const ZERO: Instruction = Instruction::new(0xb7, 0, 0, 0, 0);

    #[test]
    fn the_layout_of_an_instruction_is_the_kernels() {
        assert_eq!(size_of::<Instruction>(), 8);
        let one = Instruction::new(0x61, 2, 1, 16, -1);
        assert_eq!((one.registers, one.offset, one.immediate), (0x12, 16, -1));
    }

    /// Notes that this machine does not permit BPF.
    fn not_permitted(why: &io::Error) -> bool {
        let is = matches!(why.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS));
        if is {
            crate::untested::note("machine: BPF", why);
        }
        is
    }

    #[test]
    fn a_program_is_loaded_and_a_refused_one_has_the_verifiers_reason() {
        match load(ProgramType::Xdp, &[ZERO, EXIT]) {
            Ok(_) => {}
            Err(why) if not_permitted(&why.source) => return,
            Err(why) => panic!("{why}"),
        }
        // Does not set the result.
        let why = load(ProgramType::Xdp, &[EXIT]).unwrap_err();
        assert!(why.to_string().contains("R0"), "{why}");
    }

    #[test]
    fn a_map_takes_only_files_of_its_type() {
        let map = match create_map(MapType::XskMap, 4, 1, 0) {
            Ok(map) => map,
            Err(why) if not_permitted(&why) => return,
            Err(why) => panic!("{why}"),
        };
        assert!(set_file(&map, 0, map.as_fd()).is_err(), "a map is no socket");
    }
}
