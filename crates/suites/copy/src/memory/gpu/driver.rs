//! The CUDA driver API, loaded at run time from the library of the system's driver.

use std::error::Error;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use lab::sample::Failure;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The library of the driver, found by the dynamic linker.
pub(super) const LIBRARY: &str = "libcuda.so.1";

/// An address of GPU memory. The CPU cannot access it.
pub(super) type DevicePointer = u64;
/// An opaque handle of a context.
pub(super) type ContextHandle = usize;

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
const MEMORY_TYPE: c_int = 2;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`
const DMA_BUF: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: c_int = 801;

/// The kind of memory at an address, as the driver reports it (`CUmemorytype`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointerKind {
    /// Memory of the host that the driver has pinned.
    Host = 1,
    /// Memory of the GPU.
    Device = 2,
}

/// Declares the table of the driver's functions, each with its symbol and type.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($type:ty),*);)*) => {
        /// Functions of the driver, valid while the library is loaded. Each returns a `CUresult`, 0 for success.
        struct Functions {
            $($(#[$doc])* $name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the symbol has this type by the header of CUDA 11 and later.
                        let symbol = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *symbol.map_err(|_| $symbol)?
                    },)*
                })
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    retain = "cuDevicePrimaryCtxRetain" (*mut ContextHandle, c_int);
    release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    set_current = "cuCtxSetCurrent" (ContextHandle);
    synchronise = "cuCtxSynchronize" ();
    alloc = "cuMemAlloc_v2" (*mut DevicePointer, usize);
    free = "cuMemFree_v2" (DevicePointer);
    register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    unregister = "cuMemHostUnregister" (*mut c_void);
    to_device = "cuMemcpyHtoD_v2" (DevicePointer, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2" (*mut c_void, DevicePointer, usize);
    pointer_attribute = "cuPointerGetAttribute" (*mut c_void, c_int, DevicePointer);
    error_name = "cuGetErrorName" (c_int, *mut *const c_char);
    error_text = "cuGetErrorString" (c_int, *mut *const c_char);
}

/// `cuMemGetHandleForAddressRange`, which drivers have since CUDA 11.7.
type HandleForRange = unsafe extern "C" fn(*mut c_void, DevicePointer, usize, c_int, u64) -> c_int;

/// The loaded driver.
pub(super) struct Driver {
    functions: Functions,
    handle_for_range: Option<HandleForRange>,
    /// Keeps the functions valid.
    _library: Library,
}

impl Driver {
    /// Loads a library, which runs its initialisers, and initialises the driver.
    ///
    /// # Errors
    /// Returns `unavailable` if there is no library or no driver that works.
    pub(super) fn load(library: &OsStr) -> Result<Self, Failure> {
        let name = library.display();
        let flags = RTLD_NOW | RTLD_LOCAL;
        // SAFETY: the library is the system's driver, whose initialisers every CUDA program runs.
        let library = unsafe { Library::open(Some(library), flags) }.map_err(|why| {
            // The error itself only names the call.
            let why = why.source().map_or_else(|| why.to_string(), ToString::to_string);
            Failure::unavailable(
                format!("cannot load the CUDA driver: {why}"),
                "install the NVIDIA driver, or add the folder of libcuda.so.1 to LD_LIBRARY_PATH",
            )
            .with_cause("no CUDA driver")
        })?;
        let functions = Functions::find(&library).map_err(|symbol| {
            let why = format!("{name} has no function {symbol}");
            Failure::unavailable(why, "install the NVIDIA driver of CUDA 11 or later")
        })?;
        // SAFETY: the symbol has this type by the header of CUDA 11.7 and later.
        let handle_for_range =
            unsafe { library.get::<HandleForRange>(b"cuMemGetHandleForAddressRange\0") };
        let handle_for_range = handle_for_range.ok().map(|symbol| *symbol);
        let driver = Self { functions, handle_for_range, _library: library };
        // SAFETY: 0 is the only valid flag.
        let code = unsafe { (driver.functions.init)(0) };
        driver.check("cuInit", code).map_err(|failure| Failure {
            kind: lab::sample::FailureKind::Unavailable,
            remedy: Some(
                "check that nvidia-smi lists a GPU and that this user may open /dev/nvidia*".into(),
            ),
            ..failure
        })?;
        Ok(driver)
    }

    /// Returns the failure of a call that returned an error.
    pub(super) fn check(&self, call: &str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: the driver stores the address of a static string, or null for an unknown code.
            unsafe {
                let known = function(code, &raw mut text) == 0 && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = text(self.functions.error_name).unwrap_or_else(|| "unknown error".into());
        let about = text(self.functions.error_text).map_or(String::new(), |it| format!(": {it}"));
        let why = format!("{call}: {name} ({code}){about}");
        let cause = format!("{call}: {name}");
        Err(match code {
            OUT_OF_MEMORY => Failure::unavailable(why, "copy less, or free memory of the GPU"),
            NOT_SUPPORTED => Failure::unavailable(why, "use a GPU and a driver that support it"),
            _ => Failure {
                remedy: Some("see the lines NVRM of the kernel log".into()),
                ..Failure::failed(why)
            },
        }
        .with_cause(cause))
    }

    /// Returns the version of the API that the driver supports, e.g. 12040 for 12.4.
    pub(super) fn version(&self) -> Result<c_int, Failure> {
        let mut version = 0;
        // SAFETY: it stores a number.
        let code = unsafe { (self.functions.driver_version)(&raw mut version) };
        self.check("cuDriverGetVersion", code)?;
        Ok(version)
    }

    /// Returns the number of GPUs.
    pub(super) fn device_count(&self) -> Result<c_int, Failure> {
        let mut count = 0;
        // SAFETY: it stores a number.
        let code = unsafe { (self.functions.device_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code)?;
        Ok(count)
    }

    /// Returns the first GPU and its name.
    pub(super) fn first_device(&self) -> Result<(c_int, String), Failure> {
        let mut device = 0;
        // SAFETY: it stores a number.
        let code = unsafe { (self.functions.device)(&raw mut device, 0) };
        self.check("cuDeviceGet", code)?;
        let mut name = [0_u8; 256];
        // SAFETY: it writes at most as many bytes as the buffer has; the last one stays 0.
        let code = unsafe { (self.functions.device_name)(name.as_mut_ptr().cast(), 255, device) };
        self.check("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy);
        Ok((device, name.unwrap_or_default().into_owned()))
    }

    /// Opens the primary context of a GPU and makes it that of this thread.
    pub(super) fn open_context(&self, device: c_int) -> Result<(), Failure> {
        let mut context: ContextHandle = 0;
        // SAFETY: it stores a handle.
        let code = unsafe { (self.functions.retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        // SAFETY: the handle is that of the retained context.
        let code = unsafe { (self.functions.set_current)(context) };
        self.check("cuCtxSetCurrent", code).inspect_err(|_| self.close_context(device))
    }

    /// Closes the primary context of a GPU.
    pub(super) fn close_context(&self, device: c_int) {
        // SAFETY: the context was retained, and its memory is freed. An error leaves it open until the process ends.
        let _ = unsafe { (self.functions.release)(device) };
    }

    /// Waits for all work of the context.
    pub(super) fn synchronise(&self) -> Result<(), Failure> {
        // SAFETY: it has no arguments.
        let code = unsafe { (self.functions.synchronise)() };
        self.check("cuCtxSynchronize", code)
    }

    /// Allocates GPU memory.
    pub(super) fn alloc(&self, bytes: usize) -> Result<DevicePointer, Failure> {
        let mut address = 0;
        // SAFETY: it stores an address.
        let code = unsafe { (self.functions.alloc)(&raw mut address, bytes) };
        self.check(&format!("cuMemAlloc of {bytes} B"), code)?;
        Ok(address)
    }

    /// Frees GPU memory.
    ///
    /// # Safety
    /// The memory must be allocated and must not be used later.
    pub(super) unsafe fn free(&self, address: DevicePointer) {
        // SAFETY: the caller guarantees it. An error leaves the memory allocated until the process ends.
        let _ = unsafe { (self.functions.free)(address) };
    }

    /// Pins memory of the host.
    ///
    /// # Safety
    /// The memory must stay mapped until it is unpinned.
    pub(super) unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<(), Failure> {
        // SAFETY: the caller guarantees that the range is mapped; 0 selects no flag.
        let code = unsafe { (self.functions.register)(start.cast(), bytes, 0) };
        self.check(&format!("cuMemHostRegister of {bytes} B"), code)
    }

    /// Unpins memory of the host.
    ///
    /// # Safety
    /// The memory must be pinned, and no copy may use it.
    pub(super) unsafe fn unpin(&self, start: *mut u8) {
        // SAFETY: the caller guarantees it. An error leaves the memory pinned until the process ends.
        let _ = unsafe { (self.functions.unregister)(start.cast()) };
    }

    /// Copies from the host to the GPU. Returns the driver's code, which [`check`](Self::check) explains: timed loops
    /// call this function.
    ///
    /// # Safety
    /// Both ranges must be valid.
    #[inline(always)]
    pub(super) unsafe fn to_device(
        &self,
        to: DevicePointer,
        from: *const u8,
        bytes: usize,
    ) -> c_int {
        // SAFETY: the caller guarantees both ranges.
        unsafe { (self.functions.to_device)(to, from.cast(), bytes) }
    }

    /// Copies from the GPU to the host. Returns the driver's code.
    ///
    /// # Safety
    /// Both ranges must be valid.
    #[inline(always)]
    pub(super) unsafe fn to_host(&self, to: *mut u8, from: DevicePointer, bytes: usize) -> c_int {
        // SAFETY: the caller guarantees both ranges.
        unsafe { (self.functions.to_host)(to.cast(), from, bytes) }
    }

    /// Checks that the driver considers an address memory of a kind.
    pub(super) fn check_kind(
        &self,
        address: DevicePointer,
        expected: PointerKind,
    ) -> Result<(), Failure> {
        let mut kind: c_uint = 0;
        let into = (&raw mut kind).cast();
        // SAFETY: it stores a number of 4 bytes, and reads no memory at the address.
        let code = unsafe { (self.functions.pointer_attribute)(into, MEMORY_TYPE, address) };
        self.check("cuPointerGetAttribute", code)?;
        if kind == expected as c_uint {
            return Ok(());
        }
        let expected = expected as c_uint;
        let why = format!("the driver reports memory type {kind} at {address:#x}, not {expected}");
        Err(Failure::failed(why))
    }

    /// Exports GPU memory as a DMA-BUF. Returns its file descriptor.
    pub(super) fn export(&self, address: DevicePointer, bytes: usize) -> Result<c_int, Failure> {
        const CALL: &str = "cuMemGetHandleForAddressRange";
        let Some(export) = self.handle_for_range else {
            let why = format!("the driver has no function {CALL}");
            return Err(Failure::unavailable(
                why,
                "install the NVIDIA driver of CUDA 11.7 or later",
            ));
        };
        let mut file: c_int = -1;
        // SAFETY: for this type of handle it stores a file descriptor.
        let code = unsafe { export((&raw mut file).cast(), address, bytes, DMA_BUF, 0) };
        self.check(CALL, code)?;
        Ok(file)
    }
}
