//! The copy functions that the suite compares.
//!
//! A function is named by the text of a TOML level: one of [`all`], or `PATH.so:SYMBOL` for a
//! person's own from a shared object. [`find`] says why one cannot run here. The timed bodies are
//! written in assembly, so that what is measured is what is read here, in any build profile. Each of
//! ours begins a cache line: it is the first in a section of its own, which `.p2align 6` aligns.

mod avx2;
mod avx512;
mod cached_quarter;
mod load_store_limit;
mod non_temporal;
mod reference;
mod rep_aligned;
mod supplied;
mod thresholds;
mod tollgate;

use lab::sample::{Failure, FailureKind};
use thiserror::Error;

/// A way to copy `length` bytes: destination, source, length; the two never overlap.
pub type CopyFn = unsafe extern "C" fn(*mut u8, *const u8, usize);

/// A copy function that the suite has.
pub struct Function {
    /// The level's text in TOML
    pub name: &'static str,
    /// What it does, in one line
    pub about: &'static str,
    /// Written here, as against those that it competes with
    pub own: bool,
    resolve: fn() -> Result<CopyFn, String>,
}

/// Why a function cannot be used; each is one line.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unavailable {
    /// This machine lacks what the function needs
    #[error("copy function {name}: {reason}")]
    Unsupported {
        /// The function asked for
        name: String,
        /// What is lacking, and what to do
        reason: String,
    },
    /// No function has this name
    #[error("no copy function is named {name}: give one of {known}, or PATH.so:SYMBOL")]
    Unknown {
        /// The name asked for
        name: String,
        /// The names that there are
        known: String,
    },
    /// A shared object, or the symbol in it, could not be loaded
    #[error("copy function {name}: {reason}")]
    Load {
        /// The text asked for, `PATH.so:SYMBOL`
        name: String,
        /// What the dynamic loader said, and what to do
        reason: String,
    },
}

impl From<Unavailable> for Failure {
    fn from(why: Unavailable) -> Self {
        let kind = match why {
            Unavailable::Unsupported { .. } => FailureKind::Unsupported,
            Unavailable::Unknown { .. } | Unavailable::Load { .. } => FailureKind::Failed,
        };
        Self::new(kind, why.to_string())
    }
}

/// A copy function that can run here. It keeps its shared object, if it has one, in memory.
#[derive(Debug)]
pub struct Loaded {
    name: String,
    own: bool,
    copy: CopyFn,
    _object: Option<libloading::Library>,
}

impl Loaded {
    /// The level's text
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Written here, as against those that it competes with
    pub fn own(&self) -> bool {
        self.own
    }

    /// The function itself, for timed loops; valid as long as `self` lives. Call each function from
    /// a place of its own: where several share one call instruction, the processor's predictor of
    /// indirect calls adds about 3 cycles to some of them.
    pub fn pointer(&self) -> CopyFn {
        self.copy
    }

    /// Copies `source` over `destination`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&self, destination: &mut [u8], source: &[u8]) {
        assert_eq!(destination.len(), source.len(), "a copy needs equal lengths");
        // SAFETY: both are valid for the length, and a `&mut` overlaps nothing. The function is
        // `memcpy` by its contract: what `find` resolved runs on this CPU, and a person who names
        // a shared object vouches for it.
        unsafe { (self.copy)(destination.as_mut_ptr(), source.as_ptr(), source.len()) }
    }
}

static ALL: [Function; 9] = [
    Function {
        name: "glibc",
        about: "memcpy of the running C library, called by its address",
        own: false,
        resolve: reference::glibc,
    },
    Function {
        name: "naive",
        about: "the seed's loop: one 8-byte word at a time, pointers incremented",
        own: false,
        resolve: || Ok(reference::naive),
    },
    Function {
        name: "rep-movsb",
        about: "one rep movsb instruction",
        own: false,
        resolve: || Ok(reference::rep_movsb),
    },
    Function {
        name: "tollgate",
        about: "our own: by size classes set from this machine's caches",
        own: true,
        resolve: tollgate::resolve,
    },
    Function {
        name: "avx2",
        about: "32-byte loads and stores, four to a round of the loop",
        own: true,
        resolve: avx2::resolve,
    },
    Function {
        name: "avx512",
        about: "64-byte loads and stores, masked up to 64 bytes",
        own: true,
        resolve: avx512::resolve,
    },
    Function {
        name: "non-temporal",
        about: "32-byte stores that pass the caches by, then sfence",
        own: true,
        resolve: non_temporal::resolve,
    },
    Function {
        name: "cached-quarter",
        about: "four quarters at once, the first by ordinary stores, the others non-temporal",
        own: true,
        resolve: cached_quarter::resolve,
    },
    Function {
        name: "rep-aligned",
        about: "rep movsb to an aligned destination, never where it would fall into its slow mode",
        own: true,
        resolve: rep_aligned::resolve,
    },
];

static LOAD_STORE_LIMIT: Function = Function {
    name: "load-store-limit",
    about: "no copy: the loads and stores of one, none waiting for another, which bound it in L1",
    own: false,
    resolve: load_store_limit::resolve,
};

/// What bounds every function while both buffers lie in the first cache. It copies nothing but what
/// the suite copies: it stores the source's first 256 bytes over and over, as the suite's sources
/// repeat.
pub fn load_store_limit() -> &'static Function {
    &LOAD_STORE_LIMIT
}

/// Every function that the suite has, whether or not it can run here.
pub fn all() -> &'static [Function] {
    &ALL
}

/// The shared object that a level names, for `PATH.so:SYMBOL`; `None` for a function of the suite.
pub fn shared_object(name: &str) -> Option<&str> {
    name.rsplit_once(':').map(|(path, _)| path)
}

/// Whether a level names a function that can run here. Of a shared object it sees only the spelling:
/// loading one runs its code, which is for the probe to do.
///
/// # Errors
/// As [`find`].
pub fn check(name: &str) -> Result<(), Unavailable> {
    match name.rsplit_once(':') {
        Some((path, symbol)) => supplied::spelled(path, symbol)
            .map_err(|reason| Unavailable::Load { name: name.into(), reason }),
        None => find(name).map(drop),
    }
}

/// The function of a level: a name of [`all`], or `PATH.so:SYMBOL`, whose code it runs. Only a probe may
/// call it with the latter: the lab hands it such a point only with `--allow code`.
///
/// # Errors
/// One line that says why it cannot run here.
pub fn find(name: &str) -> Result<Loaded, Unavailable> {
    if let Some((path, symbol)) = name.rsplit_once(':') {
        return supplied::spelled(path, symbol)
            .and_then(|()| supplied::load(path, symbol))
            .map(|(copy, object)| Loaded {
                name: name.into(),
                own: false,
                copy,
                _object: Some(object),
            })
            .map_err(|reason| Unavailable::Load { name: name.into(), reason });
    }
    let known = ALL.iter().chain([&LOAD_STORE_LIMIT]);
    let Some(function) = known.clone().find(|function| function.name == name) else {
        let known: Vec<&str> = known.map(|function| function.name).collect();
        return Err(Unavailable::Unknown { name: name.into(), known: known.join(", ") });
    };
    (function.resolve)()
        .map(|copy| Loaded { name: name.into(), own: function.own, copy, _object: None })
        .map_err(|reason| Unavailable::Unsupported { name: name.into(), reason })
}

#[cfg(test)]
mod tests;
