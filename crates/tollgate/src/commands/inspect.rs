//! `tollgate list` and `completions`.

use lab::suite::Purpose;
use report::table::{self, Declared, Page};

use crate::arguments::List;
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::select::{self, Place};
use crate::suites::SUITES;

/// Prints the experiments; if some are named, also their factors, levels, claims and figures.
pub(crate) fn list(args: &List) -> Result<u8, CliError> {
    let catalogue = select::catalogue(&args.selection.points.files)?;
    let mut selection = args.selection.clone();
    if args.all && selection.names.is_empty() && selection.claim.is_empty() {
        selection.names = SUITES.iter().map(|suite| suite.name().to_owned()).collect();
    }
    let experiments = select::select_experiments(&catalogue, &selection, Place::Host)?.experiments;
    let figures = catalogue.figures()?.into_iter().map(|declared| declared.figure);
    let declared = Declared { claims: catalogue.claims()?, figures: figures.collect() };
    if args.json {
        print_json(&table::list_output(SUITES, &experiments, &declared))?;
        return Ok(0);
    }
    print(&table::list(SUITES, &experiments, &declared, Page::stdout()))?;
    if !args.selection.names.is_empty() {
        for experiment in &experiments {
            print("")?;
            print(&table::describe(&experiment.id(), SUITES, experiment, Page::stdout()))?;
        }
        let text = declared.text(&experiments, Page::stdout());
        if !text.is_empty() {
            print(&format!("\n{text}"))?;
        }
    } else if !args.all {
        let hidden = SUITES.iter().filter(|suite| suite.purpose() == Purpose::SelfTest);
        let names: Vec<_> = hidden.map(|suite| suite.name()).collect();
        print(&format!("not listed (self-test, shown with --all): {}", names.join(", ")))?;
    }
    Ok(0)
}

/// Prints the completions of a shell. They are generated in memory because clap panics if the reader
/// closes the pipe.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<u8, CliError> {
    let mut command = crate::arguments::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "tollgate", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
