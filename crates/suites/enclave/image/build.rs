//! Compiles what is not Rust, and says how an image is linked: alone, with no C library; or as a module of
//! WebAssembly.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

mod sources;

use sources::sources;

/// Libraries that dependencies ask for by habit. Empty ones stand in, so that nothing of the system's gets
/// inside: what an image lacks is an error of the linker.
const ABSENT: [&str; 9] = ["c", "m", "rt", "pthread", "util", "dl", "gcc", "gcc_eh", "gcc_s"];

/// How a module is linked: the host gives one memory to all its instances, and each of them a stack. The
/// linker's own stack is the page at address 0, which the host makes inaccessible. What objects say of the
/// features that they were compiled with is not asked, but told: see ../build/wasm.rs.
const MODULE: [&str; 9] = [
    "--import-memory",
    "--shared-memory",
    "--max-memory=4294967296",
    "--features=atomics,bulk-memory",
    "--no-check-features",
    "--stack-first",
    "-zstack-size=4096",
    "--export=enclave_entry",
    "--export=__stack_pointer",
];

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CARGO_FEATURE_OUTSIDE").is_some() {
        return Ok(());
    }
    if env::var("CARGO_CFG_TARGET_ARCH")? == "wasm32" {
        for argument in MODULE {
            println!("cargo:rustc-link-arg-bins={argument}");
        }
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
    for place in ["../include", "system"] {
        println!("cargo:rerun-if-changed={place}");
    }
    jemalloc(&sources("tikv-jemalloc-sys")?.join("jemalloc"), &out)?;
    mimalloc(&sources("libmimalloc-sys")?.join("c_src/mimalloc/v3"), &out);
    snmalloc(&sources("snmalloc-sys")?.join("upstream/src"), &out);
    rpmalloc(&sources("rpmalloc-sys")?.join("rpmalloc/rpmalloc"), &out);
    Ok(())
}

/// jemalloc's files that something inside calls. Where one is missing here, the linker says so; what others of
/// its files define is in jemalloc/system.c.
const JEMALLOC: &str = "\
    arena background_thread base bin bin_info bitmap cache_bin counter decay div ecache edata \
    edata_cache ehooks emap eset exp_grow extent extent_dss fxp hook hpa hpa_central hpa_hooks \
    hpa_utils hpdata jemalloc large mutex nstime pa pa_extra pac peak_event psset san san_bump \
    sc sec sz tcache test_hooks thread_event thread_event_registry ticker tsd util witness";

/// jemalloc with a configuration of ours, its headers that are templates filled in.
fn jemalloc(source: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let made = out.join("jemalloc");
    std::fs::create_dir_all(made.join("jemalloc/internal"))?;
    for header in
        ["jemalloc_macros", "jemalloc_protos", "jemalloc_typedefs", "internal/jemalloc_preamble"]
    {
        let template = source.join(format!("include/jemalloc/{header}.h.in"));
        let mut text = std::fs::read_to_string(template)?;
        for (mark, with) in [
            ("\"../jemalloc@install_suffix@.h\"", "\"jemalloc/jemalloc.h\""),
            ("@install_suffix@", ""),
            ("@je_@", "je_"),
            ("@private_namespace@", "je_"),
            ("@jemalloc_version@", "5.3.1"),
            ("@jemalloc_version_major@", "5"),
            ("@jemalloc_version_minor@", "3"),
            ("@jemalloc_version_bugfix@", "1"),
            ("@jemalloc_version_nrev@", "0"),
            ("@jemalloc_version_gid@", "0"),
        ] {
            text = text.replace(mark, with);
        }
        std::fs::write(made.join(format!("jemalloc/{header}.h")), text)?;
    }
    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .includes([Path::new("system"), Path::new("jemalloc/include"), &made])
        .includes([source.join("include"), source.join("src")])
        .define("NDEBUG", None)
        // It begins with the heap, and not before there is one.
        .define("constructor", "unused")
        // Or the compiler calls its own library, which is not inside.
        .flag("-mpopcnt")
        .files(["allocator", "system", "tables"].map(|file| format!("jemalloc/{file}.c")))
        .files(JEMALLOC.split(' ').map(|file| source.join(format!("src/{file}.c"))));
    allocator(build, "jemalloc", out);
    Ok(())
}

/// mimalloc's one file. Its pages are a quarter of what they are by default, so that those of 8 threads have room
/// in the seed's heap, and its arena has a heap's length to within 2 MiB.
fn mimalloc(source: &Path, out: &Path) {
    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .includes([Path::new("system"), &source.join("include"), &source.join("src")])
        .define("NDEBUG", None)
        .define("MI_DEBUG", "0")
        .define("MI_BUILD_RELEASE", None)
        .define("MI_NO_GETENV", None)
        .define("MI_ARENA_SLICE_SHIFT", "14")
        .define("MI_BCHUNK_BITS_SHIFT", "7")
        .flag("-mpopcnt")
        .file("mimalloc/mimalloc.c");
    allocator(build, "mimalloc", out);
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
