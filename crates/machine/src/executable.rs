//! Machine code generated at run time: first written, then executed, never both at once (W^X).

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::SysError;
use crate::mapping::PAGE;

/// Machine code in separate pages, unmapped when dropped. It starts at a page boundary.
#[derive(Debug)]
pub struct Executable {
    base: NonNull<u8>,
    mapped: usize,
    length: usize,
}

// SAFETY: the pages are not written once they are executable, so any thread may run them.
unsafe impl Send for Executable {}
// SAFETY: see Send.
unsafe impl Sync for Executable {}

impl Executable {
    /// Copies code into new pages and makes them executable and read-only.
    ///
    /// # Errors
    /// Fails if `code` is empty, or the system has no memory or forbids generated code.
    pub fn new(code: &[u8]) -> Result<Self, SysError> {
        let attempt = || format!("map {} B of code", code.len());
        let mapped = code.len().checked_next_multiple_of(PAGE).filter(|_| !code.is_empty());
        let Some(mapped) = mapped else {
            return Err(SysError::invalid(attempt(), "the code is empty", "pass some code"));
        };
        let refused =
            |errno: rustix::io::Errno, remedy: &str| SysError::new(attempt(), errno.into(), remedy);
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused range.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, writable, MapFlags::PRIVATE) };
        let base = base.and_then(|base| NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM));
        let base: NonNull<u8> = base.map_err(|errno| refused(errno, "free memory"))?;
        // Drop unmaps it from here on.
        let executable = Self { base, mapped, length: code.len() };
        // SAFETY: the range is new and at least as long as the code.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), base.as_ptr(), code.len()) };
        let flags = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the range belongs to this mapping, and nothing writes to it any more.
        unsafe { mprotect(base.as_ptr().cast(), mapped, flags) }.map_err(|errno| {
            refused(
                errno,
                "allow code made at run time (SELinux: execmem; systemd: MemoryDenyWriteExecute)",
            )
        })?;
        Ok(executable)
    }

    /// Returns the first byte of the code. Its effects are the responsibility of the caller that runs it.
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// Returns the code.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are readable, contain `length` bytes and are not written while this value exists.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// Returns the length of the code in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns false: empty code is rejected by [`Executable::new`].
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this mapping and no longer runs.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs() {
        // lea eax, [rdi + 42]; ret
        let code = Executable::new(&[0x8D, 0x47, 0x2A, 0xC3]).unwrap();
        assert_eq!((code.len(), code.is_empty()), (4, false));
        assert_eq!(code.bytes(), [0x8D, 0x47, 0x2A, 0xC3]);
        // SAFETY: the code is a function of this signature without side effects.
        let add: extern "sysv64" fn(u32) -> u32 = unsafe { std::mem::transmute(code.as_ptr()) };
        assert_eq!(add(58), 100);
    }

    #[test]
    fn code_is_never_writable() {
        let code = Executable::new(&[0xC3; PAGE + 1]).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", code.as_ptr() as usize);
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(line.contains(" r-xp "), "{line}");
    }

    #[test]
    fn empty_code_is_refused() {
        let refusal = Executable::new(&[]).unwrap_err().to_string();
        assert!(refusal.contains("pass some code"), "{refusal}");
    }
}
