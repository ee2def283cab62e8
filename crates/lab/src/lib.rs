//! The lab: experiments, plan, workers, journal, statistics, search, claims.
//!
//! The lab does not depend on any suite. Experiments (TOML) are planned as rounds of points, points are sent to workers
//! in orders, a worker executes each order in a fresh process, and only the lab writes the samples to the journal. All
//! output is computed from journals.

// The code of the derive macros names this crate.
extern crate self as lab;

pub mod adhoc;
mod answer;
pub mod artefact;
pub mod capability;
pub mod catalogue;
pub mod claim;
pub mod compare;
pub mod comparison;
pub mod console;
pub mod data;
pub mod descendants;
pub mod experiment;
pub mod factor;
pub mod figure;
pub mod fleet;
pub mod format;
pub mod guest;
pub mod headline;
pub mod histogram;
pub mod host;
pub mod journal;
mod link;
pub mod measure;
pub mod message;
pub mod method;
pub mod metric;
pub mod option;
mod order_progress;
pub mod plan;
pub mod point;
pub mod probe;
pub mod program;
pub mod proximity;
pub mod quantity;
pub mod run;
pub mod sample;
pub mod schema;
pub mod search;
pub mod sharing;
pub mod side;
pub mod soundness;
pub mod spreadsheet;
pub mod statistics;
mod subject;
pub mod suite;
pub mod summary;
pub mod table;
pub mod terminal;
pub mod timed_code;
pub mod worker;

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn an_overflow_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
