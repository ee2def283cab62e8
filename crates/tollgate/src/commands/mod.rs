//! One command a file.

pub(crate) mod claims;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod forecast;
pub(crate) mod list;
pub(crate) mod plot;
pub(crate) mod run;
pub(crate) mod show;
