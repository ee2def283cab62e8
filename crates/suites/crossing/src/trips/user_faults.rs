//! UserFaults pages that another thread supplies through userfaultfd.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::mapping::PAGE;
use machine::pin::spawn_pinned;

use super::batch::Operation;
use super::faults::read;
use super::pages::Pages;

/// Pages that are touched. One more page after them ends the partner.
const PAGES: usize = 64;

/// `struct uffdio_api`
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register` and `struct uffdio_zeropage`: a range, a mode and a result.
#[repr(C)]
struct RangeRequest {
    start: u64,
    length: u64,
    mode: u64,
    result: u64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
#[derive(Default)]
struct Message {
    event: u64,
    flags: u64,
    address: u64,
    thread: u64,
}

/// Constants of linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const REGISTER_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u64 = 0x12;

/// Operation that touches missing pages, for which the partner supplies zero pages.
pub(super) struct UserFaults {
    pages: Pages,
    order: Vec<usize>,
    served: Arc<AtomicU64>,
    before: u64,
    wrong: u64,
    partner: Option<JoinHandle<io::Result<()>>>,
}

impl UserFaults {
    /// Starts the partner on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        let pages = Pages::anonymous(PAGES + 1)?;
        let faults = open_userfaultfd()?;
        register(&faults, &pages)?;
        let served = Arc::new(AtomicU64::new(0));
        let (counted, last) = (Arc::clone(&served), pages.word(PAGES) as u64);
        let partner = spawn_pinned(cpu, move || serve(&faults, &counted, last))?;
        let order = (0..PAGES).collect();
        Ok(Self { pages, order, served, before: 0, wrong: 0, partner: Some(partner) })
    }
}

/// Opens a blocking descriptor that reports missing pages.
fn open_userfaultfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes only flags.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    let faults = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the structure has the kernel's layout and outlives the call.
    match unsafe { libc::ioctl(fd, UFFDIO_API, &raw mut api) } {
        0 => Ok(faults),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Registers the pages, so that their faults are reported there.
fn register(faults: &OwnedFd, pages: &Pages) -> io::Result<()> {
    let length = (pages.count() * PAGE) as u64;
    let mut range =
        RangeRequest { start: pages.start() as u64, length, mode: REGISTER_MISSING, result: 0 };
    // SAFETY: the structure has the kernel's layout and outlives the call; the range is that of the pages.
    match unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, &raw mut range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Supplies a zero page for each missing page, until that of `last`. The descriptor is then closed, and the kernel
/// supplies a page to any thread that still waits.
fn serve(faults: &OwnedFd, served: &AtomicU64, last: u64) -> io::Result<()> {
    loop {
        let mut message = Message::default();
        let size = size_of::<Message>();
        // SAFETY: the kernel writes at most `size` bytes to the message, for which any bytes are valid.
        let length = unsafe { libc::read(faults.as_raw_fd(), (&raw mut message).cast(), size) };
        if length != size as isize || message.event & 0xff != EVENT_PAGEFAULT {
            return Err(io::Error::last_os_error());
        }
        let start = message.address & !(PAGE as u64 - 1);
        // Counted before the touching thread can continue.
        served.fetch_add(1, Ordering::Release);
        let mut page = RangeRequest { start, length: PAGE as u64, mode: 0, result: 0 };
        // SAFETY: the structure has the kernel's layout and outlives the call; the page is trips.
        if unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_ZEROPAGE, &raw mut page) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if start == last {
            return Ok(());
        }
    }
}

impl Operation for UserFaults {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=PAGES
    }

    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        self.pages.madvise_dontneed();
        self.before = self.served.load(Ordering::Acquire);
        Ok(())
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= read(self.pages.start().cast(), &self.order[numbers], 0);
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let served = self.served.load(Ordering::Acquire) - self.before;
        let present = self.pages.present(0, PAGES)?;
        if served == made as u64 && present == made && self.wrong == 0 {
            return Ok(served);
        }
        Err(Failure::check(format!(
            "{served} pages supplied and {present} present; expected {made}"
        )))
    }
}

impl Drop for UserFaults {
    fn drop(&mut self) {
        // The partner exits after the last page; if it has already exited, the kernel supplies the page.
        read(self.pages.start().cast(), &[PAGES], 0);
        let _ = self.partner.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partner_supplies_every_missing_page() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut trips = match UserFaults::with(cpu) {
            Ok(trips) => trips,
            Err(why) => return machine::untested::note("userfaultfd", &why),
        };
        trips.prepare(PAGES).unwrap();
        trips.make(0..PAGES);
        assert_eq!(trips.check(PAGES), Ok(PAGES as u64));
        // Pages that are present raise no fault.
        trips.before = trips.served.load(Ordering::Acquire);
        trips.make(0..PAGES / 2);
        assert!(trips.check(PAGES / 2).unwrap_err().why.starts_with("0 pages supplied"));
    }

    #[test]
    fn after_the_end_of_the_partner_the_kernel_supplies_pages() {
        let mut trips = match UserFaults::with(machine::topology::allowed_cpus()[0]) {
            Ok(trips) => trips,
            Err(why) => {
                return machine::untested::note("userfaultfd after the end of the partner", &why);
            }
        };
        read(trips.pages.start().cast(), &[PAGES], 0);
        trips.partner.take().unwrap().join().unwrap().unwrap();
        trips.prepare(4).unwrap();
        trips.make(0..4);
        assert!(trips.check(4).unwrap_err().why.starts_with("0 pages supplied and 4 present"));
    }
}
