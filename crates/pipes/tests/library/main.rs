//! The library as programs in C, Python and Rust use it: real programs against a NIC in another process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

mod build;
mod clients;
mod errors;
mod examples;
mod header;
mod process;
mod python;

use lab::suite::{Lab, SuiteCommand, UsageError};

static LAB: Lab = Lab { suites: &[&stream::SUITE], version: "test" };

#[test]
#[ignore = "the NIC, which the other tests start in another process"]
fn the_command() {
    let Ok(words) = std::env::var(process::WORDS) else { return };
    let SuiteCommand { command, run } = stream::SUITE.command().unwrap();
    let words = std::iter::once("stream").chain(words.split('\n'));
    let matches = command().try_get_matches_from(words).unwrap();
    let status = run(&matches, &LAB).unwrap_or_else(|why| {
        eprintln!("error: {why}");
        if why.is::<UsageError>() { 2 } else { 1 }
    });
    std::process::exit(status);
}
