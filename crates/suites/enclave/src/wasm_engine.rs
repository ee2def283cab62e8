//! The wasmtime engine, one per process, and modules, each compiled once.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use lab::sample::Failure;
use wasmtime::{Config, Engine, Module};

/// Returns the engine. Its creation makes wasmtime handle the signals by which modules fault.
///
/// # Errors
/// Returns `unavailable` if the engine does not start.
pub(crate) fn engine() -> Result<&'static Engine, Failure> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        // The stack frames of a failed ECALL are not reported.
        config.wasm_threads(true).shared_memory(true).wasm_backtrace_max_frames(None);
        Engine::new(&config).map_err(|why| describe(&why))
    });
    engine.as_ref().map_err(|why| {
        Failure::unavailable(
            format!("wasmtime does not start: {why}"),
            "measure another kind of enclave",
        )
    })
}

/// Lets wasmtime install its signal handlers before those that are installed later: they use variables of the host's
/// thread, so they must not be the first to run with an enclave's FS.
pub(crate) fn handle_signals() {
    // An error is reported when a module is loaded.
    let _ = engine();
}

/// Returns the module of these bytes, compiled at its first use in this process.
///
/// # Errors
/// Returns an error if the bytes are not a module.
pub(crate) fn compiled(bytes: &'static [u8]) -> Result<Module, Failure> {
    static MODULES: Mutex<BTreeMap<usize, Module>> = Mutex::new(BTreeMap::new());
    // The bytes live forever, so their address identifies them.
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

/// Returns wasmtime's message in one line.
pub(crate) fn describe(why: &wasmtime::Error) -> String {
    format!("{why:#}").replace('\n', " ")
}
