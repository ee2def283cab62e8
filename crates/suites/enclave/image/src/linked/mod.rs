//! The allocators written in Rust, each confined to the heap that it is given. Those written in C or C++ define the
//! interface themselves, e.g. in snmalloc/ and rpmalloc/.

mod dlmalloc;
mod span;

pub use dlmalloc::{Dlmalloc, DlmallocWait};
pub use span::{Buddy, Rlsf, Talc};
