//! `tollgate plot`

use std::path::{Path, PathBuf};

use lab::experiment::{Experiment, suite_name};
use lab::journal::Run;
use lab::suite::Suite;
use machine::file;
use report::chart::Form;
use report::figure::{self, Axis, Figure, FigureError, Kind, Picture, picture};
use report::table;

use crate::SUITES;
use crate::arguments::Plot;
use crate::fault::Fault;
use crate::output::{print_plain, tell};
use crate::select;

const FORMS: [Form; 3] = [Form::Svg, Form::Pdf, Form::Png];

/// Draws figures of the newest run into files.
pub(crate) fn run(given: &Plot) -> Result<u8, Fault> {
    if given.grid && (given.x.is_none() || given.series.is_none()) {
        return Err(Fault::usage(
            "--grid wants --x for its columns and --series for its rows, as 'plot bounds/detection --x bug --series mechanism --grid'",
        ));
    }
    // What is wrong with the question is told whatever was measured.
    let asked = given.x.as_ref().map(|x| by_hand(given, x)).transpose()?;
    let run = super::show::open(&given.place.results)?;
    let (pictures, possible) = match asked {
        Some(figure) => {
            super::show::meant(&run, std::slice::from_ref(&figure.experiment))?;
            (vec![picture(&figure, &run)?], Ok(()))
        }
        None => declared(given, &run)?,
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
    figures: &[Declared],
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
    figures: &[Declared],
    experiments: &[String],
    run: &Run,
) -> (Vec<Picture>, Result<(), Fault>) {
    let (mut pictures, mut possible) = (Vec::new(), Ok(()));
    for one in figures.iter().filter(|one| experiments.contains(&one.figure.experiment)) {
        match picture(&one.figure, run) {
            Ok(picture) => pictures.push(picture),
            // No samples of it here.
            Err(FigureError::Summary { .. } | FigureError::Nothing { .. }) => {}
            Err(error) if one.is_own => possible = possible.and(Err(error.into())),
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
        drawn.extend(figure::write(one, folder, option, &FORMS, save)?);
    }
    Ok(drawn)
}

/// A figure that a file declares.
pub(crate) struct Declared {
    figure: Figure,
    /// Whether the file is a person's, not a suite's.
    is_own: bool,
}

/// The figures of all suites and of a person's own files, levels in the suites' spelling.
pub(crate) fn all(files: &[PathBuf]) -> Result<Vec<Declared>, Fault> {
    let mut all = Vec::new();
    let mut add = |file: &str, text: &str, is_own| {
        for mut figure in figure::read(file, text)? {
            spell(&mut figure)?;
            check(&figure)?;
            all.push(Declared { figure, is_own });
        }
        Ok::<_, Fault>(())
    };
    for suite in SUITES {
        add(&format!("{}/figures.toml", suite.name()), suite.data().figures, false)?;
    }
    for path in files {
        add(&path.display().to_string(), &select::text_of(path)?, true)?;
    }
    Ok(all)
}

fn suite_of(figure: &str, experiment: &str) -> Result<&'static dyn Suite, Fault> {
    lab::suite::find(SUITES, suite_name(experiment)).ok_or_else(|| {
        Fault::usage(format!("figure '{figure}': there is no experiment '{experiment}'"))
    })
}

/// Whether the suites have the factors along x and of the series, and the metrics.
fn check(figure: &Figure) -> Result<(), Fault> {
    let wrong = |why: String| Fault::usage(format!("figure '{}': {why}", figure.id));
    let own = (None, figure.metric.as_ref(), Some(&figure.x), figure.series.as_ref());
    let lines =
        figure.lines.iter().map(|it| (it.experiment.as_ref(), it.metric.as_ref(), None, None));
    let beside = figure.beside.iter();
    let beside = beside.map(|it| (it.experiment.as_ref(), it.metric.as_ref(), Some(&it.x), None));
    for (experiment, metric, x, series) in std::iter::once(own).chain(lines).chain(beside) {
        let suite = suite_of(&figure.id, experiment.unwrap_or(&figure.experiment))?;
        for factor in x.filter(|x| !x.is_empty()).into_iter().chain(series) {
            lab::factor::find(&lab::suite::factors(suite), factor).map_err(wrong)?;
        }
        let metrics: Vec<_> = lab::suite::metrics(suite).iter().map(|metric| metric.name).collect();
        if let Some(metric) = metric.filter(|metric| !metrics.contains(&metric.as_str())) {
            let (suite, known) = (suite.name(), metrics.join(", "));
            return Err(wrong(format!("unknown metric '{metric}' of {suite}; there are: {known}")));
        }
    }
    Ok(())
}

fn spell(figure: &mut Figure) -> Result<(), Fault> {
    let factors = |experiment: &str| suite_of(&figure.id, experiment).map(lab::suite::factors);
    let wrong = |why: String| Fault::usage(format!("figure '{}': {why}", figure.id));
    let filter = figure.filter.canonical(&factors(&figure.experiment)?).map_err(wrong)?;
    for line in &mut figure.lines {
        let experiment = line.experiment.as_deref().unwrap_or(&figure.experiment);
        line.filter = line.filter.canonical(&factors(experiment)?).map_err(wrong)?;
    }
    for beside in &mut figure.beside {
        let experiment = beside.experiment.as_deref().unwrap_or(&figure.experiment);
        beside.filter = beside.filter.canonical(&factors(experiment)?).map_err(wrong)?;
    }
    figure.filter = filter;
    Ok(())
}

/// The named figures, or all that the run has samples for.
fn declared(given: &Plot, run: &Run) -> Result<(Vec<Picture>, Result<(), Fault>), Fault> {
    let all = all(&given.files)?;
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
fn by_hand(given: &Plot, x: &str) -> Result<Figure, Fault> {
    let [experiment] = given.figures.as_slice() else {
        return Err(Fault::usage("--x wants one experiment, as 'plot copy/throughput --x length'"));
    };
    let mut figure = Figure::by_hand(experiment, x);
    figure.metric.clone_from(&given.y);
    figure.series.clone_from(&given.series);
    figure.y_scale = given.log.then_some(Axis::Log10);
    figure.kind = if given.grid { Kind::Grid } else { Kind::Curves };
    for text in &given.levels {
        figure.filter.add(text).map_err(Fault::usage)?;
    }
    spell(&mut figure)?;
    check(&figure)?;
    match figure.fault() {
        Some(what) => Err(Fault::usage(format!("figure '{}': {what}", figure.id))),
        None => Ok(figure),
    }
}
