//! Tables, figures and exports, from journals alone.
//!
//! Everything here is made from runs that [`lab::journal::open`] has read; nothing is measured and
//! nothing is remembered.

pub mod chart;
pub mod export;
pub mod figure;
pub mod format;
pub mod table;
