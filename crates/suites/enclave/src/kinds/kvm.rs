//! An enclave in a virtual machine that holds nothing else, with a vCPU for each TCS.
//!
//! The guest has the region's pages at the host's own addresses, so that pointers and relocations are the
//! same on both sides, and no pages more but those of `kernel`. The inside runs in ring 3: there the guest's
//! page table holds it as a process's does, and a KVM that must emulate ring 0 still runs it as it is. An
//! ECALL is one `KVM_RUN` on the caller's thread: the inside leaves by `out`, which the TSS allows it, and
//! finds the next call's words in its mailbox. So no register is set or read between calls. Exceptions come
//! to the guest's ring 0, which exits for good.

mod code;
mod guest;
mod hardware;
mod kernel;
mod paging;

use std::ops::Range;
use std::sync::atomic::Ordering;

use enclave_interface::Ecall;
use lab::sample::Failure;

use self::guest::{Exit, Guest, Processor};
use self::kernel::Frame;
use self::paging::{PageAccess, Part};
use super::{CallCounts, Enclave};
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::ocalls;
use crate::region::{Region, Sharing};
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;

/// A loaded enclave of kind `kvm`. The guest goes before the region that it has.
pub(super) struct Kvm {
    guest: Guest,
    tcs: TcsSet,
    region: Region,
}

/// Whether guests can be made here, whatever they cost.
pub(super) fn runs() -> Result<(), Failure> {
    Ok(machine::kvm::open().map(drop)?)
}

/// Whether an exit here is what the kind is named after.
pub(super) fn measures() -> Result<(), Failure> {
    hardware::measures()
}

impl Kvm {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        let region = Region::load(elf, conf, Sharing::Private)?;
        let parts: Vec<Part> = region
            .parts(elf)
            .into_iter()
            .map(|(range, access)| Part { range, access, page_access: PageAccess::User })
            .collect();
        // SAFETY: the region is a field of Self behind the guest.
        let guest = unsafe {
            Guest::new(region.range(), &parts, conf.tcs, |number| region.top(number) as u64)
        }?;
        let ocall = guest.kernel().code(|code| code.ocall);
        let tcs = TcsSet::new(&region, conf.tcs, ocall as usize, ocalls::answer_here);
        for tcs in tcs.all() {
            let mailbox = guest.kernel().mailbox(tcs.number);
            mailbox.stack.store(tcs.stack as u64, Ordering::Relaxed);
            mailbox.entry.store(tcs.entry as u64, Ordering::Relaxed);
        }
        Ok(Self { guest, tcs, region })
    }

    /// Lets the guest go on until its call ends.
    fn attend(&self, tcs: &Tcs, processor: &mut Processor) -> Result<u64, EcallError> {
        let mailbox = self.guest.kernel().mailbox(tcs.number);
        loop {
            match processor.run().inspect_err(|_| self.tcs.abort())? {
                Exit::Ended => return Ok(mailbox.word(0)),
                Exit::Ocall => {
                    let words = [1, 2, 3, 4, 5].map(|word| mailbox.word(word));
                    tcs.ocalls.fetch_add(1, Ordering::Relaxed);
                    let result = ocalls::answer_for(tcs, mailbox.word(0), words);
                    mailbox.answer(result);
                }
                Exit::Fault => {
                    let kernel = self.guest.kernel();
                    let frame = kernel.frame(tcs.number);
                    let (cause, at) = if frame.rip == kernel.system_call() {
                        ((libc::SIGSYS, frame.rax), processor.rcx()?)
                    } else {
                        (cause(frame), frame.rip)
                    };
                    return Err(self.cut(tcs, cause, at));
                }
            }
        }
    }

    #[cold]
    fn cut(&self, tcs: &Tcs, (signal, what): (i32, u64), at: u64) -> EcallError {
        tcs.cut.signal.store(signal as u64, Ordering::Relaxed);
        tcs.cut.what.store(what, Ordering::Relaxed);
        tcs.cut.at.store(at, Ordering::Relaxed);
        self.tcs.cut(tcs, self.region.stack(tcs.number))
    }
}

/// The signal that Linux gives for an exception, with the address that was touched.
fn cause(frame: Frame) -> (i32, u64) {
    match frame.vector {
        14 => (libc::SIGSEGV, frame.cr2),
        6 => (libc::SIGILL, frame.rip),
        0 | 16 | 19 => (libc::SIGFPE, frame.rip),
        1 | 3 => (libc::SIGTRAP, frame.rip),
        11 | 12 | 17 => (libc::SIGBUS, 0),
        _ => (libc::SIGSEGV, 0),
    }
}

impl Enclave for Kvm {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        let tcs = self.tcs.bind(&Thread::current(false)?.last)?;
        let mut processor = self.guest.processor(tcs.number);
        let [w0, w1, w2, w3, w4] = words;
        self.guest.kernel().mailbox(tcs.number).put([call as u64, w0, w1, w2, w3, w4]);
        self.attend(&tcs, &mut processor)
    }

    fn counts(&self) -> CallCounts {
        self.tcs.counts()
    }

    fn heap(&self) -> Range<usize> {
        self.region.heap()
    }
}
