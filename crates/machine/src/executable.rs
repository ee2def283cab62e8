//! Machine code that is made at run time: written first, then executed, never both at once (W^X).

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::SysError;
use crate::mapping::PAGE;

/// A span of code in pages of its own, unmapped when dropped. It begins at a page's start.
#[derive(Debug)]
pub struct Executable {
    base: NonNull<u8>,
    mapped: usize,
    length: usize,
}

// SAFETY: nobody writes the pages once they are executable, so that any thread may run them.
unsafe impl Send for Executable {}
// SAFETY: as for Send.
unsafe impl Sync for Executable {}

impl Executable {
    /// Copies code into fresh pages and makes them executable and read-only.
    ///
    /// # Errors
    /// For no code at all, and where the system gives no memory or allows no code made at run time.
    pub fn new(code: &[u8]) -> Result<Self, SysError> {
        let attempt = || format!("map {} B of code", code.len());
        let mapped = code.len().checked_next_multiple_of(PAGE).filter(|_| !code.is_empty());
        let Some(mapped) = mapped else {
            return Err(SysError::invalid(attempt(), "not a possible length", "give some code"));
        };
        let refused =
            |errno: rustix::io::Errno, remedy: &str| SysError::new(attempt(), errno.into(), remedy);
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a new range; nothing else is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, writable, MapFlags::PRIVATE) };
        let base = base.and_then(|base| NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM));
        let base: NonNull<u8> = base.map_err(|errno| refused(errno, "free memory"))?;
        // From here on Drop unmaps it, whatever fails.
        let executable = Self { base, mapped, length: code.len() };
        // SAFETY: the range is new and at least as long as the code.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), base.as_ptr(), code.len()) };
        let flags = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the range is this mapping's own, and nothing writes it any more.
        unsafe { mprotect(base.as_ptr().cast(), mapped, flags) }.map_err(|errno| {
            refused(
                errno,
                "allow code made at run time (SELinux: execmem; systemd: MemoryDenyWriteExecute)",
            )
        })?;
        Ok(executable)
    }

    /// The first byte of the code. Whoever runs it answers for what it does.
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// Bytes of code.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: no code is refused when it is made.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own. Nobody may run it any more.
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
        // SAFETY: the code is a function of this signature that touches nothing else.
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
    fn no_code_is_refused() {
        let refusal = Executable::new(&[]).unwrap_err().to_string();
        assert!(refusal.contains("give some code"), "{refusal}");
    }
}
