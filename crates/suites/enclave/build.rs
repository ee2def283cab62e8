//! Builds the images, one an allocator, and writes the table of them that `src/images.rs` includes.
//!
//! The inside is a package by itself: its binaries are linked with no C library and for no system, by
//! flags that nothing else here may have. So cargo builds it in a build of its own. Its library becomes one
//! object, `inside.o`, which lacks an allocator alone: `src/images/link.rs` links it with a user's own. Allocators
//! that need a system have the same inside in a shared library of the host. With the feature `wasm` those that are
//! Rust have it as a module of WebAssembly too.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "build/inner.rs"]
mod inner;
#[cfg(feature = "wasm")]
#[path = "build/wasm.rs"]
mod wasm;

use inner::{Inner, run};

/// What images run on.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Static and movable: the loader places it, and applies the relocations.
const FLAGS: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=pie"];

/// Calls inside a library go where they go in an image: straight, and not by a table that others may change.
const OUTSIDE_FLAGS: [&str; 1] = ["-Clink-arg=-Wl,-Bsymbolic"];

/// The libraries with a system below them.
const OUTSIDE: [&str; 2] = ["glibc", "scudo"];

/// Where calls come in, and what tollgate_allocator.h offers to allocators.
const OFFERED: [&str; 7] = [
    "enclave_entry",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "tollgate_enclave_wait",
    "tollgate_enclave_wake",
];

fn main() -> Result<(), Box<dyn Error>> {
    for place in ["build.rs", "build", "image", "interface", "include", "outside"] {
        println!("cargo:rerun-if-changed={place}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let inner = shared(&out);

    let images =
        Inner { package: "image", parts: &["--lib", "--bins"], target: TARGET, flags: &FLAGS }
            .build(&inner.join("images"))?;
    let names = names()?;
    let modules = modules(&names, &inner.join("modules"))?;
    let files = |name: &String| {
        let module = modules.iter().find(|(of, _)| of == name).map(|(_, file)| file.clone());
        (images.join(name), module)
    };
    std::fs::write(out.join("images.rs"), table(&names, files)?)?;
    object(&images.join("libinside.a"), &out.join("inside.o"))?;

    let libraries = Inner {
        package: "outside",
        parts: &["--workspace"],
        target: TARGET,
        flags: &OUTSIDE_FLAGS,
    }
    .build(&inner.join("outside"))?;
    let files = |name: &String| (libraries.join(format!("lib{name}.so")), None);
    Ok(std::fs::write(out.join("outside.rs"), table(&OUTSIDE.map(String::from), files)?)?)
}

/// Where the inner builds are kept: in the target folder, so that profiles and features share them, which make no
/// difference inside.
fn shared(out: &Path) -> PathBuf {
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE-HASH/out.
    out.ancestors().nth(4).map_or_else(|| out.to_path_buf(), |target| target.join("enclave-inside"))
}

/// The images' names: those of the inner package's binaries.
fn names() -> Result<Vec<String>, Box<dyn Error>> {
    let mut names: Vec<String> = std::fs::read_dir("image/src/bin")?
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds the modules of those allocators that are Rust; gives each with its name.
#[cfg(feature = "wasm")]
fn modules(names: &[String], folder: &Path) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    // Those that are C or C++ have a folder of their name.
    let is_rust = |name: &&String| !Path::new("image").join(name).is_dir();
    wasm::build(names.iter().filter(is_rust), folder)
}

/// None: this build has no WebAssembly.
#[cfg(not(feature = "wasm"))]
fn modules(_: &[String], _: &Path) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    Ok(Vec::new())
}

/// A table of files, one an allocator, each with its module where it has one.
fn table(
    names: &[String],
    files: impl Fn(&String) -> (PathBuf, Option<PathBuf>),
) -> Result<String, Box<dyn Error>> {
    let mut table = String::from("[\n");
    for name in names {
        let (file, module) = files(name);
        let wasm =
            module.map_or("None".into(), |module| format!("Some(include_bytes!({module:?}))"));
        writeln!(
            table,
            "    Image {{ allocator: {name:?}, bytes: include_bytes!({file:?}), wasm: {wasm} }},"
        )?;
    }
    table.push_str("]\n");
    Ok(table)
}

/// Makes one object of a library: what its entry point reaches, and what it offers to an allocator.
fn object(library: &Path, object: &Path) -> Result<(), Box<dyn Error>> {
    let mut cc = Command::new("cc");
    cc.args(["-r", "-nostdlib", "-Wl,--gc-sections", "-Wl,--strip-debug"]);
    cc.args(OFFERED.map(|name| format!("-Wl,-u,{name}"))).arg("-Wl,-e,enclave_entry");
    run(cc.arg(library).arg("-o").arg(object))?;
    // The compiler's own form of the core library, which nobody compiles again.
    run(Command::new("objcopy").args(["-R", ".llvmbc", "-R", ".llvmcmd"]).arg(object))
}
