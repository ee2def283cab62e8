//! `tollgate fleet` and exports of fleets, over simulated nodes.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod check;
mod compare;
mod exports;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../report/journal.rs"]
#[allow(dead_code, reason = "the tests of the page use the other parts")]
mod journal;
mod nodes;
mod scale;
