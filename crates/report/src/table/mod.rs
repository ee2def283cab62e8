//! Tables for the terminal, and the same as JSON.

mod best;
mod cell;
mod compare;
mod doctor;
mod flat;
mod list;
mod notes;
mod page;
mod pivot;
mod section;
mod show;
mod verdicts;

pub use compare::{compare, compare_json};
pub use doctor::{doctor, doctor_json, options};
pub use list::{describe, list, list_json};
pub use page::Page;
pub use show::{Question, measured, show, show_json};
pub use verdicts::{verdicts, verdicts_json};

pub(crate) use section::{phrase, sort as sort_levels};
pub(crate) use show::{floor, rounds_of};
