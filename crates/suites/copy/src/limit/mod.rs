//! `copy/limit`: the machine's limit, as other programs reach it.
//!
//! The experiment is that of [`crate::throughput`] over functions, threads and modes at lengths
//! beyond the caches; Debian's `mbw` takes part as a function.

// Another program may print any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod mbw;
