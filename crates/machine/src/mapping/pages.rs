//! Pages of a mapping: populated, released, or bound to a node.

use std::io;
use std::ptr;

use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};

use super::{Mapping, PAGE};
use crate::SysError;

impl Mapping {
    /// Makes every page present, writable if the mapping is. Device memory always is present.
    ///
    /// # Errors
    /// Fails if memory is exhausted.
    pub fn prefault(&self) -> Result<(), SysError> {
        if self.device {
            return Ok(());
        }
        let advice =
            if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: the range belongs to this mapping, and populating changes no contents.
        match unsafe { madvise(self.span.start().cast(), self.span.bytes(), advice) } {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::INVAL) => {
                self.touch();
                Ok(())
            }
            Err(errno) => Err(SysError::new(
                format!("prefault {} B", self.length),
                errno.into(),
                "free memory or request less",
            )),
        }
    }

    /// Touches each page without changing its contents, for kernels before 5.14, which cannot populate.
    pub(super) fn touch(&self) {
        for page in (0..self.span.bytes()).step_by(PAGE) {
            let byte = self.span.start().wrapping_add(page);
            if self.writable {
                // SAFETY: the byte is in this writable mapping; a locked `or` of 0 changes nothing that
                // another thread or process could observe.
                unsafe {
                    std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack))
                };
            } else {
                // SAFETY: the byte is in this readable mapping.
                unsafe { ptr::read_volatile(byte) };
            }
        }
    }

    /// Releases the pages: private memory then reads as zero, and each first touch faults again.
    pub fn madvise_dontneed(&self) {
        // rustix's DontNeed is POSIX_MADV_DONTNEED, which does nothing on Linux.
        self.advise(Advice::LinuxDontNeed);
    }

    /// Excludes the memory from processes that are forked later.
    ///
    /// # Errors
    /// Returns the error of `madvise(2)`.
    pub fn madvise_dontfork(&self) -> io::Result<()> {
        // SAFETY: the range belongs to this mapping, and the advice only affects children.
        let advised =
            unsafe { madvise(self.span.start().cast(), self.span.bytes(), Advice::LinuxDontFork) };
        Ok(advised?)
    }

    /// Makes the pages inaccessible, so that each touch raises SIGSEGV.
    ///
    /// # Errors
    /// Returns the error of `mprotect(2)`.
    pub fn mprotect_none(&self) -> io::Result<()> {
        // SAFETY: the range belongs to this mapping; only pointers into it exist, no references.
        let protected = unsafe {
            mprotect(self.span.start().cast(), self.span.bytes(), MprotectFlags::empty())
        };
        Ok(protected?)
    }

    /// Binds all pages, present ones included, to one NUMA node.
    ///
    /// # Errors
    /// Returns EINVAL for an unknown node and ENOSYS if the kernel does not support NUMA.
    pub fn bind(&self, node: usize) -> Result<(), SysError> {
        const MPOL_BIND: libc::c_long = 2;
        const MPOL_MF_MOVE: libc::c_long = 2;
        let attempt = format!("bind {} B to NUMA node {node}", self.length);
        let remedy = "name a node listed by `tollgate doctor`, or let the kernel place the memory";
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
        // SAFETY: the range belongs to this mapping; the mask lives through the call and has as many bits.
        let code = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.span.start(),
                self.span.bytes(),
                MPOL_BIND,
                mask.as_ptr(),
                // The kernel uses one bit fewer than this number (get_nodes in mm/mempolicy.c).
                bits + 1,
                MPOL_MF_MOVE,
            )
        };
        if code == 0 { Ok(()) } else { Err(SysError::last(attempt, remedy)) }
    }

    pub(super) fn advise(&self, advice: Advice) {
        // SAFETY: the range belongs to this mapping; only pointers into it exist, no references. An unknown
        // advice is ignored, so errors need no report.
        let _ = unsafe { madvise(self.span.start().cast(), self.span.bytes(), advice) };
    }
}
