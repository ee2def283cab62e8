//! The allocators that are Rust, each confined to the heap that it is given. Those that are C or C++ define the
//! interface themselves: snmalloc/, rpmalloc/.

pub mod buddy;
pub mod dlmalloc;
pub mod rlsf;
pub mod sized;
pub mod talc;
