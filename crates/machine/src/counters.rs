//! Hardware and kernel counters, through `perf_event_open(2)`.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use crate::SysError;

/// An event that the CPU or the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    kind: u32,
    config: u64,
}

impl Event {
    /// Core cycles.
    pub const CYCLES: Self = Self { kind: HARDWARE, config: 0 };
    /// Retired instructions.
    pub const INSTRUCTIONS: Self = Self { kind: HARDWARE, config: 1 };
    /// Nanoseconds on a CPU, counted by the kernel.
    pub const TASK_CLOCK: Self = Self { kind: SOFTWARE, config: 1 };
    /// Page faults, counted by the kernel.
    pub const PAGE_FAULTS: Self = Self { kind: SOFTWARE, config: 2 };

    /// A vendor's event by its number and unit mask. Bits 0 to 7 of the number go to bits 0 to 7 of the
    /// register, the mask to bits 8 to 15, and bits 8 to 11 of the number (AMD only) to bits 32 to 35.
    pub fn raw(number: u16, mask: u8) -> Self {
        let (low, high) = (u64::from(number & 0xFF), u64::from(number >> 8 & 0xF));
        Self { kind: RAW, config: low | u64::from(mask) << 8 | high << 32 }
    }
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const RAW: u32 = 4;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::CYCLES => f.write_str("cycles"),
            Self::INSTRUCTIONS => f.write_str("instructions"),
            Self::TASK_CLOCK => f.write_str("the task clock"),
            Self::PAGE_FAULTS => f.write_str("page faults"),
            Self { kind: RAW, config } => write!(f, "CPU event {config:#x}"),
            Self { kind, config } => write!(f, "event {config:#x} of kind {kind}"),
        }
    }
}

/// The modes of this thread in which a counter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only in user mode; needs the least privilege.
    User,
    /// Only in the kernel.
    Kernel,
    /// In both.
    Both,
}

/// The first version of `struct perf_event_attr`, 64 bytes.
#[repr(C)]
#[derive(Debug, Default, PartialEq)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
}

/// `read_format`: time enabled, time running, and the values of the whole group.
const TIMES_AND_GROUP: u64 = 1 | 1 << 1 | 1 << 3;
/// `exclude_user`, `exclude_kernel`, `exclude_hv` in the attributes' flags.
const NO_USER: u64 = 1 << 4;
const NO_KERNEL: u64 = 1 << 5;
const NO_HYPERVISOR: u64 = 1 << 6;

impl Attributes {
    fn new(event: Event, mode: Mode) -> Self {
        let mode = match mode {
            Mode::User => NO_KERNEL,
            Mode::Kernel => NO_USER,
            Mode::Both => 0,
        };
        Self {
            kind: event.kind,
            size: size_of::<Self>() as u32,
            config: event.config,
            read_format: TIMES_AND_GROUP,
            flags: mode | NO_HYPERVISOR,
            ..Self::default()
        }
    }
}

/// Counters of this thread that run together from opening to dropping.
#[derive(Debug)]
pub struct Counters {
    /// The group leader comes first: it is read for all.
    all: Vec<OwnedFd>,
}

/// Maximum number of counters that run together.
const MAX_COUNTERS: usize = 8;

impl Counters {
    /// Opens counters of at most eight events. They run on this thread from now on.
    ///
    /// # Errors
    /// Fails if the CPU has no such counter or this program may not use it.
    pub fn open(events: &[Event], mode: Mode) -> Result<Self, SysError> {
        let mut all: Vec<OwnedFd> = Vec::new();
        for event in events.iter().take(MAX_COUNTERS) {
            let leader = all.first().map_or(-1, |fd| fd.as_raw_fd());
            let opened = open(&Attributes::new(*event, mode), leader);
            all.push(opened.map_err(|why| {
                let remedy = remedy(&why);
                SysError::new(format!("perf_event_open({event})"), why, remedy)
            })?);
        }
        Ok(Self { all })
    }

