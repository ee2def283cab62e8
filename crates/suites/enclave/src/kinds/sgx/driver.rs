//! The kernel's driver, which creates SGX enclaves.
//!
//! Source: Linux, `asm/sgx.h` and `Documentation/arch/x86/sgx.rst`.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr;

use rustix::ioctl::{self, Setter, Updater, opcode};
use rustix::mm::{self, MapFlags, ProtFlags};

use super::structures::{EXECUTE, READ, SecInfo, Secs, SigStruct, THREAD_PAGE, WRITE};
use crate::conf::PAGE;

/// The driver's device file.
pub(super) const FILE: &str = "/dev/sgx_enclave";

/// Its ioctl group.
const GROUP: u8 = 0xa4;
const CREATE: ioctl::Opcode = opcode::write::<Create>(GROUP, 0);
const ADD_PAGES: ioctl::Opcode = opcode::read_write::<AddPages>(GROUP, 1);
const INIT: ioctl::Opcode = opcode::write::<Init>(GROUP, 2);
/// The flag that requests a measurement of the pages' bytes.
const MEASURE: u64 = 1;

/// `sgx_enclave_create`: the address of a SECS.
#[repr(C)]
struct Create(u64);

/// `sgx_enclave_init`: the address of a SIGSTRUCT.
#[repr(C)]
struct Init(u64);

/// `sgx_enclave_add_pages`.
#[repr(C)]
struct AddPages {
    source: u64,
    offset: u64,
    length: u64,
    information: u64,
    flags: u64,
    /// Output: how many bytes were added.
    added: u64,
}

/// An SGX driver, which creates one enclave step by step: the kernel's, or the emulation for tests.
pub(super) trait Driver: Sized + Send + Sync {
    /// Creates an enclave without pages.
    fn create(&self, secs: &Secs) -> io::Result<()>;

    /// Adds pages from page-aligned bytes.
    fn add(
        &self,
        offset: usize,
        bytes: &[u8],
        information: &SecInfo,
        measured: bool,
    ) -> io::Result<()>;

    /// Initialises the enclave, which can be entered then.
    fn init(&self, signature: &SigStruct) -> io::Result<()>;

    /// Maps pages that were added; the enclave's address range is already reserved.
    fn map(&self, addresses: Range<usize>, flags: u64) -> io::Result<()>;
}

/// An enclave of the kernel's driver, which lives as long as this and its mappings.
#[derive(Debug)]
pub(super) struct Kernel(File);

impl Kernel {
    /// Opens the driver for a new enclave.
    pub(super) fn open() -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(FILE).map(Self)
    }
}

impl Driver for Kernel {
    fn create(&self, secs: &Secs) -> io::Result<()> {
        let given = Create(ptr::from_ref(secs) as u64);
        // SAFETY: the driver reads a SECS at that address.
        unsafe { Ok(ioctl::ioctl(self.0.as_fd(), Setter::<CREATE, Create>::new(given))?) }
    }

