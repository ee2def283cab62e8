//! Arguments of `tollgate run --slurm`.

use std::num::NonZeroU32;

use clap::Args;

/// The nodes of a cluster on which to measure instead of on this host.
#[derive(Args)]
pub(crate) struct SlurmArgs {
    /// Measure on nodes of a Slurm cluster instead of here: one job per node, exclusive, each with its results in the
    /// folder of its node below --results, which all nodes share. With --wait, wait until all jobs have ended
    #[arg(long, conflicts_with_all = ["guest", "hosts", "json", "tables", "quiet"])]
    pub(crate) slurm: bool,
    /// Partition [default: that of the cluster]
    #[arg(long, value_name = "NAME", requires = "slurm")]
    pub(crate) partition: Option<String>,
    /// Number of nodes, idle ones first [default: all that can run jobs]
    #[arg(long, value_name = "N", requires = "slurm", conflicts_with = "nodelist")]
    pub(crate) nodes: Option<NonZeroU32>,
    /// Nodes, e.g. 'n[1-8],n12'
    #[arg(long, value_name = "LIST", requires = "slurm")]
    pub(crate) nodelist: Option<String>,
    /// Further option of sbatch, e.g. --sbatch=--account=physics (repeatable)
    #[arg(long, value_name = "OPTION", requires = "slurm", allow_hyphen_values = true)]
    pub(crate) sbatch: Vec<String>,
}
