//! `tollgate plot`

use std::path::{Path, PathBuf};

use lab::catalogue::DeclaredFigure;
use lab::experiment::{Experiment, Profile};
use lab::figure::{Axis, Figure, FigureKind};
use lab::journal::Run;
use machine::file;
use report::chart;
use report::figure::{FigureError, Picture, picture};
use report::table;

use crate::arguments::Plot;
use crate::error::CliError;
use crate::output::{print_plain, report};
use crate::suites::SUITES;
use crate::{results, select};

/// Pictures that can be drawn, and the first error of a user's figure.
type Pictures = (Vec<Picture>, Result<(), CliError>);

/// Draws figures of the newest run.
pub(crate) fn plot(args: &Plot) -> Result<u8, CliError> {
    if args.grid && (args.x.is_none() || args.series.is_none()) {
        return Err(CliError::usage(
            "--grid requires --x and --series, e.g. 'plot bounds/detection --x bug --series mechanism --grid'",
        ));
    }
    let catalogue = select::catalogue(&args.files)?;
    let figures = catalogue.figures()?;
    let run = results::open(&args.results.folder);
    // Errors in the arguments are reported even if there is no run.
    let adhoc = args.x.as_ref().map(|x| {
        let mut experiments = catalogue.experiments(Profile::Full)?;
        // Experiments of a user's file that is not named again.
        experiments.extend(run.iter().flat_map(|run| run.record.experiments.values()).cloned());
        adhoc_figure(args, x, &experiments)
    });
    let adhoc = adhoc.transpose()?;
    let run = run?;
    let (pictures, result) = match adhoc {
        Some(figure) => {
            results::resolve_names(&run, std::slice::from_ref(&figure.experiment))?;
            (vec![picture(&figure, &run)?], Ok(()))
        }
        None => declared_pictures(&figures, args, &run)?,
    };
    if pictures.is_empty() {
        result?;
        let folder = run.folder.display();
        return Err(CliError::usage(format!(
            "{folder}: no figure has samples; name an experiment with --x"
        )));
    }
    let drawn = draw(&pictures, &args.output, "--output", file::write)?;
    print_plain(&drawn.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    result.map(|()| 0)
}

/// Draws the figures of some experiments into the folder of a run, except those without samples. Returns
/// the files, and the first error of a user's figure.
pub(super) fn draw_run(
    run: &Run,
    experiments: &[Experiment],
    figures: &[DeclaredFigure],
) -> Result<(Vec<PathBuf>, Result<(), CliError>), CliError> {
    let ids: Vec<_> = experiments.iter().map(Experiment::id).collect();
    let (pictures, result) = pictures_with_samples(figures, &ids, run);
    let folder = run.folder.join("figures");
    // Another user may own the folder: neither it nor a file in it may be a link.
    file::create_folder(&folder).map_err(|why| {
        let folder = folder.display();
        CliError::failed(format!("{folder}: {why}; remove it or choose another --results folder"))
    })?;
    Ok((draw(&pictures, &folder, "--results", file::replace)?, result))
}

/// Returns the pictures of figures on the given experiments, except those without samples. Errors of the
/// suites' figures are reported only.
fn pictures_with_samples(
    figures: &[DeclaredFigure],
    experiments: &[String],
    run: &Run,
) -> Pictures {
    let (mut pictures, mut result) = (Vec::new(), Ok(()));
    for declared in figures.iter().filter(|it| experiments.contains(&it.figure.experiment)) {
        match picture(&declared.figure, run) {
            Ok(picture) => pictures.push(picture),
            Err(FigureError::Summary { .. } | FigureError::Nothing { .. }) => {}
            Err(error) if declared.is_user_supplied => result = result.and(Err(error.into())),
            Err(error) => report(&error.to_string()),
        }
    }
    (pictures, result)
}

/// Draws pictures into a folder that a command-line option sets.
fn draw(
    pictures: &[Picture],
    folder: &Path,
    option: &'static str,
    save: fn(&Path, &[u8]) -> std::io::Result<()>,
) -> Result<Vec<PathBuf>, CliError> {
    let mut drawn = Vec::new();
    for picture in pictures {
        drawn.extend(chart::write(picture, folder, option, save)?);
    }
    Ok(drawn)
}

/// Returns the pictures of the named figures, or of all figures with samples.
fn declared_pictures(all: &[DeclaredFigure], args: &Plot, run: &Run) -> Result<Pictures, CliError> {
    for id in &args.figures {
        if !all.iter().any(|it| it.figure.id == *id) {
            let known: Vec<_> = all.iter().map(|it| it.figure.id.as_str()).collect();
            let known = known.join(", ");
            return Err(CliError::usage(format!("unknown figure '{id}'; expected one of {known}")));
        }
    }
    if args.figures.is_empty() {
        return Ok(pictures_with_samples(all, &table::measured(run), run));
    }
    let figures = all.iter().map(|it| &it.figure);
    let named = figures.filter(|figure| args.figures.contains(&figure.id));
    Ok((named.map(|figure| picture(figure, run)).collect::<Result<_, _>>()?, Ok(())))
}

/// Returns the figure that `--x` and the other options describe.
fn adhoc_figure(args: &Plot, x: &str, experiments: &[Experiment]) -> Result<Figure, CliError> {
    let [experiment] = args.figures.as_slice() else {
        return Err(CliError::usage(
            "--x requires one experiment, e.g. 'plot copy/throughput --x length'",
        ));
    };
    let mut figure = Figure::adhoc(experiment, x);
    figure.metric.clone_from(&args.y);
    figure.series.clone_from(&args.series);
    figure.y_scale = args.log.then_some(Axis::Log10);
    figure.kind = if args.grid { FigureKind::Grid } else { FigureKind::Curves };
    for text in &args.levels {
        figure.filter.add(text).map_err(CliError::usage)?;
    }
    let figure = figure.resolve(SUITES, experiments).map_err(CliError::usage)?;
    figure.check().map_err(CliError::usage)?;
    Ok(figure)
}
