//! `tollgate report`: all results of a run on one HTML page.

use std::io::Write;
use std::path::Path;

use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::experiment::{Experiment, Profile, suite_name};
use lab::figure::Figure;
use lab::journal::Run;
use lab::run::is_lab_experiment;
use machine::file::{self, Output};
use report::page::RunPage;

use super::{claims, headlines, repetition};
use crate::arguments::Report;
use crate::error::CliError;
use crate::output::print_plain;
use crate::select;
use crate::stored_run;
use crate::suites::SUITES;

/// Writes the page of the newest run.
pub(crate) fn report(args: &Report) -> Result<u8, CliError> {
    let catalogue = select::catalogue(&args.files)?;
    let run = stored_run::open(&args.results.folder)?;
    stored_run::check_one_program(&run)?;
    let page = run_page(&run, &catalogue, args)?;
    save(&args.output, page.as_bytes())?;
    let size = lab::format::precise(page.len() as f64, "B");
    print_plain(&format!("{}: {size}", args.output.display()))?;
    Ok(0)
}

fn run_page(run: &Run, catalogue: &Catalogue, args: &Report) -> Result<String, CliError> {
    let experiments = shown_experiments(run, catalogue)?;
    let figures = catalogue.figures()?.into_iter().map(|declared| declared.figure);
    let figures: Vec<Figure> = figures.filter(|it| experiments.contains(&it.experiment)).collect();
    let claims = select::with_arguments(catalogue.claims()?, &args.results.folder, &args.files);
    let is_shown = |id: &str| is_lab_experiment(id) || experiments.iter().any(|it| it == id);
    let is_on_instrument = |claim: &Claim| select::is_self_test(suite_name(&claim.experiment));
    let (shown, others): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|claim| is_shown(&claim.experiment));
    let page = RunPage {
        run,
        suites: SUITES,
        experiments: &experiments,
        figures: &figures,
        headlines: &headlines::by_suite(&catalogue.headlines()?, run, &experiments),
        judged: &claims::judge(shown, Some(run)),
        unlisted_claims: others.iter().filter(|claim| !is_on_instrument(claim)).count(),
        inconsistencies: &stored_run::inconsistencies(run),
        repetition: &repetition::repetition(run, catalogue, &args.files)?,
    };
    page.html().map_err(CliError::failed)
}

/// Returns the measured experiments in the order of lists; those that the catalogue lacks follow.
fn shown_experiments(run: &Run, catalogue: &Catalogue) -> Result<Vec<String>, CliError> {
    let declared: Vec<String> =
        catalogue.experiments(Profile::Full)?.iter().map(Experiment::id).collect();
    let position = |id: &String| declared.iter().position(|one| one == id).unwrap_or(usize::MAX);
    let mut experiments = stored_run::resolve_names(run, &[])?;
    experiments.sort_by_key(position);
    Ok(experiments)
}

/// Writes a file that the user names, either all of it or nothing.
fn save(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let error = |why: std::io::Error| {
        CliError::failed(format!("{}: {why}; {}", path.display(), file::remedy(&why)))
    };
    let mut out = Output::create(path).map_err(error)?;
    out.write_all(bytes).and_then(|()| out.finish()).map_err(error)
}
