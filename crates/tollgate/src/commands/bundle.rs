//! `tollgate bundle`: a run with everything that follows from it in one file, and the check of such a file.

mod code;

use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::experiment::suite_name;
use lab::journal::{self, RECORD, Run, SAMPLES};
use machine::environment;
use machine::file;
use report::bundle::{self, Author, BundleClaims, BundleEnvironments, Crate, Entries};
use report::table::BundleValues;

use super::{claims, plot, repetition, report as page};
use crate::arguments::Bundle;
use crate::error::CliError;
use crate::output::{print_message, print_plain, print_written};
use crate::select;
use crate::stored_run;

/// The program that computes intervals and verdicts independently of this one.
const VERIFIER: &[u8] = include_bytes!("../../../../scripts/verify.py");

/// Writes the bundle of the newest run, or checks a bundle.
pub(crate) fn bundle(args: &Bundle) -> Result<u8, CliError> {
    match &args.check {
        Some(path) => check(path, args.sha256.as_deref()).map_err(CliError::with_status_2),
        None => write(args),
    }
}

fn check(path: &Path, expected: Option<&str>) -> Result<u8, CliError> {
    let version = env!("CARGO_PKG_VERSION");
    let mut checked = bundle::check(path, version).map_err(CliError::failed)?;
    if let Some(expected) = expected.filter(|it| !it.eq_ignore_ascii_case(&checked.digest)) {
        checked.modifications.push(format!("archive: its SHA-256 digest is not {expected}"));
    }
    let lines = checked.modifications.iter().chain(&checked.notes);
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    let found = match checked.modifications.len() {
        0 if checked.entries == 1 => "1 entry, not modified".into(),
        0 => format!("{} entries, none modified", checked.entries),
        1 => "1 modification".into(),
        several => format!("{several} modifications"),
    };
    print_plain(&format!("{lines}{}: {found}; SHA-256 {}", path.display(), checked.digest))?;
    Ok(u8::from(!checked.modifications.is_empty()))
}

fn write(args: &Bundle) -> Result<u8, CliError> {
    if bundle::is_bundle(&args.results.folder) {
        let folder = args.results.folder.display();
        return Err(CliError::usage(format!(
            "{folder}: is a bundle already; name a results folder"
        )));
    }
    let folder = journal::newest(&args.results.folder)?;
    let mut run = stored_run::open_run(&folder)?;
    stored_run::check_one_program(&run)?;
    let mut entries = Entries::default();
    let lines = add_journal(&mut entries, &folder, &run)?;
    // It was opened before the files were read.
    if lines.len() != run.samples.len() {
        let folder = folder.display();
        let line = format!("{folder}: a run writes to it; write the bundle when it has ended");
        return Err(CliError::failed(line));
    }
    // The same run in another folder gives the same bundle.
    let name = Path::new("results").join(&run.record.name);
    let here = folder.display().to_string();
    let renamed = |line: &String| line.replace(&here, &name.display().to_string());
    run.inconsistencies = run.inconsistencies.iter().map(renamed).collect();
    run.folder = name;
    let catalogue = select::catalogue(&args.files)?;
    let files = add_declarations(&mut entries, &args.files)?;
    let experiments = stored_run::listed(&run, &catalogue)?;
    add_claims(&mut entries, &run, &catalogue, &files, &lines)?;
    add_values(&mut entries, &run, &experiments)?;
    for (id, svg) in plot::svg_figures(&run, &experiments, &catalogue.figures()?)? {
        let about = format!("Figure {id}; 'tollgate explain {id}' describes it");
        entries.add(format!("figures/{id}.svg"), about, svg.into_bytes());
    }
    let html = page::bundled_page(&run, &catalogue, &files)?;
    entries.add(bundle::PAGE, "All results on one page; open it in a browser", html.into_bytes());
    let about = "Machines, kernels, settings and programs of the samples, by ID";
    let environments = BundleEnvironments { environments: &run.record.environments };
    let environments = lab::schema::to_value(&environments).map_err(CliError::failed)?;
    entries.add_json(bundle::ENVIRONMENTS, about, &environments).map_err(CliError::failed)?;
    let about = "Computes every interval and verdict again, without code of tollgate; needs NumPy";
    entries.add(bundle::VERIFIER, about, VERIFIER.to_vec());
    code::add_code(&mut entries, &folder, &run)?;
    let bytes =
        archive(entries, &run, &repetition::repetition(&run, &catalogue, &files)?.command, args)?;
    page::save(&args.output, &bytes)?;
    let size = lab::format::precise(bytes.len() as f64, "B");
    let digest = bundle::digest(&bytes);
    print_written(&args.output, &format!("{size}; SHA-256 {digest}"))?;
    Ok(0)
}

