//! The images, one an allocator, as they were built with this program.

/// An image: a static, movable ELF file, and the same as a module of WebAssembly. One for outside is a shared library.
#[derive(Debug)]
pub struct Image {
    /// The allocator that it links.
    pub allocator: &'static str,
    /// The file.
    pub bytes: &'static [u8],
    /// The module, where this build and the allocator have one.
    pub wasm: Option<&'static [u8]>,
}

static IMAGES: &[Image] = &include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// All images, by name.
pub fn all() -> &'static [Image] {
    IMAGES
}

/// An allocator's image.
pub fn find(allocator: &str) -> Option<&'static Image> {
    IMAGES.iter().find(|image| image.allocator == allocator)
}

static OUTSIDE: &[Image] = &include!(concat!(env!("OUT_DIR"), "/outside.rs"));

/// The same inside as shared libraries of the host, with the allocators that need a system, by name.
pub fn outside() -> &'static [Image] {
    OUTSIDE
}

/// An allocator's library for outside.
pub fn find_outside(allocator: &str) -> Option<&'static Image> {
    OUTSIDE.iter().find(|image| image.allocator == allocator)
}

mod link;
pub mod supplied;
#[cfg(test)]
mod tests;

pub use link::link;