    /// Returns the current count of each event, in opening order.
    ///
    /// # Errors
    /// Fails if the counters did not run all the time because others used the hardware counters.
    pub fn now(&self) -> io::Result<Vec<u64>> {
        const HEAD: usize = 3;
        let mut answer = [0u64; HEAD + MAX_COUNTERS];
        let length = size_of_val(&answer);
        let Some(leader) = self.all.first() else { return Ok(Vec::new()) };
        // SAFETY: the kernel writes at most the length of the buffer, and any bytes are valid numbers.
        let got = unsafe { libc::read(leader.as_raw_fd(), answer.as_mut_ptr().cast(), length) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let [count, wanted, ran] = [answer[0], answer[1], answer[2]];
        if count != self.all.len() as u64 || ran < wanted {
            return Err(io::Error::other(format!(
                "the counters ran for {ran} of {wanted} ns: other programs use them"
            )));
        }
        Ok(answer[HEAD..HEAD + self.all.len()].to_vec())
    }
}

fn open(attributes: &Attributes, leader: i32) -> io::Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the attributes have the stated length and outlive the call. This thread, any CPU.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attributes, 0, -1, leader, CLOSE_ON_EXEC)
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just created this descriptor for us, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the remedy for a refused counter.
fn remedy(why: &io::Error) -> &'static str {
    match why.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "as root: echo 1 > /proc/sys/kernel/perf_event_paranoid; in a container, allow perf_event_open"
        }
        Some(libc::ENOSYS) => "use a kernel with CONFIG_PERF_EVENTS",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files: ulimit -n 4096",
        _ => "use bare metal or a hypervisor that exposes a PMU",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, PAGE};

    #[test]
    fn events_become_kernel_attributes() {
        let attributes = Attributes::new(Event::raw(0xA1, 0x04), Mode::User);
        assert_eq!((attributes.kind, attributes.size, attributes.config), (4, 64, 0x04A1));
        assert_eq!(attributes.flags, NO_KERNEL | NO_HYPERVISOR);
        assert_eq!(attributes.read_format, 0b1011);
        assert_eq!(
            Attributes::new(Event::INSTRUCTIONS, Mode::Kernel).flags,
            NO_USER | NO_HYPERVISOR
        );
        assert_eq!(Attributes::new(Event::CYCLES, Mode::Both).flags, NO_HYPERVISOR);
        assert_eq!(Event::raw(0x1C7, 0).config, 0x1_0000_00C7);
        assert_eq!(Event::raw(0xC1, 0).to_string(), "CPU event 0xc1");
    }

    /// The kernel counts these in software, so the interface can be tested on any machine.
    #[test]
    fn software_events_are_counted_together() {
        let counters = match Counters::open(&[Event::PAGE_FAULTS; 2], Mode::Both) {
            Ok(counters) => counters,
            Err(why) => return crate::untested::note("software counters", &why),
        };
        let clock = Counters::open(&[Event::TASK_CLOCK], Mode::Both).unwrap();
        let mapping = Mapping::anonymous(100 * PAGE).unwrap();
        let before = counters.now().unwrap();
        for page in 0..100 {
            // SAFETY: inside the mapping, which only this test uses.
            unsafe { mapping.as_mut_ptr().add(page * PAGE).write_volatile(1) };
        }
        let after = counters.now().unwrap();
        // Huge pages cause fewer faults.
        assert!(after[0] > before[0] && after[0] - before[0] == after[1] - before[1], "{after:?}");
        let elapsed = [clock.now().unwrap()[0], clock.now().unwrap()[0]];
        assert!(
            elapsed[0] > 0 && elapsed[1] > elapsed[0] && elapsed[1] < 10_000_000_000,
            "{elapsed:?} ns"
        );
    }

    #[test]
    fn an_unknown_event_is_refused_in_one_line() {
        let unknown = Event { kind: SOFTWARE, config: 0xFFFF };
        let refusal = Counters::open(&[unknown], Mode::User).unwrap_err();
        let message = refusal.to_string();
        assert!(
            message.contains("perf_event_open(event 0xffff") && !message.contains('\n'),
            "{message}"
        );
        assert!(Counters::open(&[], Mode::User).unwrap().now().unwrap().is_empty());
    }

    #[test]
    fn each_refusal_has_its_remedy() {
        let remedy = |errno| remedy(&io::Error::from_raw_os_error(errno));
        assert!(remedy(libc::EACCES).contains("perf_event_paranoid"));
        assert!(remedy(libc::EPERM).contains("perf_event_paranoid"));
        assert!(remedy(libc::ENOENT).contains("PMU") && remedy(libc::EOPNOTSUPP).contains("PMU"));
        assert!(remedy(libc::ENOSYS).contains("CONFIG_PERF_EVENTS"));
        assert!(remedy(libc::EMFILE).contains("ulimit"));
    }

    #[test]
    fn instructions_are_counted_or_the_reason_is_given() {
        match Counters::open(&[Event::INSTRUCTIONS, Event::CYCLES], Mode::User) {
            Ok(counters) => {
                let before = counters.now().unwrap();
                let after = counters.now().unwrap();
                assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
            }
            Err(why) => crate::untested::note("hardware counters", &why),
        }
    }
}
