//! Hyperscan, a library that matches many regular expressions at once, in streams of bytes.
//!
//! The library is loaded when it is first needed, so the program runs without it. The declarations are those of version 5 of its
//! header `hs.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::Arc;

/// Name of the library of version 5.
const LIBRARY: &str = "libhs.so.5";

const SUCCESS: c_int = 0;
const MODE_STREAM: c_uint = 2;
/// `.` does not match a newline, and `^` and `$` match at lines.
const FLAG_MULTILINE: c_uint = 4;
const FLAG_CASELESS: c_uint = 1;

/// Why Hyperscan is not available, or refuses patterns.
#[derive(Debug, thiserror::Error)]
pub enum HyperscanError {
    /// The library cannot be loaded.
    #[error("Hyperscan is not available: {0}; apt-get install libhyperscan5")]
    Missing(#[source] libloading::Error),
    /// The CPU lacks SSSE3.
    #[error("Hyperscan is not available: the CPU lacks SSSE3; use another machine")]
    Cpu,
    /// A pattern cannot be compiled.
    #[error("pattern {pattern:?}: {why}; rewrite it without the construct")]
    Pattern {
        /// The pattern; empty if the error is not about one.
        pattern: String,
        /// Hyperscan's message.
        why: String,
    },
    /// A call failed, e.g. for lack of memory.
    #[error("Hyperscan's {call} failed with {code}; use fewer patterns or streams")]
    Call {
        /// The function.
        call: &'static str,
        /// Its result.
        code: c_int,
    },
}

#[repr(C)]
struct CompileError {
    message: *mut c_char,
    expression: c_int,
}

/// Called for each match: pattern, start (0), end, flags, context. A result other than 0 ends the scan.
type OnMatch = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the library.
        #[derive(Debug, Clone, Copy)]
        struct Functions {
            $($(#[$doc])* $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// `library` is Hyperscan 5, whose functions have these types.
            unsafe fn load(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller guarantees the types. The symbols are used while the library is loaded.
                unsafe { Ok(Self { $($name: *library.get(stringify!($name))?,)* }) }
            }
        }
    };
}

functions! {
    /// Checks that the CPU has SSSE3.
    hs_valid_platform() -> c_int;
    /// Compiles expressions with their flags and numbers, for a mode and a CPU (null: this one).
    hs_compile_multi(*const *const c_char, *const c_uint, *const c_uint, c_uint, c_uint, *const c_void, *mut *mut c_void, *mut *mut CompileError) -> c_int;
    hs_free_compile_error(*mut CompileError) -> c_int;
    hs_free_database(*mut c_void) -> c_int;
    /// Allocates the memory of one scan at a time.
    hs_alloc_scratch(*const c_void, *mut *mut c_void) -> c_int;
    hs_free_scratch(*mut c_void) -> c_int;
    hs_open_stream(*const c_void, c_uint, *mut *mut c_void) -> c_int;
    /// Scans bytes of a stream: stream, bytes, number, flags, scratch, function and context.
    hs_scan_stream(*mut c_void, *const c_char, c_uint, c_uint, *mut c_void, Option<OnMatch>, *mut c_void) -> c_int;
    /// Ends a stream and begins it again.
    hs_reset_stream(*mut c_void, c_uint, *mut c_void, Option<OnMatch>, *mut c_void) -> c_int;
    hs_close_stream(*mut c_void, *mut c_void, Option<OnMatch>, *mut c_void) -> c_int;
}

/// The loaded library.
#[derive(Debug)]
pub struct Hyperscan {
    functions: Functions,
    _library: libloading::Library,
}

impl Hyperscan {
    /// Loads the library.
    ///
    /// # Errors
    /// Returns why it is not available.
    pub fn load() -> Result<Arc<Self>, HyperscanError> {
        // SAFETY: Debian's library has only the constructors of the C++ runtime.
        let library =
            unsafe { libloading::Library::new(LIBRARY) }.map_err(HyperscanError::Missing)?;
        // SAFETY: the name contains the version of the interface.
        let functions = unsafe { Functions::load(&library) }.map_err(HyperscanError::Missing)?;
        // SAFETY: the function has no preconditions.
        if unsafe { (functions.hs_valid_platform)() } != SUCCESS {
            return Err(HyperscanError::Cpu);
        }
        Ok(Arc::new(Self { functions, _library: library }))
    }
}

/// A pattern in Hyperscan's syntax, that of PCRE without lookaround and references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The expression.
    pub text: String,
    /// Whether it ignores case.
    pub caseless: bool,
}

/// Compiled patterns. A match is reported with the pattern's position in the list.
#[derive(Debug)]
pub struct Database {
    library: Arc<Hyperscan>,
    database: *mut c_void,
}

