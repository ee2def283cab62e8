//! The page of results: its content against the journal, and its interactions in a browser.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod browser;
mod comparison;
mod content;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
mod interactions;
mod journal;
mod list;
mod stored;
