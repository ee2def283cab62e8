//! Compiles the C and C++ allocators, and sets how an image is linked: freestanding, without a C library, or as a
//! WebAssembly module.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

#[path = "../sources.rs"]
mod sources;

use sources::Sources;

/// Libraries that dependencies request by default. Empty ones replace them, so that no code of the system gets into
/// an image: a missing function is a link error.
const ABSENT: [&str; 9] = ["c", "m", "rt", "pthread", "util", "dl", "gcc", "gcc_eh", "gcc_s"];

/// How a module is linked: the host provides one memory to all its instances, and a stack to each. The linker's own
/// stack is the page at address 0, which the host makes inaccessible. The features of the objects are set explicitly
/// instead of checked: see build/wasm.rs of the suite.
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
    for place in ["../sources.rs", "../../include", "system"] {
        println!("cargo:rerun-if-changed={place}");
    }
    let sources = Sources::read()?;
    let jemalloc_source = sources.of("tikv-jemalloc-sys")?.join("jemalloc");
    let mimalloc_source = sources.of("libmimalloc-sys")?.join("c_src/mimalloc/v3");
    let snmalloc_headers = sources.of("snmalloc-sys")?.join("upstream/src");
    let rpmalloc_source = sources.of("rpmalloc-sys")?.join("rpmalloc/rpmalloc");
    let configured = jemalloc_headers(&jemalloc_source, &out)?;
    // jemalloc takes more than half of the time.
    std::thread::scope(|scope| {
        scope.spawn(|| jemalloc(&jemalloc_source, &configured, &out));
        mimalloc(&mimalloc_source, &out);
        snmalloc(&snmalloc_headers, &out);
        rpmalloc(&rpmalloc_source, &out);
    });
    Ok(())
}

/// The files of jemalloc that code inside calls. If one is missing here, the linker reports it; jemalloc/system.c
/// replaces what the other files define.
const JEMALLOC: &str = "\
    arena background_thread base bin bin_info bitmap cache_bin counter decay div ecache edata \
    edata_cache ehooks emap eset exp_grow extent extent_dss fxp hook hpa hpa_central hpa_hooks \
    hpa_utils hpdata jemalloc large mutex nstime pa pa_extra pac peak_event psset san san_bump \
    sc sec sz tcache test_hooks thread_event thread_event_registry ticker tsd util witness";

/// Fills in jemalloc's header templates; returns the folder of the headers.
fn jemalloc_headers(source: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
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
    Ok(made)
}

/// Compiles jemalloc with our configuration.
fn jemalloc(source: &Path, headers: &Path, out: &Path) {
    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .includes([Path::new("system"), Path::new("jemalloc/include"), headers])
        .includes([source.join("include"), source.join("src")])
        .define("NDEBUG", None)
        // It must be initialised with the heap, and not by a constructor.
        .define("constructor", "unused")
        // Otherwise the compiler calls its runtime library, which is not inside.
        .flag("-mpopcnt")
        .files(["allocator", "system", "tables"].map(|file| format!("jemalloc/{file}.c")))
        .files(JEMALLOC.split(' ').map(|file| source.join(format!("src/{file}.c"))));
    allocator(build, "jemalloc", out);
}

/// Compiles mimalloc's single file. Its pages have a quarter of the default length, so that those of 8 threads fit
/// into the sample's heap, and its arena covers the heap to within 2 MiB.
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

/// Compiles snmalloc's headers, without a C++ library and an operating system.
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

/// Compiles rpmalloc's single file, with its system calls disabled.
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
        .include("../../include")
        .flags(["-ffreestanding", "-fno-stack-protector", "-fcf-protection=none"])
        .flags(["-ftls-model=local-exec", "-ffunction-sections", "-fdata-sections"])
        .compile(&format!("{name}_inside"));
    println!(
        "cargo:rustc-link-arg-bin={name}={}",
        out.join(format!("lib{name}_inside.a")).display()
    );
}
