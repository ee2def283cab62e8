//! The copy functions that the suite compares.
//!
//! A level of `function` names one: an entry of [`all`], or `PATH.so:SYMBOL` for a user-supplied
//! function from a shared object. [`find`] reports why one cannot run here. The timed bodies are
//! written in assembly, so that every build profile measures the same code. Each of our functions
//! begins a cache line: it is the first in its section, which `.p2align 6` aligns.

mod avx2;
mod avx512;
mod large;
mod load_store_limit;
mod recorded;
mod reference;
mod tollgate;

use std::collections::BTreeMap;
use std::ffi::OsString;

use lab::sample::Failure;
use libloading::Library;

pub(crate) use recorded::record;

/// A function that copies `length` bytes: destination, source, length. The buffers never overlap.
pub type CopyFn = unsafe extern "C" fn(*mut u8, *const u8, usize);

/// A copy function of the suite.
pub struct Function {
    /// The level's text in TOML.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Whether the function was written for this suite, rather than as a reference.
    pub is_ours: bool,
    resolve: fn() -> Result<CopyFn, String>,
}

/// A copy function that can run here, with the shared object that contains it, if any.
#[derive(Debug)]
pub struct LoadedFunction {
    name: String,
    is_ours: bool,
    copy: CopyFn,
    _object: Option<Library>,
}

impl LoadedFunction {
    /// Returns the level's text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the function was written for this suite.
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Returns the function for timed loops; valid as long as `self` lives. Call each function from
    /// a separate call instruction: if several share one, the CPU's predictor of indirect
    /// calls adds about 3 cycles to some of them.
    pub fn pointer(&self) -> CopyFn {
        self.copy
    }

    /// Records the function as timed by the loops of a sample if its code is that of a library. Call it outside of the
    /// timed part.
    pub(crate) fn record(&self) {
        record(&self.name, self.copy);
    }

    /// Copies `source` to `destination`.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    pub fn copy(&self, destination: &mut [u8], source: &[u8]) {
        assert_eq!(destination.len(), source.len(), "source and destination differ in length");
        // SAFETY: both slices are valid for the length, and a `&mut` does not overlap. The function has
        // the contract of `memcpy`: `find` resolves functions that run on this CPU, and the user
        // guarantees it for a shared object.
        unsafe { (self.copy)(destination.as_mut_ptr(), source.as_ptr(), source.len()) }
    }
}

static ALL: [Function; 9] = [
    Function {
        name: "glibc",
        about: "memcpy of the running C library, called by its address",
        is_ours: false,
        resolve: reference::glibc,
    },
    Function {
        name: "naive",
        about: "ESCAPE's loop: one 8-byte word at a time, pointers incremented",
        is_ours: false,
        resolve: || Ok(reference::naive),
    },
    Function {
        name: "rep-movsb",
        about: "one rep movsb instruction",
        is_ours: false,
        resolve: || Ok(reference::rep_movsb),
    },
    Function {
        name: "tollgate",
        about: "our function: size classes derived from this machine's caches",
        is_ours: true,
        resolve: tollgate::resolve,
    },
    Function {
        name: "avx2",
        about: "32-byte loads and stores, four per iteration",
        is_ours: true,
        resolve: avx2::resolve,
    },
    Function {
        name: "avx512",
        about: "64-byte loads and stores, masked up to 64 bytes",
        is_ours: true,
        resolve: avx512::resolve,
    },
    Function {
        name: "non-temporal",
        about: "32-byte stores that bypass the caches, from 1 MiB in four streams, then sfence",
        is_ours: true,
        resolve: large::non_temporal,
    },
    Function {
        name: "cached-quarter",
        about: "four quarters concurrently, the first by ordinary stores, the others non-temporal",
        is_ours: true,
        resolve: large::cached_quarter,
    },
    Function {
        name: "rep-aligned",
        about: "rep movsb to an aligned destination, avoiding its slow cases",
        is_ours: true,
        resolve: large::rep_aligned,
    },
];

static LOAD_STORE_LIMIT: Function = Function {
    name: "load-store-limit",
    about: "not a copy: the independent loads and stores of one, its upper bound in the L1 cache",
    is_ours: false,
    resolve: load_store_limit::resolve,
};

/// Returns the upper bound of every function while both buffers are in the first-level cache. It
/// delivers only sources of period 256, such as the suite's: it stores their first 256 bytes
/// repeatedly.
pub fn load_store_limit() -> &'static Function {
    &LOAD_STORE_LIMIT
}

/// Level of ESCAPE's third function. It is not part of tollgate; the option of the same name gives it as
/// `PATH.so:SYMBOL`.
pub const APEX: &str = "apex";

