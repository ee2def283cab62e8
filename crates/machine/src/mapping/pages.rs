//! The pages of a mapping: present, given back, or held to a node.

use std::ptr;

use rustix::mm::{Advice, madvise};

use super::{Mapping, PAGE};
use crate::SysError;

impl Mapping {
    /// Makes every page present, for writing where that is allowed. Device memory always is.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn prefault(&self) -> Result<(), SysError> {
        if self.device {
            return Ok(());
        }
        let advice =
            if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: the range is this mapping's own, and populating changes no contents.
        match unsafe { madvise(self.span.start().cast(), self.span.bytes(), advice) } {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::INVAL) => {
                self.touch();
                Ok(())
            }
            Err(errno) => Err(SysError::new(
                format!("prefault {} B", self.length),
                errno.into(),
                "free memory or ask for less",
            )),
        }
    }

    /// Kernels before 5.14 cannot populate: touch each page, and leave what it holds.
    pub(super) fn touch(&self) {
        for page in (0..self.span.bytes()).step_by(PAGE) {
            let byte = self.span.start().wrapping_add(page);
            if self.writable {
                // SAFETY: the byte lies in this writable mapping; a locked `or` of 0 changes nothing that
                // another thread or process could see.
                unsafe {
                    std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack))
                };
            } else {
                // SAFETY: the byte lies in this readable mapping.
                unsafe { ptr::read_volatile(byte) };
            }
        }
    }

    /// Gives the pages back: private memory reads as zero afterwards, and each first touch faults again.
    pub fn advise_dont_need(&self) {
        // rustix's DontNeed is POSIX's, which does nothing on Linux.
        self.advise(Advice::LinuxDontNeed);
    }

    /// Holds the pages, present ones too, to one NUMA node.
    ///
    /// # Errors
    /// EINVAL where there is no such node; ENOSYS where the kernel knows no NUMA.
    pub fn bind(&self, node: usize) -> Result<(), SysError> {
        const MPOL_BIND: libc::c_long = 2;
        const MPOL_MF_MOVE: libc::c_long = 2;
        let attempt = format!("bind {} B to NUMA node {node}", self.length);
        let remedy = "name a node of `tollgate doctor`, or let the kernel place the memory";
        let mut mask = [0u64; 16];
        let bits = mask.len() * 64;
        match mask.get_mut(node / 64) {
            Some(word) => *word = 1 << (node % 64),
            None => {
                return Err(SysError::invalid(
                    attempt,
                    format!("beyond node {}", bits - 1),
                    remedy,
                ));
            }
        }
        // SAFETY: the range is this mapping's own; the mask lives through the call and has as many bits.
        let code = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.span.start(),
                self.span.bytes(),
                MPOL_BIND,
                mask.as_ptr(),
                bits + 1,
                MPOL_MF_MOVE,
            )
        };
        if code == 0 { Ok(()) } else { Err(SysError::last(attempt, remedy)) }
    }

    pub(super) fn advise(&self, advice: Advice) {
        // An advice that the kernel does not know is no advice: there is nothing to report.
        // SAFETY: the range is this mapping's own; nobody holds references into it, only pointers.
        let _ = unsafe { madvise(self.span.start().cast(), self.span.bytes(), advice) };
    }
}
