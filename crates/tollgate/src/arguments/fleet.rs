//! Arguments of `tollgate fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

#[derive(Args)]
pub(crate) struct Fleet {
    /// Folder with the results of all nodes, nested in any way
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Suites or experiments [default: all]
    pub(crate) names: Vec<String>,
    /// Print one line; exit with 0 if no node is worse than the others, 1 if one is, 2 if no run can be read in time, 3 if
    /// no node was judged
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check, judge only this node, e.g. $(hostname); all are compared
    #[arg(long, value_name = "NODE", requires = "check")]
    pub(crate) node: Option<String>,
    /// With --check, exit with 3 if the last sample of the node, or without --node of the fleet, is older, e.g. 48h
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "check")]
    pub(crate) max_age: Option<Duration>,
    /// Maximum time to read the runs, e.g. 5s [default: 30s with --check]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) within: Option<Duration>,
    /// Print JSON
    #[arg(long, conflicts_with = "check")]
    pub(crate) json: bool,
}
