//! An enclave in a virtual machine that contains only the enclave, with one vCPU per TCS.
//!
//! The guest has the region's pages at the host's addresses, so that pointers and relocations are the same on both
//! sides, and in addition only the pages of `kernel`. The enclave runs in ring 3, confined by the guest's page table
//! like a process, so that even a KVM that emulates ring 0 runs it natively. An ECALL is one `KVM_RUN` on the
//! caller's thread: the enclave leaves by `out`, which the TSS permits, and finds the next call's words in its
//! mailbox, so no register is set or read between calls. Exceptions go to the guest's ring 0, which exits for good.

mod code;
mod guest;
mod hardware;
mod kernel;

use std::ops::Range;
use std::sync::atomic::Ordering;

use enclave_interface::Ecall;
use lab::sample::Failure;
use machine::kvm::tables::{NO_EXECUTE, USER, WRITABLE};

use self::guest::{Exit, Guest, Processor};
use self::kernel::{Frame, Part};
use super::{CallCounts, Enclave};
use crate::conf::Conf;
use crate::elf::{Access, Elf};
use crate::error::EcallError;
use crate::ocalls;
use crate::region::{Region, Sharing};
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;

/// A loaded enclave of kind `kvm`. The guest is dropped before the region that it maps.
pub(super) struct Kvm {
    guest: Guest,
    tcs: TcsSet,
    region: Region,
}

/// Returns the guest's code next to the image.
pub(super) fn inner_code() -> &'static [u8] {
    code::code().bytes
}

/// Checks that guests can be created, regardless of their cost.
pub(super) fn runs() -> Result<(), Failure> {
    Ok(machine::kvm::open().map(drop)?)
}

/// Checks that exits of guests are hardware exits.
pub(super) fn measures() -> Result<(), Failure> {
    hardware::measures()
}

impl Kvm {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        let region = Region::load(elf, conf, Sharing::Private)?;
        let parts: Vec<Part> = region
            .parts(elf)
            .into_iter()
            .map(|(range, access)| Part { range, flags: flags(access) })
            .collect();
        // SAFETY: the region is a field of Self that is dropped after the guest.
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

    /// Runs the guest until its call ends.
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

/// Returns the flags of the enclave's pages in the page table.
fn flags(access: Access) -> u64 {
    match access {
        Access::Read => USER | NO_EXECUTE,
        Access::Write => USER | NO_EXECUTE | WRITABLE,
        Access::Execute => USER,
    }
}

/// Returns the signal that Linux sends for an exception, and the accessed address.
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
