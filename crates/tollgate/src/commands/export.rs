//! `tollgate export`: samples or values in other formats.

use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::path::Path;

use lab::catalogue::Catalogue;
use lab::claim::{Claim, Verdict};
use lab::format::count;
use lab::journal::Run;
use lab::metric::Better;
use lab::sample::Sample;
use lab::terminal::{self, Plain};
use machine::file::Output;
use report::export::{self, ExportError, Format, Summary, Values};

use super::{claims, fleet, headlines};
use crate::arguments::{Direction, Export, ExportFormat};
use crate::error::CliError;
use crate::output::{print, print_message};
use crate::select;
use crate::stored_run;

/// Exports the samples or values of the newest run.
pub(crate) fn export(args: &Export) -> Result<u8, CliError> {
    check_options(args)?;
    if let Some(folder) = &args.fleet {
        return export_fleet(args, folder);
    }
    let run = stored_run::open(&args.results.folder)?;
    let experiments = stored_run::resolve_names(&run, &args.names)?;
    let text = match args.format {
        ExportFormat::Csv => return write_samples(args, run, Format::Csv),
        ExportFormat::Json => return write_samples(args, run, Format::Json),
        ExportFormat::Parquet => return write_samples(args, run, Format::Parquet),
        ExportFormat::Bmf => {
            let text = |values: &Values| export::bmf(values).map_err(CliError::failed);
            values_text(args, &run, &experiments, text)?
        }
        ExportFormat::GithubActionBenchmark => {
            let text = |values: &Values| {
                export::github_action_benchmark(values, &run).map_err(CliError::failed)
            };
            values_text(args, &run, &experiments, text)?
        }
        ExportFormat::Openmetrics => {
            let text = |values: &Values| {
                let judged = judged(args, &run, &experiments, &select::catalogue(&args.files)?)?;
                export::openmetrics(values, &run, &judged).map_err(CliError::failed)
            };
            values_text(args, &run, &experiments, text)?
        }
        ExportFormat::Markdown => summary(args, &run, &experiments)?,
        ExportFormat::UopsXml => instruction_table(args, &run)?,
    };
    // CPU and host names are text from outside.
    write_text(args, &terminal::lines(&text))
}

/// Exports the runs of a fleet.
fn export_fleet(args: &Export, folder: &Path) -> Result<u8, CliError> {
    match (args.format, &args.output) {
        (ExportFormat::Openmetrics, _) => {
            let fleet = fleet::read(folder, &args.names, None, true)?;
            write_text(args, &terminal::lines(&export::fleet_openmetrics(&fleet)))
        }
        (ExportFormat::Parquet, Some(out)) => export_partitions(args, folder, out),
        (ExportFormat::Parquet, None) => {
            let line = "parquet: a fleet has a file per run; name their folder with --output DIR";
            Err(CliError::usage(line))
        }
        _ => {
            Err(CliError::usage("--fleet: only openmetrics and parquet export a fleet; choose one"))
        }
    }
}

fn export_partitions(args: &Export, folder: &Path, out: &Path) -> Result<u8, CliError> {
    let filter = |sample: &Sample| select::is_selected(&args.names, &sample.experiment);
    let written = export::parquet_by_host(folder, &filter, out).map_err(CliError::failed)?;
    written.unreadable.iter().for_each(|why| print_message(&format!("not exported: {why}")));
    let (files, hosts) = (count(written.files, "file"), count(written.hosts.len(), "host"));
    let copies = match written.copies {
        0 => String::new(),
        copies => format!("; {copies} of the runs are copies"),
    };
    print_message(&format!("{}: {files} of {hosts}{copies}", out.display()));
    let Some(first) = written.others.first() else { return Ok(0) };
    Err(CliError::failed(format!(
        "{}: {} of another export there, e.g. {}; readers of the folder would read both: remove them, or choose an empty \
         folder",
        out.display(),
        count(written.others.len(), "file"),
        first.display()
    )))
}