fn archive(entries: Entries, run: &Run, command: &str, args: &Bundle) -> Result<Vec<u8>, CliError> {
    let author = Author { name: args.author.clone(), licence: args.licence.clone() };
    let program_hash = environment::program_hash();
    let version = env!("CARGO_PKG_VERSION");
    let program_hash = program_hash.as_deref();
    let of = Crate { run, command, version, program_hash, author: &author };
    entries.archive(&of).map_err(CliError::failed)
}

/// Adds the files of a run; returns the lengths of the lines of its samples.
fn add_journal(entries: &mut Entries, folder: &Path, run: &Run) -> Result<Vec<usize>, CliError> {
    let about = "Run record: environments, seed, experiments, metrics, sessions";
    entries.add(RECORD, about, read(folder, RECORD)?);
    let samples = match run.samples.is_empty() {
        true => Vec::new(),
        false => read(folder, SAMPLES)?,
    };
    // A last line without its end was in flight when the run was killed.
    let lines = samples.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let lines = lines.map(<[u8]>::len).collect();
    entries.add(SAMPLES, "Journal: one sample per line", samples);
    Ok(lines)
}

/// Reads a file of a run.
fn read(folder: &Path, name: &str) -> Result<Vec<u8>, CliError> {
    let path = folder.join(name);
    std::fs::read(&path).map_err(|why| {
        CliError::failed(format!("{}: {why}; {}", path.display(), file::remedy(&why)))
    })
}

/// Adds the files that the user names; returns their names in the bundle.
fn add_declarations(entries: &mut Entries, files: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut names = Vec::new();
    for (number, path) in (1..).zip(files) {
        let bytes = file::read_input(path, file::MAX_WHOLE_BYTES).map_err(|why| {
            CliError::usage(format!("{}: {why}; {}", path.display(), file::remedy(&why)))
        })?;
        let name = format!("declarations/{number}.toml");
        entries.add(name.as_str(), "Experiments, claims and figures of the user", bytes);
        names.push(PathBuf::from(name));
    }
    Ok(names)
}

/// Adds every claim with its verdict. Claims on self-test suites are left out unless the run measured them.
fn add_claims(
    entries: &mut Entries,
    run: &Run,
    catalogue: &Catalogue,
    files: &[PathBuf],
    lines: &[usize],
) -> Result<(), CliError> {
    let is_shown = |claim: &Claim| {
        run.record.experiments.contains_key(&claim.experiment)
            || !select::is_self_test(suite_name(&claim.experiment))
    };
    let shown = catalogue.claims()?.into_iter().filter(is_shown).collect();
    let shown = select::with_arguments(shown, Path::new("results"), files);
    let cores = claims::cores_of(Some(run));
    let judged = claims::judge(shown, Some(run));
    let claims = BundleClaims::new(run, &judged, cores, lines);
    let value = lab::schema::to_value(&claims).map_err(CliError::failed)?;
    let about = "Every claim in full, with its verdict and what measuring it again takes";
    entries.add_json(bundle::CLAIMS, about, &value).map_err(CliError::failed)
}

/// Adds the values and intervals of every point.
fn add_values(entries: &mut Entries, run: &Run, experiments: &[String]) -> Result<(), CliError> {
    let mut values = BundleValues::default();
    for id in experiments {
        if let Err(why) = values.add(run, id) {
            print_message(&format!("{}: {id}: {why}", bundle::VALUES));
        }
    }
    let about = "Median, interval and noise floor of every point";
    let value = lab::schema::to_value(&values).map_err(CliError::failed)?;
    entries.add_json(bundle::VALUES, about, &value).map_err(CliError::failed)
}
