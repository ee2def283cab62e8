//! Commands of the program.

pub(crate) mod bundle;
pub(crate) mod claims;
pub(crate) mod compare;
pub(crate) mod doctor;
mod end;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fleet;
mod forecast;
pub(crate) mod guest;
mod headlines;
pub(crate) mod hosts;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod logs;
pub(crate) mod man;
mod next;
pub(crate) mod plot;
mod repetition;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod show;
mod slurm;
pub(crate) mod summary;
