//! Compiles what is not Rust, and says how an image is linked: alone, with no C library.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

mod sources;

use sources::sources;

/// Libraries that dependencies ask for by habit. Empty ones stand in, so that nothing of the system's gets
/// inside: what an image lacks is an error of the linker.
const ABSENT: [&str; 9] = ["c", "m", "rt", "pthread", "util", "dl", "gcc", "gcc_eh", "gcc_s"];

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CARGO_FEATURE_OUTSIDE").is_some() {
        return Ok(());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for library in ABSENT {
        std::fs::write(out.join(format!("lib{library}.a")), "!<arch>\n")?;
    }
    println!("cargo:rustc-link-search=native={}", out.display());
    let arguments = [
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-e,enclave_entry",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,--no-undefined",
    ];
    for argument in arguments {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rerun-if-changed=../include");
    snmalloc(&sources("snmalloc-sys")?.join("upstream/src"), &out);
    rpmalloc(&sources("rpmalloc-sys")?.join("rpmalloc/rpmalloc"), &out);
    Ok(())
}

/// snmalloc's headers, with no C++ library and no system below them.
fn snmalloc(headers: &Path, out: &Path) {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .include(headers)
        .define("NDEBUG", None)
        .define("SNMALLOC_USE_SELF_VENDORED_STL", "1")
        .define("SNMALLOC_USE_WAIT_ON_ADDRESS", "0")
        .flags(["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc++", "-mcx16"])
        .file("snmalloc/snmalloc.cpp");
    allocator(build, "snmalloc", out);
}

/// rpmalloc's one file, with its calls of the system turned away.
fn rpmalloc(source: &Path, out: &Path) {
    let mut build = cc::Build::new();
    build.std("gnu11").include(source).define("NDEBUG", None).file("rpmalloc/spans.c");
    allocator(build, "rpmalloc", out);
}

/// Compiles an allocator that defines the C interface, and links it to the binary of its name.
fn allocator(mut build: cc::Build, name: &str, out: &Path) {
    println!("cargo:rerun-if-changed={name}");
    build
        .opt_level(3)
        .debug(false)
        .pic(true)
        .warnings(false)
        .cargo_metadata(false)
        .include("../include")
        .flags(["-ffreestanding", "-fno-stack-protector", "-fcf-protection=none"])
        .flags(["-ftls-model=local-exec", "-ffunction-sections", "-fdata-sections"])
        .compile(&format!("{name}_inside"));
    println!(
        "cargo:rustc-link-arg-bin={name}={}",
        out.join(format!("lib{name}_inside.a")).display()
    );
}
