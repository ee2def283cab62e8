//! The images, one per allocator: built with this program, or linked with a user-supplied allocator.
//!
//! A user-supplied allocator is a static library that implements `include/tollgate_allocator.h`; it is linked with the
//! code inside the enclave to an image.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::method::EmbeddedImage;
use lab::sample::Failure;
use machine::child::output_within;

pub mod supplied;
#[cfg(test)]
mod tests;

/// An image: a static, relocatable ELF file, and the same code as a WebAssembly module. For use without an enclave, it
/// is a shared library of the host.
#[derive(Debug)]
pub struct Image {
    /// The allocator's name.
    pub allocator: &'static str,
    /// The file.
    pub bytes: &'static [u8],
    /// The module, if this build and the allocator have one.
    pub wasm: Option<&'static [u8]>,
}

/// Starts of the names of the functions that are timed inside: the implementation of the calls, and the allocator that they
/// call.
const TIMED: &[&str] = &["inside::", "tollgate_allocator_", "enclave_entry"];

impl Image {
    /// Returns the image with its timed functions.
    pub fn embedded(&self) -> EmbeddedImage {
        EmbeddedImage { name: self.allocator, file: self.bytes, timed: TIMED }
    }
}

static IMAGES: &[Image] = &include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Returns all images, by name.
pub fn all() -> &'static [Image] {
    IMAGES
}

/// Returns an allocator's image.
pub fn find(allocator: &str) -> Option<&'static Image> {
    IMAGES.iter().find(|image| image.allocator == allocator)
}

static OUTSIDE: &[Image] = &include!(concat!(env!("OUT_DIR"), "/outside.rs"));

/// Returns the same code as shared libraries of the host, with the allocators that need an operating system, by name.
pub fn outside() -> &'static [Image] {
    OUTSIDE
}

/// Returns an allocator's library for use without an enclave.
pub fn find_outside(allocator: &str) -> Option<&'static Image> {
    OUTSIDE.iter().find(|image| image.allocator == allocator)
}

/// The code inside the enclave without an allocator.
const INSIDE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside.o"));

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
const IMAGE: &str = "image";

/// The maximum length of a library, in bytes.
const MAX_LIBRARY_BYTES: u64 = 256 << 20;

/// Reads a library. Symbolic links are followed, but FIFOs and devices are refused.
///
/// # Errors
/// Returns the error of the system, or an error if the file is too large.
fn read(library: &Path) -> io::Result<Vec<u8>> {
    machine::file::read(&library.canonicalize()?, MAX_LIBRARY_BYTES)
}

/// Creates the failure of a library that cannot be read.
fn unreadable(library: &Path, why: &io::Error) -> Failure {
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
fn link_by(
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