// SAFETY: a database is constant after its compilation.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Compiles patterns for streams.
    ///
    /// # Errors
    /// Returns the first pattern that cannot be compiled.
    pub fn new(
        library: &Arc<Hyperscan>,
        patterns: &[Pattern],
    ) -> Result<Arc<Self>, HyperscanError> {
        let texts = patterns.iter().map(|pattern| CString::new(pattern.text.as_str()));
        let texts = texts.collect::<Result<Vec<_>, _>>().map_err(|why| {
            HyperscanError::Pattern { pattern: String::new(), why: why.to_string() }
        })?;
        let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let flags = patterns
            .iter()
            .map(|pattern| FLAG_MULTILINE | if pattern.caseless { FLAG_CASELESS } else { 0 });
        let flags: Vec<c_uint> = flags.collect();
        let count = patterns.len() as c_uint;
        let numbers: Vec<c_uint> = (0..count).collect();
        let (mut database, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the three lists have `count` elements; the texts end with 0 and outlive the call.
        let code = unsafe {
            (library.functions.hs_compile_multi)(
                pointers.as_ptr(),
                flags.as_ptr(),
                numbers.as_ptr(),
                count,
                MODE_STREAM,
                ptr::null(),
                &mut database,
                &mut error,
            )
        };
        if code == SUCCESS {
            return Ok(Arc::new(Self { library: Arc::clone(library), database }));
        }
        // SAFETY: the call failed, so it set the error, or left it null.
        let why = unsafe { error.as_ref() }.map(|error| {
            // SAFETY: an error has a message that ends with 0.
            let message = unsafe { CStr::from_ptr(error.message) };
            (message.to_string_lossy().into_owned(), usize::try_from(error.expression).ok())
        });
        // SAFETY: the error was returned by the call, and is not used any more.
        unsafe { (library.functions.hs_free_compile_error)(error) };
        let (why, expression) = why.unwrap_or_default();
        let pattern = expression.and_then(|number| patterns.get(number));
        let pattern = pattern.map(|pattern| pattern.text.clone()).unwrap_or_default();
        Err(HyperscanError::Pattern { pattern, why })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database was returned by a compilation, and no scanner uses it.
        unsafe { (self.library.functions.hs_free_database)(self.database) };
    }
}

/// A fixed number of streams that one thread scans.
#[derive(Debug)]
pub struct Scanner {
    database: Arc<Database>,
    scratch: *mut c_void,
    streams: Vec<*mut c_void>,
}

// SAFETY: streams and scratch belong to the scanner, and have no thread.
unsafe impl Send for Scanner {}

fn check(call: &'static str, code: c_int) -> Result<(), HyperscanError> {
    if code == SUCCESS { Ok(()) } else { Err(HyperscanError::Call { call, code }) }
}

impl Scanner {
    /// Creates a scanner with `streams` empty streams.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(database: &Arc<Database>, streams: usize) -> Result<Self, HyperscanError> {
        let mut scanner =
            Self { database: Arc::clone(database), scratch: ptr::null_mut(), streams: vec![] };
        let (functions, compiled) = (database.library.functions, database.database);
        // SAFETY: the database is compiled, and the pointer is null, for new scratch.
        let code = unsafe { (functions.hs_alloc_scratch)(compiled, &mut scanner.scratch) };
        check("hs_alloc_scratch", code)?;
        for _ in 0..streams {
            let mut stream = ptr::null_mut();
            // SAFETY: the database is compiled for streams.
            let code = unsafe { (functions.hs_open_stream)(compiled, 0, &mut stream) };
            check("hs_open_stream", code)?;
            scanner.streams.push(stream);
        }
        Ok(scanner)
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Scans the next bytes of a stream. Passes each match to `each`: the pattern, and the position in the stream at which
    /// the match ends. Such a position may be before these bytes if `$` of a pattern waited for them.
    ///
    /// # Errors
    /// Returns an error if Hyperscan fails.
    ///
    /// # Panics
    /// Panics if there is no such stream.
    #[inline(always)]
    pub fn scan<F: FnMut(u32, u64)>(
        &mut self,
        stream: usize,
        bytes: &[u8],
        mut each: F,
    ) -> Result<(), HyperscanError> {
        let code = self.call(stream, bytes, Some(on_match::<F>), ptr::from_mut(&mut each).cast());
        check("hs_scan_stream", code)
    }

    #[inline(always)]
    fn call(
        &mut self,
        stream: usize,
        bytes: &[u8],
        on_match: Option<OnMatch>,
        context: *mut c_void,
    ) -> c_int {
        let stream = self.streams[stream];
        // A packet has fewer bytes.
        let length = bytes.len().min(c_uint::MAX as usize) as c_uint;
        // SAFETY: stream and scratch are of the same database, and used by one thread; the bytes are valid during the call.
        unsafe {
            (self.database.library.functions.hs_scan_stream)(
                stream,
                bytes.as_ptr().cast(),
                length,
                0,
                self.scratch,
                on_match,
                context,
            )
        }
    }

    /// Ends a stream and begins it again.
    ///
    /// # Errors
    /// Returns an error if Hyperscan fails.
    ///
    /// # Panics
    /// Panics if there is no such stream.
    pub fn reset(&mut self, stream: usize) -> Result<(), HyperscanError> {
        let stream = self.streams[stream];
        let functions = &self.database.library.functions;
        // SAFETY: as in `call`; without a function, matches at the end are not reported.
        let code =
            unsafe { (functions.hs_reset_stream)(stream, 0, self.scratch, None, ptr::null_mut()) };
        check("hs_reset_stream", code)
    }
}

unsafe extern "C" fn on_match<F: FnMut(u32, u64)>(
    pattern: c_uint,
    _: c_ulonglong,
    end: c_ulonglong,
    _: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `scan` passes its closure, which nothing else uses during the call.
    let each = unsafe { &mut *context.cast::<F>() };
    each(pattern, end);
    0
}

impl Drop for Scanner {
    fn drop(&mut self) {
        let functions = &self.database.library.functions;
        for stream in &self.streams {
            // SAFETY: the stream is open. Without a function, matches at the end are not reported, and scratch is not used.
            unsafe { (functions.hs_close_stream)(*stream, ptr::null_mut(), None, ptr::null_mut()) };
        }
        // SAFETY: the scratch was allocated, or is null, which is permitted.
        unsafe { (functions.hs_free_scratch)(self.scratch) };
    }
}
