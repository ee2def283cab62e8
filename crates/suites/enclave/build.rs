//! Builds the images, one an allocator, and writes the table of them that `src/images.rs` includes.
//!
//! The inside is a package by itself: its binaries are linked with no C library and for no system, by
//! flags that nothing else here may have. So cargo builds it in a build of its own. Its library becomes one
//! object, `inside.o`, which lacks an allocator alone: `src/images/link.rs` links it with a user's own. Allocators
//! that need a system have the same inside in a shared library of the host.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What images run on.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Static and movable: the loader places it, and applies the relocations.
const FLAGS: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=pie"];

/// Calls inside a library go where they go in an image: straight, and not by a table that others may change.
const OUTSIDE_FLAGS: [&str; 1] = ["-Clink-arg=-Wl,-Bsymbolic"];

/// The libraries with a system below them.
const OUTSIDE: [&str; 2] = ["glibc", "scudo"];

/// The outer build's own settings, which would change or disturb the inner one.
const OUTER: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_FEATURE_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "RUSTC_WORKSPACE_WRAPPER",
];

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
    for place in ["build.rs", "image", "interface", "include", "outside"] {
        println!("cargo:rerun-if-changed={place}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let built = build("image", &["--lib", "--bins"], &FLAGS, &out.join("images"))?;
    std::fs::write(out.join("images.rs"), table(&images()?, |name| built.join(name))?)?;
    object(&built.join("libinside.a"), &out.join("inside.o"))?;
    let built = build("outside", &["--workspace"], &OUTSIDE_FLAGS, &out.join("outside"))?;
    let library = |name: &str| built.join(format!("lib{name}.so"));
    Ok(std::fs::write(out.join("outside.rs"), table(&OUTSIDE.map(String::from), library)?)?)
}

/// Builds a package by itself; gives the folder where its files are.
fn build(
    package: &str,
    parts: &[&str],
    flags: &[&str],
    target: &Path,
) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    for (name, _) in env::vars_os() {
        if OUTER.iter().any(|outer| name.to_string_lossy().starts_with(outer)) {
            cargo.env_remove(name);
        }
    }
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--release", "--locked", "--quiet", "--target", TARGET])
        .args(parts)
        .args(["--manifest-path", &format!("{package}/Cargo.toml"), "--target-dir"])
        .arg(target);
    run(&mut cargo)?;
    Ok(target.join(TARGET).join("release"))
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let ran = command.output()?;
    if !ran.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)).into());
    }
    Ok(())
}

/// The images' names: those of the inner package's binaries.
fn images() -> Result<Vec<String>, Box<dyn Error>> {
    let mut names: Vec<String> = std::fs::read_dir("image/src/bin")?
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// A table of files, one an allocator.
fn table(names: &[String], file: impl Fn(&str) -> PathBuf) -> Result<String, Box<dyn Error>> {
    let mut table = String::from("[\n");
    for name in names {
        let file = file(name);
        writeln!(table, "    Image {{ allocator: {name:?}, bytes: include_bytes!({file:?}) }},")?;
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
