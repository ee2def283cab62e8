//! Comparison of many nodes: which of them differs from the others, at which points, and in which setting.
//!
//! Each node has a separate journal, which its lab writes to a shared folder; results of several people and days may be
//! copied together. Journals are reduced to estimates as they are read ([`read`](collect::read)), so that the memory
//! depends on the number of nodes and points, not on that of samples.
//!
//! The unit of replication is the node. At each point the nodes' medians are compared on a logarithmic scale with a robust
//! centre and scale of the other nodes ([`Robust`](crate::statistics::Robust)). A node is an outlier if its distance from the
//! centre, less the noise floor of its twins, is too large for the spread of the nodes and for its own interval. The
//! decision is made for each node as a whole and for each of its points, corrected for their numbers by Holm's method: if all nodes
//! are equal, the probability that any of them is called an outlier is at most 5%.

mod collect;
mod compare;
mod find;
mod machines;
mod outlier;
mod reduced;
mod settings;
#[cfg(test)]
mod tests;
mod values;

pub use collect::{FleetError, NodeRuns, Reading, read};
pub use compare::{
    Direction, Fleet, FleetExperiment, LastSample, NodeCounts, Outlier, OutlierPoint, Unjudged,
};
pub use find::runs;
pub use outlier::MIN_NODES;
pub use settings::{SettingCount, SettingDifference, SettingValues};
