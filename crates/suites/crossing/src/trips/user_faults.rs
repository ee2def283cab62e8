//! Missing pages that another thread puts there, by userfaultfd.

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

/// Pages that may be missing; one more behind them tells the partner to end.
const PAGES: usize = 64;

/// `struct uffdio_api`
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register` and `struct uffdio_zeropage`: a range, a mode and an answer.
#[repr(C)]
struct OfRange {
    start: u64,
    length: u64,
    mode: u64,
    answer: u64,
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

/// Of linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const REGISTER_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u64 = 0x12;

/// Touches pages that are missing; the partner puts zero pages there.
pub(super) struct Missing {
    pages: Pages,
    order: Vec<usize>,
    served: Arc<AtomicU64>,
    before: u64,
    wrong: u64,
    partner: Option<JoinHandle<io::Result<()>>>,
}

impl Missing {
    /// The partner runs on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        let pages = Pages::anonymous(PAGES + 1)?;
        let faults = opened()?;
        registered(&faults, &pages)?;
        let served = Arc::new(AtomicU64::new(0));
        let (counted, last) = (Arc::clone(&served), pages.word(PAGES) as u64);
        let partner = spawn_pinned(cpu, move || serve(&faults, &counted, last))?;
        let order = (0..PAGES).collect();
        Ok(Self { pages, order, served, before: 0, wrong: 0, partner: Some(partner) })
    }
}

/// A descriptor from which missing pages are read, waiting.
fn opened() -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags alone.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
    let faults = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the structure is the kernel's and outlives the call.
    match unsafe { libc::ioctl(fd, UFFDIO_API, &raw mut api) } {
        0 => Ok(faults),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the faults of missing pages go there.
fn registered(faults: &OwnedFd, pages: &Pages) -> io::Result<()> {
    let length = (pages.count() * PAGE) as u64;
    let mut range =
        OfRange { start: pages.start() as u64, length, mode: REGISTER_MISSING, answer: 0 };
    // SAFETY: the structure is the kernel's and outlives the call; the range is the pages' own.
    match unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, &raw mut range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts a zero page wherever one is missing, up to the `last`. When it returns, the descriptor goes,
/// and with it all waiting: who waits then gets its page from the kernel.
fn serve(faults: &OwnedFd, served: &AtomicU64, last: u64) -> io::Result<()> {
    loop {
        let mut message = Message::default();
        let size = size_of::<Message>();
        // SAFETY: the kernel writes at most so many bytes to the message, which takes any.
        let got = unsafe { libc::read(faults.as_raw_fd(), (&raw mut message).cast(), size) };
        if got != size as isize || message.event & 0xff != EVENT_PAGEFAULT {
            return Err(io::Error::last_os_error());
        }
        let start = message.address & !(PAGE as u64 - 1);
        // Counted before the other side can go on.
        served.fetch_add(1, Ordering::Release);
        let mut page = OfRange { start, length: PAGE as u64, mode: 0, answer: 0 };
        // SAFETY: the structure is the kernel's and outlives the call; the page is missing.
        if unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_ZEROPAGE, &raw mut page) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if start == last {
            return Ok(());
        }
    }
}

impl Operation for Missing {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=PAGES
    }

    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        self.pages.unmap()?;
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
            "{served} pages were put there and {present} are, where {made} were missing"
        )))
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        // The partner ends with the last page; where it has ended already, the kernel gives one.
        read(self.pages.start().cast(), &[PAGES], 0);
        let _ = self.partner.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_page_is_put_there_by_the_partner() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut missing = match Missing::with(cpu) {
            Ok(missing) => missing,
            Err(why) => return machine::untested::note("userfaultfd", &why),
        };
        missing.prepare(PAGES).unwrap();
        missing.make(0..PAGES);
        assert_eq!(missing.check(PAGES), Ok(PAGES as u64));
        // Half of them are there already: the partner is not asked again.
        missing.before = missing.served.load(Ordering::Acquire);
        missing.make(0..PAGES / 2);
        assert!(missing.check(PAGES / 2).unwrap_err().why.starts_with("0 pages were put there"));
    }

    #[test]
    fn a_partner_that_has_gone_leaves_nobody_waiting() {
        let mut missing = match Missing::with(machine::topology::allowed_cpus()[0]) {
            Ok(missing) => missing,
            Err(why) => return machine::untested::note("userfaultfd whose partner has gone", &why),
        };
        read(missing.pages.start().cast(), &[PAGES], 0);
        missing.partner.take().unwrap().join().unwrap().unwrap();
        missing.prepare(4).unwrap();
        missing.make(0..4);
        assert!(missing.check(4).unwrap_err().why.starts_with("0 pages were put there and 4 are"));
    }
}
