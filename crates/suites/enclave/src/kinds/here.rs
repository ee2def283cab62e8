//! An enclave in this process: what the kinds that enter by a trampoline share.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

use enclave_interface::Ecall;
use lab::sample::Failure;

use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::faults::{self, Watched};
use crate::ocalls;
use crate::region::{Region, Sharing};
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;
use crate::trampoline::{EnterFn, Left};

/// A region, its TCS, and its faults watched. Fields go in this order.
pub(super) struct Here {
    pub(super) tcs: TcsSet,
    _watched: Watched,
    region: Region,
}

impl Here {
    /// Loads an image whose OCALLs go to a trampoline.
    pub(super) fn load(
        elf: &Elf<'static>,
        conf: &Conf,
        ocall: unsafe extern "sysv64" fn(),
    ) -> Result<Self, Failure> {
        let region = Region::load(elf, conf, Sharing::Private)?;
        let tcs = TcsSet::new(&region, conf.tcs, ocall as usize, ocalls::answer_here);
        Ok(Self { tcs, _watched: faults::watch(region.range())?, region })
    }

    /// An ECALL; `dispatch`: with system calls blocked.
    #[inline(always)]
    pub(super) fn enter(
        &self,
        enter: EnterFn,
        dispatch: bool,
        call: Ecall,
        words: [u64; 5],
    ) -> Result<u64, EcallError> {
        let thread = Thread::current(dispatch)?;
        let tcs = self.tcs.bind(thread)?;
        if dispatch {
            tcs.selector.store(thread.selector(), Ordering::Relaxed);
        }
        // SAFETY: the TCS is this thread's until `tcs` goes; the image is entered at its entry point on
        // its own stack. What it does wrong there is caught by `faults`.
        let left = unsafe { enter(ptr::from_ref(&*tcs), call as u64, words.as_ptr()) };
        self.left(&tcs, left)
    }

    /// What an ECALL gave.
    #[inline(always)]
    pub(super) fn left(&self, tcs: &Tcs, left: Left) -> Result<u64, EcallError> {
        if left.failed == 0 {
            Ok(left.word)
        } else {
            Err(self.tcs.cut(tcs, self.region.stack(tcs.number)))
        }
    }

    pub(super) fn ocalls(&self) -> u64 {
        self.tcs.ocalls()
    }

    pub(super) fn waits(&self) -> u64 {
        self.tcs.waits()
    }

    pub(super) fn blocked(&self) -> u64 {
        self.tcs.blocked()
    }

    pub(super) fn heap(&self) -> Range<usize> {
        self.region.heap()
    }
}
