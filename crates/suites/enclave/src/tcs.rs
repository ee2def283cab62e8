//! The thread control structures (TCS) of an enclave. At most one thread uses a TCS at a time.

use std::cell::Cell;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use enclave_interface::ThreadBlock;

use crate::conf::PAGE;
use crate::error::{EcallError, FaultLocation};
use crate::region::{Region, Top};

/// A function that answers an OCALL of a TCS.
pub(crate) type AnswerFn = unsafe extern "sysv64" fn(
    number: u64,
    w0: u64,
    w1: u64,
    w2: u64,
    w3: u64,
    w4: u64,
    tcs: *const Tcs,
) -> u64;

/// The TCS that a host thread used last: the serial number of its enclave, and its index there.
pub(crate) type LastTcs = Cell<(u64, usize)>;

/// The host's part of one TCS. The trampolines read it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Tcs {
    /// The block at FS:0 inside.
    pub(crate) top: *mut Top,
    /// The high end of the stack.
    pub(crate) stack: usize,
    /// The image's entry point.
    pub(crate) entry: usize,
    /// The selector of the bound thread: the byte that blocks system calls while it is 1.
    pub(crate) selector: AtomicPtr<u8>,
    /// The function that answers OCALLs; `None` if no trampoline uses this TCS.
    pub(crate) answer: Option<AnswerFn>,
    /// Number of OCALLs. Only the bound thread writes it.
    pub(crate) ocalls: AtomicU64,
    /// Number of OCALLs that waited.
    pub(crate) waits: AtomicU64,
    /// Number of blocked system calls.
    pub(crate) blocked: AtomicU64,
    /// Its index.
    pub(crate) number: usize,
    /// The region's first byte.
    pub(crate) start: usize,
    /// The region's end.
    pub(crate) end: usize,
    /// Why the last ECALL was cut short; the signal handler for faults writes it.
    pub(crate) cut: Cut,
    busy: AtomicBool,
}

/// How many calls left an enclave or were blocked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// OCALLs.
    pub ocalls: u64,
    /// OCALLs that waited.
    pub waits: u64,
    /// System calls that were blocked.
    pub blocked: u64,
}

/// Why an ECALL was cut short, as recorded by a signal handler on the same thread.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Cut {
    /// The signal number.
    pub(crate) signal: AtomicU64,
    /// The accessed address, or the number of the system call.
    pub(crate) what: AtomicU64,
    /// The address of the instruction.
    pub(crate) at: AtomicU64,
}

// SAFETY: only the trampolines use `top`, on the thread that bound the TCS.
unsafe impl Send for Tcs {}
// SAFETY: only the trampolines use `top`, on the thread that bound the TCS; all other fields are atomic or constant.
unsafe impl Sync for Tcs {}

/// The selector of TCS without dispatch of system calls.
static NO_SELECTOR: AtomicBool = AtomicBool::new(false);

/// Returns a unique number for each enclave.
fn serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All TCS of an enclave.
#[derive(Debug)]
pub(crate) struct TcsSet {
    /// The enclave's number, unique in this process.
    serial: u64,
    /// Whether an ECALL was cut short.
    aborting: AtomicBool,
    all: Box<[Tcs]>,
    /// The index at which the next new thread starts to search, so that threads use different TCS while there are
    /// enough, even if they take turns on few cores.
    next: AtomicUsize,
}

impl TcsSet {
    /// Creates the TCS of a region, with their blocks and TLS areas. `ocall` is the target of the image's OCALLs,
    /// `answer` the function that answers them in this process.
    pub(crate) fn new(region: &Region, count: usize, ocall: usize, answer: AnswerFn) -> Self {
        let one = |number| Tcs {
            top: region.top(number),
            stack: region.stack(number).end,
            entry: region.entry(),
            selector: AtomicPtr::new(NO_SELECTOR.as_ptr().cast()),
            answer: Some(answer),
            ocalls: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            number,
            start: region.range().start,
            end: region.range().end,
            cut: Cut::default(),
            busy: AtomicBool::new(false),
        };
        let all: Box<[Tcs]> = (0..count).map(one).collect();
        for tcs in &all {
            let block = ThreadBlock {
                own: tcs.top as u64,
                host_stack: 0,
                ocall: ocall as u64,
                number: tcs.number as u64,
                host_fs: 0,
                host_gs: 0,
                reserved: [0; 10],
            };
            // SAFETY: the region reserves this aligned space for the block, and no thread is inside yet.
            unsafe { tcs.top.write(Top { block, tcs: ptr::from_ref(tcs) as u64 }) };
            region.reset_tls(tcs.number);
        }
        Self::of(all)
    }

