//! Linking of a user-supplied allocator: a static library that implements `include/tollgate_allocator.h` is linked
//! with the inside to an image.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::sample::Failure;
use machine::child::output_within;

/// The inside without an allocator.
pub(super) const INSIDE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside.o"));

/// The linker arguments, as for the built-in images: freestanding, static and relocatable.
const ARGUMENTS: [&str; 8] = [
    "-nostdlib",
    "-static-pie",
    "-Wl,-e,enclave_entry",
    "-Wl,--gc-sections",
    "-Wl,--build-id=none",
    "-Wl,-z,max-page-size=4096",
    "-Wl,-z,noexecstack",
    "-Wl,--strip-all",
];

/// Time limit of the linker.
const LIMIT: Duration = Duration::from_secs(120);
/// The image's name in its folder.
pub(super) const IMAGE: &str = "image";

/// The maximum length of a library, in bytes.
const MAX_LIBRARY_BYTES: u64 = 256 << 20;

/// Reads a library. Symbolic links are followed, but FIFOs and devices are refused.
///
/// # Errors
/// Returns the error of the system, or an error if the file is too large.
pub(super) fn read(library: &Path) -> io::Result<Vec<u8>> {
    machine::file::read(&library.canonicalize()?, MAX_LIBRARY_BYTES)
}

/// The failure of a library that cannot be read.
pub(super) fn unreadable(library: &Path, why: &io::Error) -> Failure {
    let library = library.display();
    Failure::failed(format!("{library}: {why}; give the path of a static library"))
}

/// Links a static library to an image in an existing folder; returns the image's bytes.
///
/// # Errors
/// Returns an error if the library cannot be read or is incomplete, or if there is no linker.
pub fn link(library: &Path, folder: &Path) -> Result<Vec<u8>, Failure> {
    let content = read(library).map_err(|why| unreadable(library, &why))?;
    link_by("cc", library, &content, folder)
}

/// Links the content of a library with the given linker. The linker reads a copy, because the file may change
/// concurrently.
pub(super) fn link_by(
    linker: &str,
    library: &Path,
    content: &[u8],
    folder: &Path,
) -> Result<Vec<u8>, Failure> {
    let file = |path: &Path| {
        let path = path.display().to_string();
        move |why: io::Error| Failure::failed(format!("{path}: {why}"))
    };
    let name = library.display();
    let [inside, copy, image] = ["inside.o", "library.a", IMAGE].map(|name| folder.join(name));
    std::fs::write(&inside, INSIDE).map_err(file(&inside))?;
    std::fs::write(&copy, content).map_err(file(&copy))?;
    let mut command = Command::new(linker);
    command
        .env("LC_ALL", "C")
        .args(ARGUMENTS)
        // An optional function may be in a separate object, so it is requested first.
        .arg("-Wl,-u,tollgate_allocator_mallinfo")
        .args([&copy, &inside, &copy])
        .arg("-o")
        .arg(&image);
    let linked = output_within(&mut command, &[], LIMIT).map_err(|why| {
        Failure::failed(if why.kind() == ErrorKind::TimedOut {
            format!("cc, linking {name}: {why}; run it directly to see why it hangs")
        } else {
            format!("cc, linking {name}, does not start: {why}; install a C compiler")
        })
    })?;
    for used in [&inside, &copy] {
        std::fs::remove_file(used).map_err(file(used))?;
    }
    if !linked.status.success() {
        let why = complaints(&linked.stderr);
        return Err(Failure::failed(format!(
            "{name} does not link to an image: {why}; define all of tollgate_allocator.h, and use nothing else"
        )));
    }
    std::fs::read(&image).map_err(file(&image))
}

/// Returns the linker's complaints in one line: the missing names, or otherwise its first line.
fn complaints(stderr: &[u8]) -> String {
    let stderr = String::from_utf8_lossy(stderr);
    let mut missing: Vec<_> =
        stderr.lines().filter_map(|line| line.split("undefined reference to ").nth(1)).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return stderr.lines().next().unwrap_or_default().to_owned();
    }
    format!("it lacks {}", missing.join(", "))
}
