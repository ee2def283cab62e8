//! Levels that several methods share.

use lab::factor::LevelType;

use crate::functions;

/// Whether the program writes to the memory or reads from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Direction {
    /// Writes.
    Write,
    /// Reads.
    Read,
}

/// How copies follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Use {
    /// Back to back.
    Throughput,
    /// Each waits for what the last delivered.
    Latency,
}

/// The canonical spelling of a function that every method takes.
///
/// # Errors
/// One line with the functions that exist.
pub fn suite_function(text: &str) -> Result<String, String> {
    function(text, &[])
}

/// The canonical spelling of a function: one of the suite, `PATH.so:SYMBOL`, or one of `others`.
///
/// # Errors
/// One line with the functions that exist.
pub fn function(text: &str, others: &[&'static str]) -> Result<String, String> {
    let own = functions::all().iter().chain([functions::load_store_limit()]);
    let known: Vec<_> = own.map(|function| function.name).chain(others.iter().copied()).collect();
    let supplied = functions::shared_object(text).is_some();
    if known.contains(&text) || (supplied && functions::check(text).is_ok()) {
        return Ok(text.into());
    }
    Err(format!("'{text}' is not one of {}, nor PATH.so:SYMBOL", known.join(", ")))
}
