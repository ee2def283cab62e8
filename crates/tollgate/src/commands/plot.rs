//! `tollgate plot`

use crate::arguments::Plot;
use crate::fault::Fault;

/// Draws figures.
pub(crate) fn run(_: &Plot) -> Result<u8, Fault> {
    Err(Fault::failed("figures are not drawn yet"))
}
