//! Copies with a driver over memory of the host, compiled from `tests/gpu/driver.c`: loading, errors, copies and checks
//! are real.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::sample::FailureKind;

use super::*;
use crate::memory::{Call, MemoryKind, Region};
use crate::pattern::Pattern;

/// A compiled driver in a temporary folder.
struct TestDriver {
    _folder: tempfile::TempDir,
    library: PathBuf,
}

impl TestDriver {
    fn build(definitions: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("driver.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
            .arg(&library)
            .args(definitions.iter().map(|name| format!("-D{name}")))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/driver.c"))
            .status()
            .unwrap();
        assert!(built.success());
        Self { _folder: folder, library }
    }

    fn open(&self) -> Result<Arc<Gpu>, Failure> {
        Gpu::open(self.library.as_os_str()).map(Arc::new)
    }

    /// Returns the number of allocations, pinned ranges and contexts that were not given back.
    fn outstanding(&self) -> i32 {
        // SAFETY: the library of the test has no initialisers, and the function this type.
        unsafe {
            let library = libloading::Library::new(&self.library).unwrap();
            let outstanding = library.get::<extern "C" fn() -> i32>(b"outstanding\0").unwrap();
            outstanding()
        }
    }
}

fn call(at: u32, length: u32) -> Call {
    Call { at, length }
}

#[test]
fn copies_reach_the_gpu_and_everything_is_given_back() {
    let driver = TestDriver::build(&[]);
    // Keeps the library loaded, with its counts.
    let gpu = driver.open().unwrap();
    assert_eq!(gpu.name(), "Test GPU, CUDA 12.4");
    assert_eq!(driver.outstanding(), 1, "the context");
    let memory = GpuMemory::alloc(Arc::clone(&gpu), 10_000).unwrap();
    let mut region = Region::on_gpu(MemoryKind::Gpu, memory, 10_000).unwrap();
    let pattern = Pattern { offset: 9 };
    region.fill(pattern, 100, 5000).unwrap();
    let counts = region.verify(pattern, 100, &[call(0, 5000), call(300, 50)]).unwrap();
    assert_eq!((counts.delivered, counts.bytes), (2, 5050));
    let other = region.verify(Pattern { offset: 8 }, 100, &[call(0, 5000)]).unwrap();
    assert_eq!((other.delivered, other.missing), (0, 1));
    assert!(region.verify(pattern, 9000, &[call(0, 1001)]).is_err(), "beyond its end");

    let host = Mapping::anonymous(2 * PAGE).unwrap();
    // SAFETY: the mapping lives longer than the copies, which stay in it.
    unsafe {
        let pinned = gpu.pin(host.as_mut_ptr(), 5000).unwrap();
        assert_eq!(driver.outstanding(), 3);
        // The driver refuses to pin the same memory twice.
        let twice = gpu.pin(host.as_mut_ptr(), 1).err().unwrap();
        assert!(
            twice.why.starts_with("cuMemHostRegister of 4096 B: unknown error (712)"),
            "{twice}"
        );
        let device = region.device().unwrap();
        let copies = device.copies(100, false).unwrap();
        copies.copy(host.as_mut_ptr(), 0, 5000);
        copies.check_complete().unwrap();
        let bytes = std::slice::from_raw_parts(host.as_ptr(), 5000);
        assert_eq!(pattern.first_mismatch(0, bytes), None);
        // A failed call of a timed loop is not lost.
        copies.copy(host.as_mut_ptr(), GPU_PAGE, 1);
        let failure = copies.check_complete().unwrap_err();
        assert_eq!(failure.kind, FailureKind::Failed);
        assert_eq!(failure.why, "cuMemcpyDtoH: CUDA_ERROR_INVALID_VALUE (1)");
        drop(pinned);
    }
    drop(region);
    assert_eq!(driver.outstanding(), 1);
    let count = |library: &libloading::os::unix::Library| {
        // SAFETY: the library of the test has this function.
        unsafe { library.get::<extern "C" fn() -> i32>(b"outstanding\0").unwrap()() }
    };
    // SAFETY: the library is loaded already.
    let library = unsafe { libloading::os::unix::Library::new(&driver.library) }.unwrap();
    drop(gpu);
    assert_eq!(count(&library), 0);
}

#[test]
fn memory_that_does_not_arrive_fails_the_check() {
    let driver = TestDriver::build(&["DAMAGED"]);
    let memory = GpuMemory::alloc(driver.open().unwrap(), 4096).unwrap();
    let mut region = Region::on_gpu(MemoryKind::Gpu, memory, 4096).unwrap();
    region.fill(Pattern { offset: 5 }, 0, 4096).unwrap();
    let counts = region.verify(Pattern { offset: 5 }, 0, &[call(0, 4096)]).unwrap();
    assert_eq!((counts.delivered, counts.torn, counts.torn_at), (0, 1, 4095));
}

#[test]
fn stores_through_the_bar_are_seen_by_the_driver() {
    let driver = TestDriver::build(&[]);
    let memory = GpuMemory::alloc(driver.open().unwrap(), 8192).unwrap();
    let mut region = Region::on_gpu(MemoryKind::GpuBar, memory, 8192).unwrap();
    let pattern = Pattern { offset: 3 };
    // SAFETY: the region has 8192 bytes, and only this test uses it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(region.start(), 8192) };
    pattern.fill(0, bytes);
    assert_eq!(region.verify(pattern, 0, &[call(0, 8192)]).unwrap().delivered, 1);
    // The driver's copies are seen by loads.
    region.fill(Pattern { offset: 4 }, 0, 8192).unwrap();
    assert_eq!(Pattern { offset: 4 }.first_mismatch(0, bytes), None);
}

#[test]
fn each_absence_has_its_reason_and_remedy() {
    let refused = |result: Result<(), Failure>, why: &str, remedy: &str| {
        let failure = result.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
        assert!(failure.why.contains(why), "{failure}");
        assert!(failure.remedy.as_ref().unwrap().contains(remedy), "{failure}");
        assert_eq!(failure.to_string().lines().count(), 1);
    };
    let absent = Gpu::open(OsStr::new("/nowhere/libcuda.so.1")).map(drop);
    refused(absent, "cannot load the CUDA driver: /nowhere/libcuda.so.1", "LD_LIBRARY_PATH");
    let libc = Gpu::open(OsStr::new("libc.so.6")).map(drop);
    refused(libc, "libc.so.6 has no function cuInit", "CUDA 11");
    let no_gpu = TestDriver::build(&["NO_GPU"]).open().map(drop);
    refused(
        no_gpu,
        "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected",
        "nvidia-smi",
    );
    let full = TestDriver::build(&["FULL"]);
    let alloc = GpuMemory::alloc(full.open().unwrap(), 1).map(drop);
    refused(alloc, "cuMemAlloc of 2097152 B: CUDA_ERROR_OUT_OF_MEMORY (2)", "copy less");
    let map = |definition| {
        let driver = TestDriver::build(&[definition]);
        let memory = GpuMemory::alloc(driver.open().unwrap(), 4096).unwrap();
        Region::on_gpu(MemoryKind::GpuBar, memory, 4096).map(drop)
    };
    refused(map("NO_EXPORT"), "no function cuMemGetHandleForAddressRange", "CUDA 11.7");
    refused(map("UNMAPPED"), "map 4096 B of a DMA-BUF", "memory = gpu");
}

#[test]
fn the_check_survives_a_driver_that_does_not() {
    let check = |definitions: &[&str], limit| {
        check::in_child(TestDriver::build(definitions).library.as_os_str(), limit)
    };
    let long = Duration::from_secs(60);
    assert_eq!(check(&[], long), Ok("Test GPU, CUDA 12.4".to_owned()));
    let failure = check(&["NO_GPU"], long).unwrap_err();
    assert!(failure.why.contains("CUDA_ERROR_NO_DEVICE"), "{failure}");
    assert!(failure.remedy.unwrap().contains("nvidia-smi"));
    let failure = check(&["DIES"], long).unwrap_err();
    assert!(failure.why.contains("ended the process"), "{failure}");
    let start = Instant::now();
    let failure = check(&["HANGS"], Duration::from_millis(300)).unwrap_err();
    assert!(failure.why.contains("does not start within"), "{failure}");
    assert!(start.elapsed() < long);
}

#[test]
fn this_machine_has_a_gpu_or_states_why_not() {
    if let Err(failure) = available() {
        assert!(failure.remedy.as_ref().is_some_and(|remedy| !remedy.is_empty()), "{failure}");
        machine::untested::note("copies to a GPU", &failure);
        return;
    }
    let memory = GpuMemory::alloc(Gpu::get().unwrap(), 1 << 20).unwrap();
    let mut region = Region::on_gpu(MemoryKind::Gpu, memory, 1 << 20).unwrap();
    region.fill(Pattern { offset: 5 }, 0, 1 << 20).unwrap();
    let counts = region.verify(Pattern { offset: 5 }, 0, &[call(0, 1 << 20)]).unwrap();
    assert_eq!(counts.delivered, 1);
}
