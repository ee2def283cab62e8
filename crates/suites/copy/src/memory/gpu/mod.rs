//! Memory of a GPU: allocated, copied and mapped through the CUDA driver.
//!
//! The driver's library is loaded by its name from the system's library path, and only in the process that measures or in
//! a child that checks for a GPU. Like a program found by `PATH`, it needs no permission: no file and no argument names it.

mod check;
mod driver;

use std::ffi::{OsStr, c_int};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};

pub(super) use check::available;
pub use check::capability;
use driver::{DevicePointer, Driver, LIBRARY, PointerKind};

/// Size of the pages of GPU memory: an allocation of whole pages can be exported.
const GPU_PAGE: usize = 2 << 20;

/// The first GPU, with an open context.
pub(crate) struct Gpu {
    driver: Driver,
    device: c_int,
    name: String,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Opens the GPU once per process.
    ///
    /// # Errors
    /// Returns `unavailable` without a driver or a GPU.
    pub(super) fn get() -> Result<Arc<Self>, Failure> {
        static GPU: OnceLock<Result<Arc<Gpu>, Failure>> = OnceLock::new();
        GPU.get_or_init(|| Self::open(OsStr::new(LIBRARY)).map(Arc::new)).clone()
    }

    /// Loads the driver and opens the first GPU. Its context becomes that of this thread.
    fn open(library: &OsStr) -> Result<Self, Failure> {
        let driver = Driver::load(library)?;
        if driver.device_count()? == 0 {
            let remedy = "attach a GPU, or name one in CUDA_VISIBLE_DEVICES";
            return Err(Failure::unavailable("the driver lists no GPU", remedy));
        }
        let (device, name) = driver.first_device()?;
        let version = driver.version()?;
        driver.open_context(device)?;
        let name = format!("{name}, CUDA {}.{}", version / 1000, version % 1000 / 10);
        Ok(Self { driver, device, name })
    }

    /// Returns the name of the GPU and the version of the driver's API.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Pins memory of the host, so that the GPU copies it directly.
    ///
    /// # Safety
    /// The memory must stay mapped as long as the result lives.
    pub(crate) unsafe fn pin(
        self: &Arc<Self>,
        start: *mut u8,
        bytes: usize,
    ) -> Result<PinnedMemory, Failure> {
        // SAFETY: the caller guarantees that the memory outlives the result, which unpins it.
        unsafe { self.driver.pin(start, bytes.next_multiple_of(PAGE)) }?;
        let pinned = PinnedMemory { gpu: Arc::clone(self), start };
        self.driver.check_kind(start as DevicePointer, PointerKind::Host)?;
        Ok(pinned)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.driver.close_context(self.device);
    }
}

/// Pinned memory of the host, unpinned when dropped.
pub(crate) struct PinnedMemory {
    gpu: Arc<Gpu>,
    start: *mut u8,
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was pinned by `Gpu::pin`, and copies are synchronous.
        unsafe { self.gpu.driver.unpin(self.start) }
    }
}

/// Allocated memory of a GPU, freed when dropped.
#[derive(Debug)]
pub(crate) struct GpuMemory {
    gpu: Arc<Gpu>,
    address: DevicePointer,
    bytes: usize,
}

impl GpuMemory {
    /// Allocates `bytes` bytes, rounded up to whole pages of the GPU.
    ///
    /// # Errors
    /// Returns `unavailable` without a GPU or if it has too little memory.
    pub(super) fn alloc(gpu: Arc<Gpu>, bytes: usize) -> Result<Self, Failure> {
        let bytes = bytes.checked_next_multiple_of(GPU_PAGE).unwrap_or(usize::MAX);
        let address = gpu.driver.alloc(bytes)?;
        let memory = Self { gpu, address, bytes };
        memory.gpu.driver.check_kind(address, PointerKind::Device)?;
        Ok(memory)
    }

    /// Returns the GPU.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Returns the device address of a range.
    fn range(&self, at: usize, length: usize) -> Result<DevicePointer, Failure> {
        match at.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(self.address.wrapping_add(at as u64)),
            _ => Err(Failure::failed(format!(
                "{length} B at {at} exceed the {} B of GPU memory",
                self.bytes
            ))),
        }
    }

    /// Copies bytes to the memory and waits until they have arrived.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        let to = self.range(at, bytes.len())?;
        let driver = &self.gpu.driver;
        // SAFETY: both ranges are valid.
        let code = unsafe { driver.to_device(to, bytes.as_ptr(), bytes.len()) };
        driver.check("cuMemcpyHtoD", code)?;
        // The copy of memory that is not pinned may return before the bytes have arrived.
        driver.synchronise()
    }

    /// Copies bytes from the memory.
    pub(super) fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), Failure> {
        let from = self.range(at, bytes.len())?;
        let driver = &self.gpu.driver;
        // SAFETY: both ranges are valid.
        let code = unsafe { driver.to_host(bytes.as_mut_ptr(), from, bytes.len()) };
        driver.check("cuMemcpyDtoH", code)
    }

    /// Maps the memory for loads and stores of the CPU through the GPU's BAR, if the driver permits it.
    ///
    /// # Errors
    /// Returns `unavailable` if the driver exports no memory or maps none of it.
    pub(super) fn map(&self, length: usize) -> Result<Mapping, Failure> {
        let file = self.gpu.driver.export(self.address, self.bytes)?;
        // SAFETY: the driver returned a new descriptor, which nothing else owns.
        let file = unsafe { File::from_raw_fd(file) };
        Mapping::dma_buf(&file, length).map_err(Failure::refused)
    }

    /// Returns the copies of a timed loop. The host's side of them is pinned by [`Gpu::pin`].
    pub(crate) fn copies(&self, start: usize, write: bool) -> Result<DriverCopies<'_>, Failure> {
        self.range(start, 0)?;
        Ok(DriverCopies { memory: self, start, write, failed: AtomicI32::new(0) })
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the memory, and copies are synchronous.
        unsafe { self.gpu.driver.free(self.address) }
    }
}

/// Copies by calls of the driver between pinned memory of the host and GPU memory from offset `start` on.
pub(crate) struct DriverCopies<'a> {
    memory: &'a GpuMemory,
    start: usize,
    write: bool,
    /// The code of a failed call; 0 if none failed.
    failed: AtomicI32,
}

impl DriverCopies<'_> {
    /// Copies `length` bytes between the host's address and offset `at`.
    ///
    /// # Safety
    /// Both ranges must be valid.
    #[inline(always)]
    pub(crate) unsafe fn copy(&self, host: *mut u8, at: usize, length: usize) {
        let driver = &self.memory.gpu.driver;
        let device = self.memory.address.wrapping_add((self.start.wrapping_add(at)) as u64);
        // SAFETY: the caller guarantees both ranges.
        let code = unsafe {
            if self.write {
                driver.to_device(device, host, length)
            } else {
                driver.to_host(host, device, length)
            }
        };
        if code != 0 {
            self.failed.store(code, Ordering::Relaxed);
        }
    }

    /// Returns whether the copies write the GPU's memory.
    pub(crate) fn is_write(&self) -> bool {
        self.write
    }

    /// Checks that no call failed.
    pub(crate) fn check_complete(&self) -> Result<(), Failure> {
        let call = if self.write { "cuMemcpyHtoD" } else { "cuMemcpyDtoH" };
        self.memory.gpu.driver.check(call, self.failed.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
