//! Arguments of `tollgate show`.

use clap::Args;
use lab::summary::Unit;

use super::ResultsArgs;

#[derive(Args)]
pub(crate) struct Show {
    /// Suites or experiments [default: all of the run]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Metric [default: the experiment's]
    #[arg(long)]
    pub(crate) metric: Option<String>,
    /// Only points with this level (repeatable)
    #[arg(long = "where", value_name = "FACTOR=LEVEL")]
    pub(crate) levels: Vec<String>,
    /// Unit of times
    #[arg(long, value_enum, default_value = "declared")]
    pub(crate) unit: Unit,
    /// List all points of each experiment, the smallest first: by the shown metric ('value'), another metric or a factor
    #[arg(long, value_name = "METRIC|FACTOR|value")]
    pub(crate) sort: Option<String>,
    /// Sort the largest first; points without a value stay last
    #[arg(long, requires = "sort")]
    pub(crate) reverse: bool,
    /// Only the first N points of each sorted list
    #[arg(long, value_name = "N", requires = "sort", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
