//! The documentation: its links, the commands that it names, its declarations of guests, its fields of data files,
//! its tutorials, and that every experiment and published value has a figure.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod commands;
mod fields;
mod figures;
mod guests;
#[path = "../harness/mod.rs"]
mod harness;
mod links;
mod page;
mod prose;
#[allow(dead_code, reason = "not all of it is tested here")]
#[path = "../../src/suites.rs"]
mod suites;
mod tutorials;
