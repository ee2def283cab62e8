//! Tables for the terminal, and the same data as JSON.

mod argument;
mod causes;
mod cell;
mod compare;
mod condition;
mod fleet;
mod groups;
mod inventory;
mod notes;
mod order;
mod ordered;
mod pivot;
mod point_list;
mod reasons;
mod screen;
mod section;
mod show;
mod sides;
mod statistic;
mod verdicts;

pub use compare::{CompareOutput, compare};
pub use fleet::{fleet, fleet_line, is_worse};
pub use groups::Groups;
pub use inventory::{
    Declared, DoctorOutput, Lack, ListOutput, describe, doctor, doctor_output, list, list_output,
    options,
};
pub use lab::table::Page;
pub use notes::differing;
pub use order::{BY_VALUE, Order, can_sort};
pub use screen::{NoHeadline, Screen};
pub use show::{BundleValues, ShowOptions, ShowOutput, measured, show, show_output};
pub use sides::{SidesOutput, sides, sides_output};
pub use verdicts::{JudgedClaim, claim, judged_claims, verdict, verdicts};

pub(crate) use argument::why;
pub(crate) use causes::{LackOfRun, SharedCause, lacking_line, lacks_of_run, shared_cause};
pub(crate) use cell::{ValueCell, ValueFormat};
pub(crate) use compare::{
    ComparedTable, compared_cells, compared_tables, counts as comparison_counts,
};
pub(crate) use notes::Notes;
pub(crate) use pivot::Pivot;
pub(crate) use point_list::PointList;
pub(crate) use section::sort_levels;
pub(crate) use show::{
    ShownExperiment, ShownTable, TableContent, noise_floor, rounds_of, shared_core,
};
pub(crate) use statistic::{value_with_interval, with_cores};
pub(crate) use verdicts::{KINDS as VERDICT_KINDS, ORDER as VERDICT_ORDER, attribution, elsewhere};
