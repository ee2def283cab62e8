//! `copy/limit`: the machine's limit, as other programs reach it.
//!
//! The experiment is that of [`crate::throughput`] over functions, threads and modes at lengths
//! beyond the caches; Debian's `mbw` takes part as a function.

pub mod mbw;
