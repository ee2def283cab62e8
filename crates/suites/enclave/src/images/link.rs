//! An allocator of somebody else's: a static library by `include/tollgate_allocator.h`, linked with the inside
//! to an image.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use machine::child::output_within;
use thiserror::Error;

use super::supplied;

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

/// Why there is no image of an allocator.
#[derive(Debug, Error)]
pub enum LinkError {
    /// A file could not be read or written.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The library cannot be read.
    #[error("{library}: {why}: give the path of a static library", library = library.display())]
    Unreadable {
        /// The static library.
        library: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The linker cannot be run.
    #[error("cc, which links {library}, does not run: {why}: install a C compiler", library = library.display())]
    NoLinker {
        /// The static library.
        library: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The linker does not come to an end.
    #[error("cc, which links {library}, {why}; run it by hand to see what it waits for", library = library.display())]
    Hung {
        /// The static library.
        library: PathBuf,
        /// After how long it was killed, and what it wrote last.
        why: std::io::Error,
    },
    /// The library defines no whole allocator, or needs what is not inside.
    #[error(
        "{library} does not link to an image: {why}; define all of tollgate_allocator.h, and use nothing else",
        library = library.display()
    )]
    Incomplete {
        /// The static library.
        library: PathBuf,
        /// What the linker misses.
        why: String,
    },
}

/// Links a static library to an image in a folder, which must be there; gives the image's bytes.
///
/// # Errors
/// The library cannot be read, is no whole allocator, or there is no linker.
pub fn link(library: &Path, folder: &Path) -> Result<Vec<u8>, LinkError> {
    let unreadable = |why| LinkError::Unreadable { library: library.to_path_buf(), why };
    let content = supplied::read(library).map_err(unreadable)?;
    link_by("cc", library, &content, folder)
}

/// Links the content of a library by a linker of this name. The file itself may change meanwhile, so the linker
/// reads a copy.
pub(super) fn link_by(
    linker: &str,
    library: &Path,
    content: &[u8],
    folder: &Path,
) -> Result<Vec<u8>, LinkError> {
    let file = |path: &Path| {
        let path = path.to_path_buf();
        move |why| LinkError::File { path, why }
    };
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
        let library = library.to_path_buf();
        match why.kind() {
            ErrorKind::TimedOut => LinkError::Hung { library, why },
            _ => LinkError::NoLinker { library, why },
        }
    })?;
    for used in [&inside, &copy] {
        std::fs::remove_file(used).map_err(file(used))?;
    }
    if !linked.status.success() {
        let library = library.to_path_buf();
        return Err(LinkError::Incomplete { library, why: complaints(&linked.stderr) });
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