    /// Creates the TCS of an enclave that no trampoline enters, e.g. because the CPU or a module's instance has
    /// its own part of each.
    pub(crate) fn without_trampoline(range: Range<usize>, count: usize) -> Self {
        let one = |number| Tcs {
            top: ptr::null_mut(),
            stack: 0,
            entry: 0,
            selector: AtomicPtr::new(NO_SELECTOR.as_ptr().cast()),
            answer: None,
            ocalls: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            number,
            start: range.start,
            end: range.end,
            cut: Cut::default(),
            busy: AtomicBool::new(false),
        };
        Self::of((0..count).map(one).collect())
    }

    fn of(all: Box<[Tcs]>) -> Self {
        Self { serial: serial(), aborting: AtomicBool::new(false), all, next: AtomicUsize::new(0) }
    }

    /// Returns how many calls left the enclave or were blocked. Exact while no thread is inside.
    pub(crate) fn counts(&self) -> CallCounts {
        CallCounts {
            ocalls: self.sum(|tcs| &tcs.ocalls),
            waits: self.sum(|tcs| &tcs.waits),
            blocked: self.sum(|tcs| &tcs.blocked),
        }
    }

    fn sum(&self, count: fn(&Tcs) -> &AtomicU64) -> u64 {
        self.all.iter().map(|tcs| count(tcs).load(Ordering::Relaxed)).sum()
    }

    /// Returns all TCS.
    pub(crate) fn all(&self) -> &[Tcs] {
        &self.all
    }

    /// Binds a free TCS to the calling thread: its last one if that is free, otherwise the next free one.
    ///
    /// # Errors
    /// Returns an error if all are in use, or if the enclave is aborting.
    #[inline]
    pub(crate) fn bind(&self, last: &LastTcs) -> Result<Bound<'_>, EcallError> {
        if self.aborting.load(Ordering::Relaxed) {
            return Err(EcallError::Aborting);
        }
        let (serial, index) = last.get();
        if serial == self.serial {
            let tcs = &self.all[index];
            if tcs.take() {
                return Ok(Bound(tcs));
            }
        }
        self.search(last)
    }

    /// Makes all later ECALLs fail; threads that are inside may leave.
    pub(crate) fn abort(&self) {
        self.aborting.store(true, Ordering::Relaxed);
    }

    /// Returns why the ECALL of a TCS was cut short, and aborts the enclave.
    #[cold]
    pub(crate) fn cut(&self, tcs: &Tcs, stack: Range<usize>) -> EcallError {
        self.abort();
        let (signal, what, at) = (
            tcs.cut.signal.load(Ordering::Relaxed) as i32,
            tcs.cut.what.load(Ordering::Relaxed),
            tcs.cut.at.load(Ordering::Relaxed),
        );
        if signal == libc::SIGSYS {
            tcs.blocked.fetch_add(1, Ordering::Relaxed);
            return EcallError::SystemCall { number: what, at };
        }
        let address = what as usize;
        let guards = [stack.start - PAGE..stack.start, stack.end..stack.end + PAGE];
        let place = if guards.iter().any(|guard| guard.contains(&address)) {
            FaultLocation::Guard
        } else if (tcs.start..tcs.end).contains(&address) {
            FaultLocation::Inside
        } else {
            FaultLocation::Outside
        };
        EcallError::Fault { signal, address: what, at, place }
    }

    #[cold]
    fn search(&self, last: &LastTcs) -> Result<Bound<'_>, EcallError> {
        let (before, after) =
            self.all.split_at(self.next.fetch_add(1, Ordering::Relaxed) % self.all.len());
        let free = after.iter().chain(before).find(|tcs| tcs.take());
        let tcs = free.ok_or(EcallError::OutOfThreads { tcs: self.all.len() })?;
        last.set((self.serial, tcs.number));
        Ok(Bound(tcs))
    }
}

impl Tcs {
    #[inline]
    fn take(&self) -> bool {
        self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// A TCS that is bound to the calling thread until it is dropped.
#[derive(Debug)]
pub(crate) struct Bound<'a>(&'a Tcs);

impl Deref for Bound<'_> {
    type Target = Tcs;

    #[inline]
    fn deref(&self) -> &Tcs {
        self.0
    }
}

impl Drop for Bound<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
