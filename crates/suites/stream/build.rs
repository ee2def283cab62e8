//! Compiles the part of the feature `dpdk` that is in C, and links DPDK's libraries, which pkg-config finds.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    const SHIM: &str = "src/dpdk/shim.c";
    println!("cargo:rerun-if-changed={SHIM}");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let mut compiler = cc::Build::new();
    for flag in pkg_config("--cflags") {
        compiler.flag(flag);
    }
    compiler.file(SHIM).compile("tollgate_dpdk");
    // The linker omits the libraries that nothing uses.
    for flag in pkg_config("--libs") {
        match flag.split_at_checked(2) {
            Some(("-l", library)) => println!("cargo:rustc-link-lib={library}"),
            Some(("-L", folder)) => println!("cargo:rustc-link-search=native={folder}"),
            _ => {}
        }
    }
}

/// Returns the flags that pkg-config prints for DPDK. Ends the build with one line if there are none.
#[cfg(feature = "dpdk")]
fn pkg_config(kind: &str) -> Vec<String> {
    let output = std::process::Command::new("pkg-config").args([kind, "libdpdk >= 22.11"]).output();
    let why = match output {
        Ok(output) if output.status.success() => {
            let flags = String::from_utf8_lossy(&output.stdout);
            return flags.split_whitespace().map(str::to_owned).collect();
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "),
        Err(why) => why.to_string(),
    };
    println!(
        "cargo::error=the feature dpdk needs DPDK 22.11: pkg-config: {why}; install Debian's libdpdk-dev and pkgconf, or \
         build without the feature"
    );
    std::process::exit(1);
}
