//! `tollgate schema`: the JSON Schemas of all JSON output.

use exchange::ImportOutput;
use lab::adhoc::MeasuredOutput;
use lab::fleet::Fleet;
use lab::journal::{self, RunRecord};
use lab::sample::Sample;
use lab::schema::OutputSchema;
use lab::terminal;
use lab::timed_code::TimedCode;
use report::bundle::{BundleClaims, BundleEnvironments};
use report::export::SamplesOutput;
use report::table::{
    BundleValues, CompareOutput, DoctorOutput, ListOutput, ShowOutput, SidesOutput,
};

use super::claims::ClaimsOutput;
use super::end::RunOutput;
use super::guest::GuestsOutput;
use super::hosts::HostsOutput;
use super::plot::PlotOutput;
use super::summary::SummaryOutput;
use crate::arguments::Schema;
use crate::error::CliError;
use crate::output::print;
use crate::suites::SUITES;

/// Prints the schema of an output, or lists all.
pub(crate) fn schema(args: &Schema) -> Result<u8, CliError> {
    let all = outputs();
    let Some(name) = &args.name else {
        print(&list(&all))?;
        return Ok(0);
    };
    let Some(output) = all.iter().find(|output| output.name == name) else {
        let known: Vec<_> = all.iter().map(|output| output.name).collect();
        let known = known.join(", ");
        return Err(CliError::usage(format!("unknown output '{name}'; expected one of {known}")));
    };
    print(&terminal::json(&output.schema()))?;
    Ok(0)
}

/// Returns the schemas of all outputs and files.
fn outputs() -> Vec<OutputSchema> {
    let mut all = vec![
        OutputSchema::of::<DoctorOutput<'_>>(),
        OutputSchema::of::<ListOutput<'_>>(),
        OutputSchema::of::<RunOutput<'_>>(),
        OutputSchema::of::<SummaryOutput<'_>>(),
        OutputSchema::of::<ShowOutput>(),
        OutputSchema::of::<PlotOutput<'_>>(),
        OutputSchema::of::<ClaimsOutput<'_>>(),
        OutputSchema::of::<CompareOutput<'_>>(),
        OutputSchema::of::<SidesOutput<'_>>(),
        OutputSchema::of::<Fleet>(),
        OutputSchema::of::<GuestsOutput<'_>>(),
        OutputSchema::of::<HostsOutput>(),
        OutputSchema::of::<SamplesOutput<'_>>(),
        OutputSchema::of::<ImportOutput>(),
        OutputSchema::of::<MeasuredOutput<'_>>(),
        OutputSchema::of::<BundleClaims<'_>>(),
        OutputSchema::of::<BundleEnvironments<'_>>(),
        OutputSchema::of::<BundleValues>(),
    ];
    all.extend(SUITES.iter().flat_map(|suite| suite.outputs()));
    // Files have their version in the field 'format' of run.json.
    let files = [
        OutputSchema::of_file::<RunRecord>("run-record", "run.json of a run", journal::FORMAT),
        OutputSchema::of_file::<Sample>(
            "sample",
            "a line of samples.jsonl of a run",
            journal::FORMAT,
        ),
        OutputSchema::of_file::<TimedCode>(
            "timed-code",
            "a line of code.jsonl of a run",
            journal::FORMAT,
        ),
    ];
    all.extend(files);
    all
}

/// Lists the outputs with their versions.
fn list(all: &[OutputSchema]) -> String {
    let width = all.iter().map(|output| output.name.len()).max().unwrap_or_default();
    let line = |output: &OutputSchema| {
        let OutputSchema { name, written_by, version, .. } = output;
        format!("{name:width$}  version {version:<2}  {written_by}\n")
    };
    all.iter().map(line).collect()
}
