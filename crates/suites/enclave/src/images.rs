//! The images, one per allocator, as built with this program.

/// An image: a static, relocatable ELF file, and the same code as a WebAssembly module. An image for outside is a
/// shared library.
#[derive(Debug)]
pub struct Image {
    /// The allocator's name.
    pub allocator: &'static str,
    /// The file.
    pub bytes: &'static [u8],
    /// The module, if this build and the allocator have one.
    pub wasm: Option<&'static [u8]>,
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

/// Returns an allocator's library for outside.
pub fn find_outside(allocator: &str) -> Option<&'static Image> {
    OUTSIDE.iter().find(|image| image.allocator == allocator)
}

mod link;
pub mod supplied;
#[cfg(test)]
mod tests;

pub use link::link;
