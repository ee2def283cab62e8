//! An allocator of somebody else's: a static library by `include/tollgate_allocator.h`, linked with the inside
//! to an image.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::sample::Failure;
use machine::child::output_within;

/// The inside, which lacks an allocator alone.
pub(super) const INSIDE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside.o"));

/// How the images in this program are linked too: alone, static and movable.
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

/// How long linking may take.
const LIMIT: Duration = Duration::from_secs(120);
/// What the image is called in its folder.
pub(super) const IMAGE: &str = "image";

/// The largest library that is linked, bytes.
const MAX_LIBRARY_BYTES: u64 = 256 << 20;

/// Reads a library: links are followed, but a FIFO or a device is none.
///
/// # Errors
/// What the system refused, or a file that is too large.
pub(super) fn read(library: &Path) -> io::Result<Vec<u8>> {
    machine::file::read(&library.canonicalize()?, MAX_LIBRARY_BYTES)
}

/// The failure of a library that cannot be read.
pub(super) fn unreadable(library: &Path, why: &io::Error) -> Failure {
    let library = library.display();
    Failure::failed(format!("{library}: {why}; give the path of a static library"))
}

/// Links a static library to an image in a folder, which must be there; gives the image's bytes.
///
/// # Errors
/// The library cannot be read, is no whole allocator, or there is no linker.
pub fn link(library: &Path, folder: &Path) -> Result<Vec<u8>, Failure> {
    let content = read(library).map_err(|why| unreadable(library, &why))?;
    link_by("cc", library, &content, folder)
}

/// Links the content of a library by a linker of this name. The file itself may change meanwhile, so the linker
/// reads a copy.
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
        // What is optional may stand in an object of its own, and is looked for first.
        .arg("-Wl,-u,tollgate_allocator_mallinfo")
        .args([&copy, &inside, &copy])
        .arg("-o")
        .arg(&image);
    let linked = output_within(&mut command, &[], LIMIT).map_err(|why| {
        Failure::failed(match why.kind() {
            ErrorKind::TimedOut => {
                format!("cc, linking {name}: {why}; run it directly to see why it hangs")
            }
            _ => format!("cc, linking {name}, does not start: {why}; install a C compiler"),
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

/// What the linker misses, in one line: the names, or else its own first words.
fn complaints(told: &[u8]) -> String {
    let told = String::from_utf8_lossy(told);
    let mut missing: Vec<_> =
        told.lines().filter_map(|line| line.split("undefined reference to ").nth(1)).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return told.lines().next().unwrap_or_default().to_owned();
    }
    format!("it lacks {}", missing.join(", "))
}
