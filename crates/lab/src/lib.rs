//! The method: experiment, plan, order, worker, journal, statistics, search, claim.
//!
//! The lab knows no suite. Data goes one way: experiments (TOML) become a plan (rounds of points),
//! the plan becomes orders, a worker carries each order out in a fresh process, and what comes back
//! is a sample, which the lab alone writes to the journal. Everything people see is made from
//! journals.

// What the derive macros produce names this crate.
extern crate self as lab;

pub mod adhoc;
mod answer;
pub mod artefact;
pub mod capability;
pub mod catalogue;
pub mod claim;
pub mod compare;
pub mod data;
pub mod descendants;
pub mod experiment;
pub mod factor;
pub mod figure;
pub mod guest;
pub mod histogram;
pub mod journal;
mod link;
pub mod measure;
pub mod message;
pub mod method;
pub mod metric;
pub mod option;
pub mod plan;
pub mod point;
pub mod probe;
pub mod program;
pub mod proximity;
pub mod quantity;
pub mod run;
pub mod sample;
pub mod search;
pub mod soundness;
pub mod spreadsheet;
pub mod statistics;
pub mod suite;
pub mod summary;
pub mod table;
pub mod terminal;
pub mod worker;

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_sum_that_is_too_large_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
