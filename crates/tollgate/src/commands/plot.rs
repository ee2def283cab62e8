//! `tollgate plot`

use std::path::{Path, PathBuf};

use lab::catalogue::{Catalogue, DeclaredFigure};
use lab::experiment::Experiment;
use lab::figure::{Axis, Figure, FigureKind};
use lab::journal::Run;
use machine::file;
use report::chart;
use report::figure::{FigureError, Picture, picture};
use report::table;

use crate::arguments::Plot;
use crate::fault::Fault;
use crate::output::{print_plain, tell};
use crate::select;

/// Draws figures of the newest run into files.
pub(crate) fn run(given: &Plot) -> Result<u8, Fault> {
    if given.grid && (given.x.is_none() || given.series.is_none()) {
        return Err(Fault::usage(
            "--grid wants --x for its columns and --series for its rows, as 'plot bounds/detection --x bug --series mechanism --grid'",
        ));
    }
    // What is wrong with the question is told whatever was measured.
    let catalogue = select::catalogue(&given.files)?;
    let asked = given.x.as_ref().map(|x| adhoc(&catalogue, given, x)).transpose()?;
    let run = super::show::open(&given.place.results)?;
    let (pictures, possible) = match asked {
        Some(figure) => {
            super::show::meant(&run, std::slice::from_ref(&figure.experiment))?;
            (vec![picture(&figure, &run)?], Ok(()))
        }
        None => declared(&catalogue, given, &run)?,
    };
    if pictures.is_empty() {
        possible?;
        let folder = run.folder.display();
        return Err(Fault::usage(format!(
            "{folder}: no figure has samples here; name one with --x"
        )));
    }
    let drawn = draw(&pictures, &given.output, "--output", file::write)?;
    print_plain(&drawn.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    possible.map(|()| 0)
}

/// The figures that a run leaves of what it was asked to measure, those that lack samples passed over; and what is
/// wrong with one of a person's own.
pub(crate) fn after_run(
    run: &Run,
    experiments: &[Experiment],
    figures: &[DeclaredFigure],
) -> Result<(Vec<PathBuf>, Result<(), Fault>), Fault> {
    let ids: Vec<_> = experiments.iter().map(Experiment::id).collect();
    let (pictures, possible) = possible(figures, &ids, run);
    let folder = run.folder.join("figures");
    // The folder may be another user's: neither it nor a file in it may lead elsewhere.
    file::create_folder(&folder).map_err(|why| {
        let folder = folder.display();
        Fault::failed(format!(
            "{folder}: {why}; remove it, or choose another folder with --results"
        ))
    })?;
    Ok((draw(&pictures, &folder, "--results", file::replace)?, possible))
}

/// The figures of some experiments that the run has samples for; and what is wrong with one of a person's own. That
/// a suite's own cannot be drawn of these samples is only told.
fn possible(
    figures: &[DeclaredFigure],
    experiments: &[String],
    run: &Run,
) -> (Vec<Picture>, Result<(), Fault>) {
    let (mut pictures, mut possible) = (Vec::new(), Ok(()));
    for one in figures.iter().filter(|one| experiments.contains(&one.figure.experiment)) {
        match picture(&one.figure, run) {
            Ok(picture) => pictures.push(picture),
            // No samples of it here.
            Err(FigureError::Summary { .. } | FigureError::Nothing { .. }) => {}
            Err(error) if one.is_user_supplied => possible = possible.and(Err(error.into())),
            Err(error) => tell(&error.to_string()),
        }
    }
    (pictures, possible)
}

/// Draws pictures into a folder that an option names.
fn draw(
    pictures: &[Picture],
    folder: &Path,
    option: &'static str,
    save: fn(&Path, &[u8]) -> std::io::Result<()>,
) -> Result<Vec<PathBuf>, Fault> {
    let mut drawn = Vec::new();
    for one in pictures {
        drawn.extend(chart::write(one, folder, option, save)?);
    }
    Ok(drawn)
}

/// The named figures, or all that the run has samples for.
fn declared(
    catalogue: &Catalogue,
    given: &Plot,
    run: &Run,
) -> Result<(Vec<Picture>, Result<(), Fault>), Fault> {
    let all = catalogue.figures()?;
    for id in &given.figures {
        if !all.iter().any(|one| one.figure.id == *id) {
            let known: Vec<_> = all.iter().map(|one| one.figure.id.as_str()).collect();
            let known = known.join(", ");
            return Err(Fault::usage(format!("there is no figure '{id}'; there are: {known}")));
        }
    }
    if given.figures.is_empty() {
        return Ok(possible(&all, &table::measured(run), run));
    }
    let figures = all.iter().map(|one| &one.figure);
    let named = figures.filter(|one| given.figures.contains(&one.id));
    Ok((named.map(|one| picture(one, run)).collect::<Result<_, _>>()?, Ok(())))
}

/// A figure as the command line asks for it.
fn adhoc(catalogue: &Catalogue, given: &Plot, x: &str) -> Result<Figure, Fault> {
    let [experiment] = given.figures.as_slice() else {
        return Err(Fault::usage("--x wants one experiment, as 'plot copy/throughput --x length'"));
    };
    let mut figure = Figure::adhoc(experiment, x);
    figure.metric.clone_from(&given.y);
    figure.series.clone_from(&given.series);
    figure.y_scale = given.log.then_some(Axis::Log10);
    figure.kind = if given.grid { FigureKind::Grid } else { FigureKind::Curves };
    for text in &given.levels {
        figure.filter.add(text).map_err(Fault::usage)?;
    }
    let figure = catalogue.resolve_figure(&figure).map_err(Fault::usage)?;
    match figure.check() {
        Err(what) => Err(Fault::usage(format!("figure '{}': {what}", figure.id))),
        Ok(()) => Ok(figure),
    }
}