/// Checks that a direction is given if and only if the format has one, and an architecture only if it has one.
fn check_options(args: &Export) -> Result<(), CliError> {
    if args.architecture.is_some() && args.format != ExportFormat::UopsXml {
        return Err(CliError::usage("--arch: only uops-xml names an architecture; omit it"));
    }
    let line = match (args.format, args.better) {
        (ExportFormat::GithubActionBenchmark, None) => {
            "github-action-benchmark: a file has metrics of one direction; use --better higher for its tool \
             customBiggerIsBetter, or --better lower for customSmallerIsBetter"
        }
        (ExportFormat::GithubActionBenchmark, Some(_)) | (_, None) => return Ok(()),
        (_, Some(_)) => "--better: only github-action-benchmark needs a direction; omit it",
    };
    Err(CliError::usage(line))
}

/// Writes samples to the output file or to standard output.
fn write_samples(args: &Export, run: Run, format: Format) -> Result<u8, CliError> {
    let filter = |sample: &Sample| select::is_selected(&args.names, &sample.experiment);
    let runs = [run];
    status(match &args.output {
        Some(path) => export::to_file(&runs, &filter, format, path, Output::create),
        // Files keep control characters; a terminal would act on them.
        None if stdout().is_terminal() => {
            export::write(&runs, &filter, format, &mut Plain::new(stdout()))
        }
        None => export::write(&runs, &filter, format, &mut stdout()),
    })
}

/// Returns the exit status. The reader of a pipe may close it early.
fn status(written: Result<(), ExportError>) -> Result<u8, CliError> {
    match written {
        Err(ExportError::Write(e)) if e.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(CliError::failed(error)),
        Ok(()) => Ok(0),
    }
}

/// Returns the values of experiments as a text, and reports how many are not exported.
fn values_text(
    args: &Export,
    run: &Run,
    experiments: &[String],
    text: impl Fn(&Values) -> Result<String, CliError>,
) -> Result<String, CliError> {
    stored_run::check_one_program(run)?;
    let mut values = Values::of(run, experiments)?;
    if let Some(direction) = args.better {
        values = values.with_direction(match direction {
            Direction::Higher => Better::Higher,
            Direction::Lower => Better::Lower,
        });
    }
    let text = text(&values)?;
    let left_out = values.left_out().to_string();
    if !left_out.is_empty() {
        print_message(&format!("not exported: {left_out}"));
    }
    Ok(text)
}

/// Returns the instruction table as XML, and reports how many forms are not exported.
fn instruction_table(args: &Export, run: &Run) -> Result<String, CliError> {
    stored_run::check_one_program(run)?;
    let roles = bounds::operand_roles();
    let table = exchange::export_uops_info(run, &roles, args.architecture.as_deref())?;
    if table.left_out > 0 {
        print_message(&format!(
            "not exported: {}, whose operands the format does not express",
            count(table.left_out, "form")
        ));
    }
    Ok(table.text)
}

fn summary(args: &Export, run: &Run, experiments: &[String]) -> Result<String, CliError> {
    stored_run::check_one_program(run)?;
    let catalogue = select::catalogue(&args.files)?;
    let summary = Summary {
        run,
        headlines: &headlines::filled(&catalogue.headlines()?, run, experiments),
        judged: &judged(args, run, experiments, &catalogue)?,
        inconsistencies: &stored_run::inconsistencies(run),
    };
    Ok(summary.text())
}

/// Judges the claims on experiments of a run.
fn judged(
    args: &Export,
    run: &Run,
    experiments: &[String],
    catalogue: &Catalogue,
) -> Result<Vec<(Claim, Verdict)>, CliError> {
    let claims = catalogue.claims()?;
    let claims = select::with_arguments(claims, &args.results.folder, &args.files);
    Ok(claims::judge_run(run, experiments, claims))
}

/// Writes a text to the output file, either all or nothing, or to standard output.
fn write_text(args: &Export, text: &str) -> Result<u8, CliError> {
    let Some(path) = &args.output else { return print(text).map(|()| 0) };
    let error = |why: std::io::Error| ExportError::File { path: path.clone(), why };
    let written = Output::create(path).and_then(|mut out| {
        out.write_all(text.as_bytes())?;
        out.finish()
    });
    status(written.map_err(error))
}