/// Returns every function of the suite, whether or not it can run here.
pub fn all() -> &'static [Function] {
    &ALL
}

/// Returns the shared object of a level `PATH.so:SYMBOL`; `None` for a function of the suite.
pub fn shared_object(name: &str) -> Option<&str> {
    name.rsplit_once(':').map(|(path, _)| path)
}

/// Returns the level that `name` stands for: for [`APEX`] the `PATH.so:SYMBOL` of the option.
///
/// # Errors
/// Returns `unavailable` if the option is not set, and `failed` if it names no symbol of a shared object: no function of
/// the suite stands for apex.
pub fn supplied<'a>(
    name: &'a str,
    options: &'a BTreeMap<String, String>,
) -> Result<&'a str, Failure> {
    if name != APEX {
        return Ok(name);
    }
    let Some(object) = options.get(APEX) else {
        return Err(Failure::unavailable(
            "ESCAPE's function apex is not part of tollgate",
            "build it as a shared object; --set apex=PATH.so:SYMBOL --allow code",
        ));
    };
    match shared_object(object) {
        Some(_) => Ok(object),
        None => Err(Failure::failed(format!(
            "option {APEX}: '{object}' names no symbol; write PATH.so:SYMBOL"
        ))),
    }
}

/// Checks that a level names a function that can run here. Of a shared object it checks only the
/// spelling: loading one runs its code, which is left to the probe.
///
/// # Errors
/// Returns the errors of [`find`].
pub fn check(name: &str) -> Result<(), Failure> {
    match name.rsplit_once(':') {
        Some((path, symbol)) => check_spec(path, symbol)
            .map_err(|reason| Failure::failed(format!("copy function {name}: {reason}"))),
        None => find(name).map(drop),
    }
}

/// Returns the function of a level: a name of [`all`], or `PATH.so:SYMBOL`, whose code it runs. Only
/// a probe may call it with the latter: the lab passes it such a point only with `--allow code`.
///
/// # Errors
/// Returns why the function cannot run here, in one line.
pub fn find(name: &str) -> Result<LoadedFunction, Failure> {
    if let Some((path, symbol)) = name.rsplit_once(':') {
        return check_spec(path, symbol)
            .and_then(|()| load(path, symbol))
            .map(|(copy, object)| LoadedFunction {
                name: name.into(),
                is_ours: false,
                copy,
                _object: Some(object),
            })
            .map_err(|reason| Failure::failed(format!("copy function {name}: {reason}")));
    }
    let known = ALL.iter().chain([&LOAD_STORE_LIMIT]);
    let Some(function) = known.clone().find(|function| function.name == name) else {
        let known: Vec<&str> = known.map(|function| function.name).collect();
        return Err(Failure::failed(format!(
            "unknown copy function '{name}'; expected one of {}, or PATH.so:SYMBOL",
            known.join(", ")
        )));
    };
    (function.resolve)()
        .map(|copy| LoadedFunction {
            name: name.into(),
            is_ours: function.is_ours,
            copy,
            _object: None,
        })
        .map_err(|reason| {
            let remedy = "use another function, or a CPU and a C library that have it";
            Failure::unsupported(format!("copy function {name}: {reason}"), remedy)
        })
}

/// Checks that the text can name a function of a shared object. Opens no file.
fn check_spec(path: &str, symbol: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("no path before the colon; write PATH.so:SYMBOL".into());
    }
    if symbol.is_empty() {
        return Err("no symbol after the colon; write PATH.so:SYMBOL".into());
    }
    Ok(())
}

/// Loads `symbol` of the shared object at `path`, with memcpy's signature. The function is valid
/// while the returned library is loaded.
fn load(path: &str, symbol: &str) -> Result<(CopyFn, Library), String> {
    // A bare file name means the working directory, not the loader's search path.
    let file = if path.contains('/') { OsString::from(path) } else { format!("./{path}").into() };
    // SAFETY: the user requests the object, and so its initialisers, by name.
    let object = unsafe { Library::new(&file) }
        .map_err(|error| format!("cannot load it ({error}); name a shared object"))?;
    // SAFETY: as documented, the symbol must be a function of memcpy's signature; its result is
    // ignored, in a register that a callee may change.
    let copy =
        unsafe { object.get::<CopyFn>(symbol.as_bytes()) }.map(|symbol| *symbol).map_err(|_| {
            format!("{path} has no symbol {symbol}; list its symbols with `nm -D {path}`")
        })?;
    Ok((copy, object))
}

#[cfg(test)]
mod tests;
