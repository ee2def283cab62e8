//! The documentation: its links, the commands that it names, its declarations of guests, its fields of data files,
//! and its tutorials.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod commands;
mod fields;
mod guests;
#[path = "../harness/mod.rs"]
mod harness;
mod links;
mod page;
mod prose;
mod tutorials;
