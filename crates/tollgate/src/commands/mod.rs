//! Commands of the program.

pub(crate) mod claims;
mod forecast;
pub(crate) mod inspect;
pub(crate) mod plot;
pub(crate) mod run;
pub(crate) mod show;
