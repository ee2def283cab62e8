//! `tollgate plot`

use std::path::{Path, PathBuf};

use lab::experiment::{Experiment, suite_name};
use lab::journal::Run;
use machine::file;
use report::chart::Form;
use report::figure::{self, Axis, Figure, Kind, Picture, picture};
use report::table;

use crate::SUITES;
use crate::arguments::Plot;
use crate::fault::Fault;
use crate::output::print_plain;
use crate::select;

const FORMS: [Form; 3] = [Form::Svg, Form::Pdf, Form::Png];

/// Draws figures of the newest run into files.
pub(crate) fn run(given: &Plot) -> Result<u8, Fault> {
    if given.grid && (given.x.is_none() || given.series.is_none()) {
        return Err(Fault::usage(
            "--grid wants --x for its columns and --series for its rows, as 'plot bounds/detection --x bug --series mechanism --grid'",
        ));
    }
    let run = super::show::open(&given.place.results)?;
    let pictures = match &given.x {
        Some(x) => vec![picture(&by_hand(given, x, &run)?, &run)?],
        None => declared(given, &run)?,
    };
    if pictures.is_empty() {
        let folder = run.folder.display();
        return Err(Fault::usage(format!(
            "{folder}: no figure has samples here; name one with --x"
        )));
    }
    let drawn = draw(&pictures, &given.output, file::write)?;
    print_plain(&drawn.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    Ok(0)
}

/// The figures that a run leaves of what it was asked to measure; those that lack samples are
/// passed over.
pub(crate) fn after_run(
    run: &Run,
    experiments: &[Experiment],
    files: &[PathBuf],
) -> Result<Vec<PathBuf>, Fault> {
    let ids: Vec<_> = experiments.iter().map(Experiment::id).collect();
    let pictures = possible(&all(files)?, &ids, run);
    let folder = run.folder.join("figures");
    // The folder may be another user's: neither it nor a file in it may lead elsewhere.
    file::create_folder(&folder).map_err(|why| {
        let folder = folder.display();
        Fault::failed(format!(
            "{folder}: {why}; remove it, or choose another folder with --results"
        ))
    })?;
    draw(&pictures, &folder, file::replace)
}

/// The figures of some experiments that the run has samples for.
fn possible(figures: &[Figure], experiments: &[String], run: &Run) -> Vec<Picture> {
    let meant = figures.iter().filter(|one| experiments.contains(&one.experiment));
    meant.filter_map(|one| picture(one, run).ok()).collect()
}

fn draw(
    pictures: &[Picture],
    folder: &Path,
    save: fn(&Path, &[u8]) -> std::io::Result<()>,
) -> Result<Vec<PathBuf>, Fault> {
    let mut drawn = Vec::new();
    for one in pictures {
        drawn.extend(figure::write(one, folder, &FORMS, save)?);
    }
    Ok(drawn)
}

/// The figures of all suites and of a person's own files, levels in the suites' spelling.
fn all(files: &[PathBuf]) -> Result<Vec<Figure>, Fault> {
    let mut figures = Vec::new();
    for suite in SUITES {
        let file = format!("{}/figures.toml", suite.name());
        figures.extend(figure::read(&file, suite.data().figures)?);
    }
    for path in files {
        figures.extend(figure::read(&path.display().to_string(), &select::text_of(path)?)?);
    }
    for one in &mut figures {
        spell(one)?;
    }
    Ok(figures)
}

fn spell(figure: &mut Figure) -> Result<(), Fault> {
    let factors = |experiment: &str| {
        let suite = lab::suite::find(SUITES, suite_name(experiment));
        suite.map(lab::suite::Suite::factors).ok_or_else(|| {
            Fault::usage(format!("figure '{}': there is no experiment '{experiment}'", figure.id))
        })
    };
    let wrong = |why: String| Fault::usage(format!("figure '{}': {why}", figure.id));
    let filter = figure.filter.spelled(factors(&figure.experiment)?).map_err(wrong)?;
    for line in &mut figure.lines {
        let experiment = line.experiment.as_deref().unwrap_or(&figure.experiment);
        line.filter = line.filter.spelled(factors(experiment)?).map_err(wrong)?;
    }
    for beside in &mut figure.beside {
        let experiment = beside.experiment.as_deref().unwrap_or(&figure.experiment);
        beside.filter = beside.filter.spelled(factors(experiment)?).map_err(wrong)?;
    }
    figure.filter = filter;
    Ok(())
}

/// The named figures, or all that the run has samples for.
fn declared(given: &Plot, run: &Run) -> Result<Vec<Picture>, Fault> {
    let all = all(&given.files)?;
    for id in &given.figures {
        if !all.iter().any(|one| one.id == *id) {
            let known: Vec<_> = all.iter().map(|one| one.id.as_str()).collect();
            let known = known.join(", ");
            return Err(Fault::usage(format!("there is no figure '{id}'; there are: {known}")));
        }
    }
    if given.figures.is_empty() {
        return Ok(possible(&all, &table::measured(run), run));
    }
    let named = all.iter().filter(|one| given.figures.contains(&one.id));
    named.map(|one| Ok(picture(one, run)?)).collect()
}

/// A figure as the command line asks for it.
fn by_hand(given: &Plot, x: &str, run: &Run) -> Result<Figure, Fault> {
    let [experiment] = given.figures.as_slice() else {
        return Err(Fault::usage("--x wants one experiment, as 'plot copy/throughput --x length'"));
    };
    super::show::meant(run, std::slice::from_ref(experiment))?;
    let mut figure = Figure::by_hand(experiment, x);
    figure.metric.clone_from(&given.y);
    figure.series.clone_from(&given.series);
    figure.y_scale = given.log.then_some(Axis::Log10);
    figure.kind = if given.grid { Kind::Grid } else { Kind::Curves };
    for text in &given.levels {
        figure.filter.add(text).map_err(Fault::usage)?;
    }
    spell(&mut figure)?;
    Ok(figure)
}
