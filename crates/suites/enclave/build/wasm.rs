//! Builds the images as modules of WebAssembly: those whose allocators are Rust.
//!
//! Rust's core library for the target comes from its sources, where they are there, or compiled, as the target's
//! own package has it.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inner::Inner;

/// What modules are built for.
const TARGET: &str = "wasm32-unknown-unknown";

/// Threads on one memory; and memory copied and filled by the module itself: where the host does it, by the
/// instructions that do so, a fault on the way is the host's. A core library that comes compiled is of other
/// features: it was built for one thread, but what of it has atomics is compiled again into its users.
const FLAGS: [&str; 1] = ["-Ctarget-feature=+atomics,-bulk-memory,-bulk-memory-opt"];

/// The variable that names the folder of Rust's library sources.
const SOURCES: &str = "TOLLGATE_RUST_SRC";

/// Builds the modules of these names; gives each with its name.
pub(crate) fn build<'a>(
    names: impl Iterator<Item = &'a String> + Clone,
    folder: &Path,
) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    let parts: Vec<&str> = names.clone().flat_map(|name| ["--bin", name]).collect();
    let core = Core::find()?;
    let built = Inner { package: "image", parts: &parts, target: TARGET, flags: &FLAGS }
        .build_with(folder, |cargo| {
            if let Core::Sources(library) = core {
                cargo
                    // The one way to build a library that the toolchain does not have compiled.
                    .env("RUSTC_BOOTSTRAP", "1")
                    .arg("-Zbuild-std=core,alloc")
                    // Where cargo looks for it in place of the toolchain's own folder.
                    .env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
            }
        })?;
    let module = |name: &String| (name.clone(), built.join(name).with_extension("wasm"));
    Ok(names.map(module).collect())
}

/// Where the core library comes from.
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
        let own = rustc(&["--print", "sysroot"])?.join("lib/rustlib/src/rust/library");
        let has_core = |library: &PathBuf| library.join("core/src/lib.rs").exists();
        if let Some(named) = named.as_ref().filter(|named| !has_core(named)) {
            let named = named.display();
            return Err(format!("{SOURCES}={named}: no core/src/lib.rs there: name the folder 'library' of Rust's sources").into());
        }
        if let Some(library) = named.into_iter().chain([own]).find(has_core) {
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
            "the feature 'wasm' needs Rust's core library for {TARGET}: run `rustup target add {TARGET}`, or name \
             the folder 'library' of this compiler's sources in {SOURCES} (rustup component add rust-src puts it \
             in place; Debian's package rust-src of the same version has it)"
        )
        .into())
    }
}

/// What the compiler says of a folder.
fn rustc(arguments: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let said = Command::new(env::var("RUSTC")?).args(arguments).output()?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into());
    }
    Ok(PathBuf::from(String::from_utf8(said.stdout)?.trim_end()))
}
