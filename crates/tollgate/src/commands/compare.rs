//! `tollgate compare`

use std::path::Path;

use lab::compare::{compare, experiments};
use lab::journal::{self, Run};
use lab::summary::Unit;
use report::table::{self, Page};

use crate::arguments::Compare;
use crate::fault::Fault;
use crate::output::{print, print_json};
use crate::select;

/// Prints the ratio of every point that two runs share.
pub(crate) fn run(given: &Compare) -> Result<u8, Fault> {
    let (a, b) = (open(&given.a)?, open(&given.b)?);
    let metric = given.metric.as_deref();
    let shared = experiments(&a, &b);
    let compared: Result<Vec<_>, _> = shared
        .iter()
        .filter(|id| select::is_meant(&given.names, id) && !id.starts_with("lab/"))
        .map(|id| compare(&a, &b, id, metric, Unit::Own))
        .collect();
    let compared = compared?;
    if compared.is_empty() {
        let (a, b) = (&a.record.name, &b.record.name);
        return Err(Fault::usage(format!("{a} and {b} share no experiment that is meant")));
    }
    if given.json {
        print_json(&table::compare_json(&compared, &a, &b))?;
    } else {
        print(&table::compare(&compared, &a, &b, Page::stdout()))?;
    }
    Ok(0)
}

/// A run's own folder, or a folder of runs with one run in it.
fn open(folder: &Path) -> Result<Run, Fault> {
    match journal::runs(folder)?.as_slice() {
        [one] => Ok(journal::open(one)?),
        [] => Err(Fault::usage(format!("{}: no run here", folder.display()))),
        many => {
            let names: Vec<_> = many.iter().map(|run| run.display().to_string()).collect();
            let line =
                format!("{}: several runs; name one of {}", folder.display(), names.join(", "));
            Err(Fault::usage(line))
        }
    }
}