    fn add(
        &self,
        offset: usize,
        bytes: &[u8],
        information: &SecInfo,
        measured: bool,
    ) -> io::Result<()> {
        let mut added = 0;
        while added < bytes.len() {
            let mut given = AddPages {
                source: bytes[added..].as_ptr() as u64,
                offset: (offset + added) as u64,
                length: (bytes.len() - added) as u64,
                information: ptr::from_ref(information) as u64,
                flags: if measured { MEASURE } else { 0 },
                added: 0,
            };
            // SAFETY: the driver reads the bytes and a SECINFO, and writes how many bytes it added.
            let result = unsafe {
                let request = Updater::<ADD_PAGES, AddPages>::new(&mut given);
                ioctl::ioctl(self.0.as_fd(), request)
            };
            // A signal between two pages interrupts the call; the loop continues it.
            match result {
                Ok(()) | Err(rustix::io::Errno::INTR) => added += given.added as usize,
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    fn init(&self, signature: &SigStruct) -> io::Result<()> {
        let given = Init(ptr::from_ref(signature) as u64);
        // SAFETY: the driver reads a SIGSTRUCT at that address.
        unsafe { Ok(ioctl::ioctl(self.0.as_fd(), Setter::<INIT, Init>::new(given))?) }
    }

    fn map(&self, addresses: Range<usize>, flags: u64) -> io::Result<()> {
        let how = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the caller has reserved these addresses, which are not used otherwise.
        let mapped = unsafe {
            let at = addresses.start as *mut std::ffi::c_void;
            mm::mmap(at, addresses.len(), access(flags), how, self.0.as_fd(), 0)
        };
        Ok(mapped.map(drop)?)
    }
}

/// Returns the mapping rights of pages with these flags. Only the CPU reads and writes a TCS, but the driver
/// requires the rights.
pub(super) fn access(flags: u64) -> ProtFlags {
    if flags & THREAD_PAGE != 0 {
        return ProtFlags::READ | ProtFlags::WRITE;
    }
    [(READ, ProtFlags::READ), (WRITE, ProtFlags::WRITE), (EXECUTE, ProtFlags::EXEC)]
        .into_iter()
        .filter(|(flag, _)| flags & flag != 0)
        .fold(ProtFlags::empty(), |all, (_, one)| all | one)
}

/// Returns the fix for the failure of a step.
pub(super) fn advice(step: Step, why: &io::Error) -> &'static str {
    match (step, why.raw_os_error()) {
        (_, Some(libc::ENOMEM)) => {
            "the SGX memory (EPC) or the kernel's memory is full: use fewer pages, or unload other enclaves"
        }
        (Step::Map, Some(libc::EPERM)) => "/dev is mounted noexec: mount -o remount,exec /dev",
        (Step::Map, Some(libc::EACCES)) => {
            "the process runs with READ_IMPLIES_EXEC (setarch -X), or SELinux refuses it: see ausearch -m avc"
        }
        (Step::Create, Some(libc::EIO)) => {
            "the CPU refuses the enclave's size or attributes: use fewer pages, and see the kernel log"
        }
        (Step::Init, Some(libc::EPERM)) => {
            "the CPU refuses the signature, the measurement or the attributes: report this defect"
        }
        (_, Some(libc::EIO)) => "the CPU lost the enclave's memory, e.g. by a suspend: try again",
        (_, Some(libc::EINVAL)) => "the CPU does not support such an enclave: use fewer pages",
        _ => "see the kernel log",
    }
}

/// A step of creating an enclave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Open,
    Create,
    Add,
    Map,
    Init,
}

impl Step {
    /// Returns the name of the step.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "opening /dev/sgx_enclave",
            Self::Create => "SGX_IOC_ENCLAVE_CREATE",
            Self::Add => "SGX_IOC_ENCLAVE_ADD_PAGES",
            Self::Map => "mmap of /dev/sgx_enclave",
            Self::Init => "SGX_IOC_ENCLAVE_INIT",
        }
    }
}

const _: () = assert!(size_of::<AddPages>() == 48 && align_of::<Secs>() == PAGE);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Prints the values of the kernel's header.
    const PROGRAM: &str = r#"
        #include <stdio.h>
        #include <asm/sgx.h>
        int main(void) {
            printf("%lu %lu %lu %d %zu", (unsigned long)SGX_IOC_ENCLAVE_CREATE,
                   (unsigned long)SGX_IOC_ENCLAVE_ADD_PAGES, (unsigned long)SGX_IOC_ENCLAVE_INIT,
                   SGX_PAGE_MEASURE, sizeof(struct sgx_enclave_run));
        }
    "#;

    #[test]
    fn the_numbers_match_the_kernels_header() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("numbers.c"), folder.path().join("numbers"));
        std::fs::write(&source, PROGRAM).unwrap();
        let made = Command::new("cc").arg(&source).arg("-o").arg(&program).output().unwrap();
        let stderr = String::from_utf8_lossy(&made.stderr);
        if stderr.contains("asm/sgx.h: No such file") {
            return machine::untested::note("the_numbers_match_the_kernels_header", &stderr.trim());
        }
        assert!(made.status.success(), "{stderr}");
        let printed = Command::new(&program).output().unwrap().stdout;
        let ours = format!("{CREATE} {ADD_PAGES} {INIT} {MEASURE} 256");
        assert_eq!(String::from_utf8(printed).unwrap(), ours);
    }

    #[test]
    fn the_error_of_each_step_states_a_fix() {
        let advice = |step, errno| advice(step, &io::Error::from_raw_os_error(errno));
        assert!(advice(Step::Add, libc::ENOMEM).contains("EPC"));
        assert!(advice(Step::Map, libc::EPERM).contains("remount,exec"));
        assert!(advice(Step::Init, libc::EPERM).contains("signature"));
        assert!(advice(Step::Create, libc::EIO).contains("size"));
        assert!(advice(Step::Add, libc::EIO).contains("try again"));
        assert!(advice(Step::Create, libc::EINVAL).contains("fewer pages"));
        assert!(!advice(Step::Open, libc::EBADF).is_empty());
    }
}
