//! `tollgate summary`: the screen of a stored run.

use lab::format::count;
use lab::guest::GuestsRecord;
use lab::headline::Filled;
use lab::journal::Run;
use lab::sample::Sample;
use lab::schema::JsonOutput;
use report::table::{self, JudgedClaim, Page, Screen};
use schemars::JsonSchema;
use serde::Serialize;

use super::{claims, end, headlines};
use crate::arguments::Summary;
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::select;
use crate::stored_run;

/// Headlines and verdicts of a stored run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SummaryOutput<'a> {
    /// Folder of the run.
    folder: String,
    /// Guests in which it was measured; `null` for the host.
    guests: Option<&'a GuestsRecord>,
    /// Headlines that have values.
    headlines: &'a [Filled],
    /// Claims on the measured experiments.
    claims: Vec<JudgedClaim<'a>>,
    /// Signs that the journal was edited, and contradictions between values of the run, one line each.
    inconsistencies: Vec<String>,
}

impl JsonOutput for SummaryOutput<'_> {
    const NAME: &'static str = "summary";
    const WRITTEN_BY: &'static str = "tollgate summary --json";
    const VERSION: u64 = 3;
}

/// Prints the headlines and verdicts of all samples of a run.
pub(crate) fn summary(args: &Summary) -> Result<u8, CliError> {
    let folder = &args.results.folder;
    let run = stored_run::open(folder)?;
    stored_run::check_one_program(&run)?;
    let catalogue = select::catalogue(&args.files)?;
    let experiments = stored_run::listed(&run, &catalogue)?;
    let declared = catalogue.headlines()?;
    let filled = headlines::filled(&declared, &run, &experiments);
    let claims = select::with_arguments(catalogue.claims()?, folder, &args.files);
    let judged = claims::judge_run(&run, &experiments, claims);
    let inconsistencies = stored_run::inconsistencies(&run);
    if args.json {
        print_json(&SummaryOutput {
            folder: run.folder.display().to_string(),
            guests: run.record.guests.as_ref(),
            headlines: &filled,
            claims: table::judged_claims(&judged),
            inconsistencies,
        })?;
        return Ok(0);
    }
    let missing = |suite| headlines::missing(&declared, &filled, (&run, &experiments), suite);
    let suites = headlines::suites(&experiments).map(|suite| (suite, missing(suite)));
    let screen = Screen {
        suites: &suites.collect::<Vec<_>>(),
        headlines: &filled,
        judged: &judged,
        selects_claims: false,
        failures: &end::failures(run.samples.iter().filter(|sample| is_fault(sample))),
        inconsistencies: &inconsistencies,
        facts: &facts(&run, &experiments),
        commands: &commands(args),
    };
    print(&screen.text(Page::stdout()))?;
    Ok(0)
}

/// Returns whether a sample failed and was not repeated.
fn is_fault(sample: &Sample) -> bool {
    sample.is_final() && sample.error.as_ref().is_some_and(|error| error.kind.is_fault())
}

/// Returns what was measured, and where it is stored.
fn facts(run: &Run, experiments: &[String]) -> Vec<(&'static str, String)> {
    let record = &run.record;
    let measured = format!(
        "{} {}, profile {}, in {} from {} on",
        count(stored_run::samples(run).count(), "sample"),
        stored_run::place(record),
        record.profile.name(),
        count(record.sessions.len(), "session"),
        record.start,
    );
    let shared = end::shared_core(run, experiments).map(|fact| ("shared core", fact));
    let folder = ("run", run.folder.display().to_string());
    [("measured", measured)].into_iter().chain(shared).chain([folder]).collect()
}

/// Returns commands that print more of the run, with their purposes.
fn commands(args: &Summary) -> [(String, &'static str); 3] {
    let results = select::arguments_of(&args.results.folder, &[]);
    let with_files = select::arguments_of(&args.results.folder, &args.files);
    [
        (format!("tollgate show{results}"), "all values as tables"),
        (
            format!("tollgate claims{with_files}"),
            "each verdict with its reason; 'explain ID' for one",
        ),
        (format!("tollgate report{with_files}"), "all results on one page"),
    ]
}
