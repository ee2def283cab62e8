//! Tables, figures and exports, made from journals only.
//!
//! All input is runs read by [`lab::journal::open`]; nothing is measured.

pub mod bundle;
pub mod chart;
pub mod export;
pub mod figure;
pub mod page;
pub mod table;
