//! `tollgate report`: all results of a run, or a comparison of runs, on one HTML page.

use std::io::Write;
use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::claim::{Claim, Verdict};
use lab::compare::{self, Comparison};
use lab::experiment::suite_name;
use lab::figure::Figure;
use lab::journal::Run;
use lab::run::is_lab_experiment;
use lab::summary::Unit;
use machine::file::{self, Output};
use report::page::{ComparedSide, ComparisonPage, Repetition, RunPage, SuiteHeadlines, Term};

use super::{claims, headlines, repetition};
use crate::arguments::Report;
use crate::error::CliError;
use crate::output::print_written;
use crate::select;
use crate::stored_run;
use crate::suites::SUITES;
use crate::terms;

/// Writes the page of the newest run, or of the named runs.
pub(crate) fn report(args: &Report) -> Result<u8, CliError> {
    let catalogue = select::catalogue(&args.files)?;
    let page = match args.runs.as_slice() {
        [] => newest_page(args, &catalogue)?,
        [one] => run_page(&super::compare::open_side(one)?, &catalogue, args)?,
        sides => comparison_page(sides, &catalogue, args)?,
    };
    save(&args.output, page.as_bytes())?;
    let size = lab::format::precise(page.len() as f64, "B");
    print_written(&args.output, &size)?;
    Ok(0)
}

fn newest_page(args: &Report, catalogue: &Catalogue) -> Result<String, CliError> {
    let run = stored_run::open(&args.results.folder)?;
    run_page(std::slice::from_ref(&run), catalogue, args)
}

/// Renders the page of a run as its bundle contains it: the results folder is the default one.
pub(super) fn bundled_page(
    run: &Run,
    catalogue: &Catalogue,
    files: &[PathBuf],
) -> Result<String, CliError> {
    let contents = Contents::of(std::slice::from_ref(run), catalogue, Path::new("results"), files)?;
    contents.page().html().map_err(CliError::failed)
}

/// Renders the page of the newest of some runs.
fn run_page(runs: &[Run], catalogue: &Catalogue, args: &Report) -> Result<String, CliError> {
    let contents = Contents::of(runs, catalogue, &args.results.folder, &args.files)?;
    contents.page().html().map_err(CliError::failed)
}

/// Renders the page of several sides, of which the others are compared with the first.
fn comparison_page(
    folders: &[PathBuf],
    catalogue: &Catalogue,
    args: &Report,
) -> Result<String, CliError> {
    let sides = folders.iter().map(|folder| super::compare::open_side(folder));
    let sides: Vec<Vec<Run>> = sides.collect::<Result<_, _>>()?;
    let contents =
        sides.iter().map(|runs| Contents::of(runs, catalogue, &args.results.folder, &args.files));
    let contents: Vec<Contents> = contents.collect::<Result<_, _>>()?;
    let all = folders.iter().zip(&sides).zip(&contents);
    let mut compared = Vec::new();
    for (index, ((folder, runs), contents)) in all.enumerate() {
        let comparisons = match index {
            0 => Vec::new(),
            _ => comparisons((&folders[0], &sides[0]), (folder, runs))?,
        };
        compared.push(ComparedSide {
            name: side_name(index),
            folder: folder.display().to_string(),
            runs: runs.len(),
            newest: contents.page(),
            comparisons,
        });
    }
    ComparisonPage { sides: &compared }.html().map_err(CliError::failed)
}

/// Returns the letter of a side; beyond 26 sides, its number.
fn side_name(index: usize) -> String {
    let letter = u8::try_from(index).ok().and_then(|index| b'A'.checked_add(index));
    let letter = letter.filter(u8::is_ascii_uppercase).map(|letter| char::from(letter).to_string());
    letter.unwrap_or_else(|| format!("S{}", index + 1))
}

/// Compares the experiments that all runs of two sides have.
fn comparisons(
    (a_folder, a): (&Path, &[Run]),
    (b_folder, b): (&Path, &[Run]),
) -> Result<Vec<Comparison>, CliError> {
    let shared = compare::experiments(a, b);
    let shared: Vec<&str> = shared.into_iter().filter(|id| !is_lab_experiment(id)).collect();
    if shared.is_empty() {
        let (a, b) = (a_folder.display(), b_folder.display());
        return Err(CliError::usage(format!("{a} and {b} have no experiment in common")));
    }
    Ok(compare::compare(a, b, &shared, None, Unit::Own)?)
}

/// Contents of the page of a run.
struct Contents<'a> {
    run: &'a Run,
    experiments: Vec<String>,
    figures: Vec<Figure>,
    headlines: Vec<SuiteHeadlines>,
    judged: Vec<(Claim, Verdict)>,
    unlisted_claims: usize,
    inconsistencies: Vec<String>,
    repetition: Repetition,
    terms: Vec<Term>,
}

impl<'a> Contents<'a> {
    /// Collects the results of the newest of some runs.
    fn of(
        runs: &'a [Run],
        catalogue: &Catalogue,
        results: &Path,
        files: &[PathBuf],
    ) -> Result<Self, CliError> {
        let run = runs.last().ok_or_else(|| CliError::usage("no run; name the folder of a run"))?;
        stored_run::check_one_program(run)?;
        let experiments = stored_run::listed(run, catalogue)?;
        let figures = catalogue.figures()?.into_iter().map(|declared| declared.figure);
        let claims = select::with_arguments(catalogue.claims()?, results, files);
        let is_on_instrument = |claim: &Claim| select::is_self_test(suite_name(&claim.experiment));
        let (shown, others) = claims::about(run.record.profile, &experiments, claims);
        Ok(Self {
            run,
            figures: figures.filter(|it| experiments.contains(&it.experiment)).collect(),
            headlines: headlines::by_suite(&catalogue.headlines()?, run, &experiments),
            judged: claims::judge(shown, Some(run)),
            unlisted_claims: others.iter().filter(|claim| !is_on_instrument(claim)).count(),
            inconsistencies: stored_run::inconsistencies(run),
            repetition: repetition::repetition(run, catalogue, files)?,
            terms: terms::on_page()?,
            experiments,
        })
    }

    fn page(&self) -> RunPage<'_> {
        RunPage {
            run: self.run,
            suites: SUITES,
            experiments: &self.experiments,
            figures: &self.figures,
            headlines: &self.headlines,
            judged: &self.judged,
            unlisted_claims: self.unlisted_claims,
            inconsistencies: &self.inconsistencies,
            repetition: &self.repetition,
            terms: &self.terms,
        }
    }
}

/// Writes a file that the user names, either all of it or nothing.
pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let error = |why: std::io::Error| {
        CliError::failed(format!("{}: {why}; {}", path.display(), file::remedy(&why)))
    };
    let mut out = Output::create(path).map_err(error)?;
    out.write_all(bytes).and_then(|()| out.finish()).map_err(error)
}
