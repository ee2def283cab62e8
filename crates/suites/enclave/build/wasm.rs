//! Builds the images of allocators written in Rust as WebAssembly modules.
//!
//! Rust's core library for the target is built from its sources if they are available; otherwise the compiled library
//! of the installed target is used.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{inner, run};

/// The target of the modules.
const TARGET: &str = "wasm32-unknown-unknown";

/// Threads on one memory, and memory copied and filled by the module's own code: with the bulk instructions, a fault
/// during a copy would be a fault of the host. A precompiled core library has other features: it was built for one
/// thread, but its code with atomics is compiled again into its users.
const FLAGS: [&str; 1] = ["-Ctarget-feature=+atomics,-bulk-memory,-bulk-memory-opt"];

/// The variable with the folder of Rust's library sources.
const SOURCES: &str = "TOLLGATE_RUST_SRC";

/// Builds the modules of these names; returns each with its name.
pub(crate) fn build<'a>(
    names: impl Iterator<Item = &'a String> + Clone,
    folder: &Path,
) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    let mut cargo = inner(folder, TARGET, &FLAGS)?;
    cargo.args(["-p", "tollgate-enclave-image"]);
    cargo.args(names.clone().flat_map(|name| ["--bin", name]));
    if let Core::Sources(library) = Core::find()? {
        cargo
            // Required to build a library that the toolchain does not contain in compiled form.
            .env("RUSTC_BOOTSTRAP", "1")
            .arg("-Zbuild-std=core,alloc")
            // The folder that cargo uses instead of the toolchain's.
            .env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    }
    run(&mut cargo)?;
    let built = folder.join(TARGET).join("release");
    let module = |name: &String| (name.clone(), built.join(name).with_extension("wasm"));
    Ok(names.map(module).collect())
}

/// The origin of the core library.
enum Core {
    /// This folder of sources.
    Sources(PathBuf),
    /// The toolchain.
    Compiled,
}

impl Core {
    fn find() -> Result<Self, Box<dyn Error>> {
        println!("cargo:rerun-if-env-changed={SOURCES}");
        let named = env::var_os(SOURCES).filter(|named| !named.is_empty()).map(PathBuf::from);
        let installed = rustc(&["--print", "sysroot"])?.join("lib/rustlib/src/rust/library");
        let has_core = |library: &PathBuf| library.join("core/src/lib.rs").exists();
        if let Some(named) = named.as_ref().filter(|named| !has_core(named)) {
            let named = named.display();
            return Err(format!("{SOURCES}={named}: core/src/lib.rs not found; give the folder 'library' of Rust's sources").into());
        }
        if let Some(library) = named.into_iter().chain([installed]).find(has_core) {
            return Ok(Self::Sources(library));
        }
        let compiled = rustc(&["--print", "target-libdir", "--target", TARGET])?;
        let is_core = |file: std::fs::DirEntry| {
            let name = file.file_name();
            name.to_string_lossy().starts_with("libcore-")
        };
        if std::fs::read_dir(compiled).is_ok_and(|files| files.flatten().any(is_core)) {
            return Ok(Self::Compiled);
        }
        Err(format!(
            "the feature 'wasm' needs Rust's core library for {TARGET}: run `rustup target add {TARGET}`, or set \
             {SOURCES} to the folder 'library' of this compiler's sources (rustup component add rust-src installs \
             them; Debian's package rust-src of the same version contains them)"
        )
        .into())
    }
}

/// Returns a folder printed by the compiler.
fn rustc(arguments: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(env::var("RUSTC")?).args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}
