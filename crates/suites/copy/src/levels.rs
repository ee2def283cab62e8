//! Levels of factors that several methods share.

use lab::factor::LevelType;

use crate::functions;

/// Whether the program writes the memory or reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Direction {
    /// The program copies from its heap into the memory.
    Write,
    /// The program copies out of the memory.
    Read,
}

/// How successive copies depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum TimingMode {
    /// Copies are independent, back to back.
    Throughput,
    /// The source address of each copy depends on the bytes that the previous one delivered.
    Latency,
}

/// Returns the canonical spelling of a function that every method accepts.
///
/// # Errors
/// Returns one line that lists the known functions.
pub fn suite_function(text: &str) -> Result<String, String> {
    function(text, &[])
}

/// Returns the canonical spelling of a function: one of the suite, `PATH.so:SYMBOL`, or one of
/// `others`.
///
/// # Errors
/// Returns one line that lists the known functions.
pub fn function(text: &str, others: &[&'static str]) -> Result<String, String> {
    let suite = functions::all().iter().chain([functions::load_store_limit()]);
    let known: Vec<_> = suite.map(|function| function.name).chain(others.iter().copied()).collect();
    let supplied = functions::shared_object(text).is_some();
    if known.contains(&text) || (supplied && functions::check(text).is_ok()) {
        return Ok(text.into());
    }
    Err(format!(
        "unknown function '{text}'; expected one of {}, or PATH.so:SYMBOL",
        known.join(", ")
    ))
}
