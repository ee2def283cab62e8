//! wasmtime, once a process, and modules, compiled once each.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use lab::sample::Failure;
use wasmtime::{Config, Engine, Module};

/// The engine. Making it makes wasmtime handle the signals by which modules fault.
///
/// # Errors
/// It does not begin.
pub(crate) fn engine() -> Result<&'static Engine, Failure> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        // Why an ECALL failed is told without the frames that led there.
        config.wasm_threads(true).shared_memory(true).wasm_backtrace_max_frames(None);
        Engine::new(&config).map_err(|why| describe(&why))
    });
    engine.as_ref().map_err(|why| {
        Failure::unavailable(
            format!("wasmtime does not begin: {why}"),
            "measure another kind of enclave",
        )
    })
}

/// Lets wasmtime's handlers of signals come before those that are installed after this: they use variables of
/// the host's thread, and so must not be the first to see a fault with an enclave's FS.
pub(crate) fn handle_signals() {
    // What is wrong is told when a module is to be loaded.
    let _ = engine();
}

/// A module of these bytes, compiled at its first use in this process.
///
/// # Errors
/// It is none.
pub(crate) fn compiled(bytes: &'static [u8]) -> Result<Module, Failure> {
    static MODULES: Mutex<BTreeMap<usize, Module>> = Mutex::new(BTreeMap::new());
    // The bytes live for ever, so their place names them.
    let place = bytes.as_ptr() as usize;
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(&place) {
        return Ok(module.clone());
    }
    let module = Module::new(engine()?, bytes).map_err(|why| {
        Failure::failed(format!("the module does not compile: {}", describe(&why)))
    })?;
    modules.insert(place, module.clone());
    Ok(module)
}

/// What wasmtime says, in one line.
pub(crate) fn describe(why: &wasmtime::Error) -> String {
    format!("{why:#}").replace('\n', " ")
}
