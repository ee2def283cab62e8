//! Shared libraries of this process.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Lists the files of the loaded shared libraries, including the dynamic linker, under the names by
/// which the linker found them. Empty in a static program.
pub fn loaded() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: `note` has the type that the call requires; the pointer passed to it is `found`,
    // which outlives the call and is not accessed concurrently.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn note(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes a valid object with a name that ends in a zero byte.
    let name = unsafe { CStr::from_ptr((*object).dlpi_name) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    // The program itself has no name, and objects mapped by the kernel have no path.
    if path.is_absolute() {
        // SAFETY: the pointer is the one that `loaded` passed.
        unsafe { (*found.cast::<Vec<PathBuf>>()).push(path) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_and_the_linker_are_loaded() {
        let loaded = loaded();
        let named = |part: &str| loaded.iter().any(|path| path.to_string_lossy().contains(part));
        assert!(named("libc.so") && named("ld-linux"), "{loaded:?}");
        assert!(loaded.iter().all(|path| path.is_file()), "{loaded:?}");
    }
}
