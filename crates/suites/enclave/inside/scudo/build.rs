//! Compiles Scudo with tollgate's interface.

use std::error::Error;
use std::path::PathBuf;

#[path = "../sources.rs"]
mod sources;

use sources::Sources;

/// The source files that scudo.cpp needs. Scudo's own wrappers, which define malloc, are excluded.
const PARTS: [&str; 9] = [
    "checksum",
    "common",
    "crc32_hw",
    "flags",
    "flags_parser",
    "linux",
    "release",
    "report",
    "string_utils",
];

fn main() -> Result<(), Box<dyn Error>> {
    for place in ["build.rs", "scudo.cpp", "../../include", "../sources.rs"] {
        println!("cargo:rerun-if-changed={place}");
    }
    let scudo = Sources::read()?.of("scudo-sys")?.join("scudo-standalone");
    let parts: Vec<PathBuf> = PARTS.map(|part| scudo.join(part).with_extension("cpp")).into();
    cc::Build::new()
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++17")
        .opt_level(3)
        .debug(false)
        .pic(true)
        .warnings(false)
        .define("NDEBUG", None)
        .include(&scudo)
        .include(scudo.join("include"))
        .include("../../include")
        .flags(["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc++"])
        // A library that is loaded at run time accesses thread-local variables by a call; this selects the short one.
        .flag_if_supported("-mtls-dialect=gnu2")
        .files(parts)
        .file("scudo.cpp")
        .link_lib_modifier("+whole-archive")
        .compile("scudo_outside");
    Ok(())
}
