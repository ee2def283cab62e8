//! A person's own function, from a shared object.

use super::CopyFn;
use libloading::Library;
use std::ffi::OsString;

/// Whether the text can name a function of a shared object; opens no file.
pub(super) fn spelled(path: &str, symbol: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("no path before the colon: give PATH.so:SYMBOL".into());
    }
    if symbol.is_empty() {
        return Err("no symbol after the colon: give PATH.so:SYMBOL".into());
    }
    Ok(())
}

/// Loads `symbol` of the shared object at `path`, with memcpy's signature. The function is valid
/// as long as the library that is returned with it.
pub(super) fn load(path: &str, symbol: &str) -> Result<(CopyFn, Library), String> {
    // A bare file name means the working directory, not the loader's search path.
    let file = if path.contains('/') { OsString::from(path) } else { format!("./{path}").into() };
    // SAFETY: running the object's initialisers is what the person asks for by naming it.
    let object = unsafe { Library::new(&file) }
        .map_err(|error| format!("cannot load it ({error}): give the path of a shared object"))?;
    // SAFETY: the symbol is taken to be a function of memcpy's signature, as documented; what it
    // returns is ignored, in a register that a caller may lose.
    let copy =
        unsafe { object.get::<CopyFn>(symbol.as_bytes()) }.map(|symbol| *symbol).map_err(|_| {
            format!("{path} has no symbol {symbol}: list what it exports with `nm -D {path}`")
        })?;
    Ok((copy, object))
}
