//! Builds the images, one per allocator, and writes the tables of them that `src/images.rs` includes.
//!
//! The inside is a separate workspace: its binaries are linked without a C library and for no operating system, with
//! flags that nothing else here may have, so cargo builds it in separate builds. Its library becomes one object,
//! `inside.o`, without an allocator: `src/images/link.rs` links it with a user-supplied one. Allocators that need an
//! operating system get the same inside in a shared library of the host. With the feature `wasm`, those written in
//! Rust also get it as a WebAssembly module.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(feature = "wasm")]
#[path = "build/wasm.rs"]
mod wasm;

/// The target of the images.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Static and relocatable: the loader chooses the address and applies the relocations.
const FLAGS: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=pie"];

/// Calls inside a library are direct, as in an image, and not through a table that other libraries could change.
const OUTSIDE_FLAGS: [&str; 1] = ["-Clink-arg=-Wl,-Bsymbolic"];

/// The libraries for outside.
const OUTSIDE: [&str; 2] = ["glibc", "scudo"];

/// The entry point, and the functions that tollgate_allocator.h offers to allocators.
const OFFERED: [&str; 7] = [
    "enclave_entry",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "tollgate_enclave_wait",
    "tollgate_enclave_wake",
];

/// Prefixes of the outer build's environment variables, which would affect the inner builds.
const OUTER: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_FEATURE_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "RUSTC_WORKSPACE_WRAPPER",
];

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build.rs", "build", "inside", "interface", "include"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let folder = shared(&out);
    let built = folder.join(TARGET).join("release");

    let image = ["-p", "tollgate-enclave-image", "--lib", "--bins"];
    run(inner(&folder, TARGET, &FLAGS)?.args(image))?;
    let names = names()?;
    let modules = modules(&names, &folder)?;
    let files = |name: &String| {
        let module = modules.iter().find(|(of, _)| of == name).map(|(_, file)| file.clone());
        (built.join(name), module)
    };
    std::fs::write(out.join("images.rs"), table(&names, files)?)?;
    object(&built.join("libinside.a"), &out.join("inside.o"))?;

    let libraries = OUTSIDE.map(|name| format!("-ptollgate-enclave-{name}"));
    run(inner(&folder, TARGET, &OUTSIDE_FLAGS)?.args(libraries))?;
    let files = |name: &String| (built.join(format!("lib{name}.so")), None);
    Ok(std::fs::write(out.join("outside.rs"), table(&OUTSIDE.map(String::from), files)?)?)
}

/// Returns the folder of the inner builds. It is in the target folder, so that all profiles and features share them:
/// these do not affect the code inside the enclave.
fn shared(out: &Path) -> PathBuf {
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE-HASH/out.
    out.ancestors().nth(4).map_or_else(|| out.to_path_buf(), |target| target.join("enclave-inside"))
}

/// Returns a command that builds packages of the code inside the enclave.
fn inner(folder: &Path, target: &str, flags: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    for (name, _) in env::vars_os() {
        if OUTER.iter().any(|outer| name.to_string_lossy().starts_with(outer)) {
            cargo.env_remove(name);
        }
    }
    let prefixes = prefixes()?;
    let mut flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
    flags.extend(prefixes.iter().map(|prefix| format!("--remap-path-prefix={prefix}")));
    for variable in ["CFLAGS", "CXXFLAGS"] {
        let before = env::var(variable).unwrap_or_default();
        let mapped = prefixes.iter().map(|prefix| format!("-ffile-prefix-map={prefix}"));
        cargo.env(variable, mapped.fold(before, |all, flag| format!("{all} {flag}")));
    }
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path", "inside/Cargo.toml"])
        .args(["--target", target, "--target-dir"])
        .arg(folder);
    Ok(cargo)
}

/// Returns replacements for the folders of the sources. Paths are in the images, in the texts of assertions, and their
/// lengths move the data after them: an ECALL of snmalloc took 239 and 285 ns in two images with the same instructions.
fn prefixes() -> Result<Vec<String>, Box<dyn Error>> {
    let mut prefixes = vec![format!("{}=tollgate-enclave", env::var("CARGO_MANIFEST_DIR")?)];
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    // A folder per registry; without any, the sources are vendored.
    for registry in std::fs::read_dir(home.join("registry/src")).into_iter().flatten() {
        prefixes.push(format!("{}=registry", registry?.path().display()));
    }
    Ok(prefixes)
}

/// Runs a command until it ends.
fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let ran = command.output()?;
    if !ran.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)).into());
    }
    Ok(())
}

/// Returns the images' names: those of the inner package's binaries.
fn names() -> Result<Vec<String>, Box<dyn Error>> {
    let mut names: Vec<String> = std::fs::read_dir("inside/image/src/bin")?
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds the modules of the allocators written in Rust; returns each with its name.
#[cfg(feature = "wasm")]
fn modules(names: &[String], folder: &Path) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    // Allocators in C or C++ have a folder of their name.
    let is_rust = |name: &&String| !Path::new("inside/image").join(name).is_dir();
    wasm::build(names.iter().filter(is_rust), folder)
}

/// Returns no modules, because this build has no WebAssembly.
#[cfg(not(feature = "wasm"))]
fn modules(_: &[String], _: &Path) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    Ok(Vec::new())
}

/// Returns a table of files, one per allocator, each with its module if it has one.
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

/// Links a library to one object, with the code reachable from its entry point and from the functions that it offers.
fn object(library: &Path, object: &Path) -> Result<(), Box<dyn Error>> {
    let mut cc = Command::new("cc");
    cc.args(["-r", "-nostdlib", "-Wl,--gc-sections", "-Wl,--strip-debug"]);
    cc.args(OFFERED.map(|name| format!("-Wl,-u,{name}"))).arg("-Wl,-e,enclave_entry");
    run(cc.arg(library).arg("-o").arg(object))?;
    // Removes the compiler's bitcode of the core library, which is never compiled again.
    run(Command::new("objcopy").args(["-R", ".llvmbc", "-R", ".llvmcmd"]).arg(object))
}
