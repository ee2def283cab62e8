//! Instructions counted by the processor, in user mode and in the kernel.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use lab::sample::Failure;

/// `struct perf_event_attr` as far as its first version went, 64 bytes.
#[repr(C)]
#[derive(Default)]
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

/// An event: of hardware, or of the kernel.
#[derive(Clone, Copy)]
struct Event {
    kind: u32,
    config: u64,
}

const INSTRUCTIONS: Event = Event { kind: 0, config: 1 };
/// `exclude_user`, `exclude_kernel`, `exclude_hv` in the attributes' flags.
const NO_USER: u64 = 1 << 4;
const NO_KERNEL: u64 = 1 << 5;
const NO_HYPERVISOR: u64 = 1 << 6;

/// Both counters of this thread, running since they were opened.
pub(super) struct Counters {
    user: Counter,
    system: Counter,
}

impl Counters {
    /// Opens them.
    ///
    /// # Errors
    /// Where there are none, or the kernel's own instructions may not be counted.
    pub(super) fn open() -> Result<Self, Failure> {
        let refused = |why: io::Error| {
            Failure::unavailable(
                format!("instructions cannot be counted: {why}"),
                "bare metal, or a hypervisor that shows a PMU; and as root: \
                 echo 1 > /proc/sys/kernel/perf_event_paranoid",
            )
        };
        let open = |flags| Counter::open(INSTRUCTIONS, flags | NO_HYPERVISOR).map_err(refused);
        Ok(Self { user: open(NO_KERNEL)?, system: open(NO_USER)? })
    }

    /// Instructions in user mode and in the kernel until now.
    pub(super) fn now(&self) -> io::Result<[f64; 2]> {
        Ok([self.user.count()? as f64, self.system.count()? as f64])
    }
}

struct Counter(OwnedFd);

impl Counter {
    fn open(event: Event, flags: u64) -> io::Result<Self> {
        const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
        let Event { kind, config } = event;
        let attributes = Attributes { kind, config, size: 64, flags, ..Attributes::default() };
        // SAFETY: the attributes are 64 bytes as they say, and outlive the call. This thread, any CPU.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &attributes, 0, -1, -1, CLOSE_ON_EXEC)
        };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
            Ok(fd) if fd >= 0 => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn count(&self) -> io::Result<u64> {
        let mut count = 0u64;
        // SAFETY: the kernel writes at most the 8 bytes of the count.
        let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        if got == 8 { Ok(count) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::mapping::{Mapping, PAGE};

    /// Page faults are counted by the kernel, so that the way to a counter can be tried anywhere.
    #[test]
    fn what_the_kernel_counts_is_counted() {
        const PAGE_FAULTS: Event = Event { kind: 1, config: 2 };
        let counter = match Counter::open(PAGE_FAULTS, NO_HYPERVISOR) {
            Ok(counter) => counter,
            Err(why) => return machine::untested::note("counters of the kernel", &why),
        };
        let mapping = Mapping::anonymous(100 * PAGE).unwrap();
        let before = counter.count().unwrap();
        mapping.prefault().unwrap();
        mapping.advise_dont_need();
        for page in 0..100 {
            // SAFETY: inside the mapping, which this test alone uses.
            unsafe { mapping.as_mut_ptr().add(page * PAGE).write_volatile(1) };
        }
        assert!(counter.count().unwrap() - before >= 100);
    }

    #[test]
    fn instructions_are_counted_or_it_says_why_not() {
        match Counters::open() {
            Ok(counters) => {
                let [user, system] = counters.now().unwrap();
                let [later, system_later] = counters.now().unwrap();
                assert!(later > user && system_later > system);
            }
            Err(why) => {
                assert!(why.remedy.is_some());
                machine::untested::note("instructions counted", &why);
            }
        }
    }
}
