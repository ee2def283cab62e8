//! `tollgate plot`

use std::path::{Path, PathBuf};

use lab::catalogue::DeclaredFigure;
use lab::experiment::{Experiment, Profile};
use lab::figure::{Axis, Figure, FigureKind};
use lab::journal::Run;
use lab::schema::JsonOutput;
use machine::file;
use report::chart;
use report::figure::{FigureError, Picture, Summaries, picture};
use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::Plot;
use crate::error::CliError;
use crate::output::{print_json, print_message, print_plain};
use crate::select;
use crate::stored_run;
use crate::suites::SUITES;

/// Figures of a run: those that can be drawn with their files, and the others with the reasons.
#[derive(Default)]
pub(super) struct Figures {
    pictures: Vec<Picture>,
    files: Vec<PathBuf>,
    skipped: Vec<SkippedFigure>,
    /// First error of a user's figure.
    error: Option<CliError>,
}

/// JSON output of `tollgate plot`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PlotOutput<'a> {
    /// Paths of the files written.
    files: Vec<String>,
    /// Figures that are not drawn.
    skipped: &'a [SkippedFigure],
}

impl JsonOutput for PlotOutput<'_> {
    const NAME: &'static str = "plot";
    const WRITTEN_BY: &'static str = "tollgate plot --json";
    const VERSION: u64 = 1;
}

/// A figure that is not drawn.
#[derive(Serialize, JsonSchema)]
struct SkippedFigure {
    /// ID.
    figure: String,
    /// Reason in one line.
    why: String,
}

impl Figures {
    /// Returns the pictures of figures. Errors of a suite's figure are reported only.
    fn new<'a>(figures: impl Iterator<Item = &'a DeclaredFigure>, run: &Run) -> Self {
        let mut all = Self::default();
        let summaries = Summaries::new(run);
        for DeclaredFigure { figure, is_user_supplied, .. } in figures {
            let error = match picture(figure, &summaries) {
                Ok(picture) => {
                    all.pictures.push(picture);
                    continue;
                }
                Err(error) => error,
            };
            all.skipped.push(SkippedFigure { figure: figure.id.clone(), why: error.to_string() });
            match error {
                FigureError::Summary { .. } | FigureError::Nothing { .. } => {}
                error if *is_user_supplied => {
                    all.error.get_or_insert(error.into());
                }
                error => print_message(&error.to_string()),
            }
        }
        all
    }

    /// Draws the pictures into a folder that a command-line option sets.
    fn draw(
        &mut self,
        folder: &Path,
        option: &'static str,
        save: fn(&Path, &[u8]) -> std::io::Result<()>,
    ) -> Result<(), CliError> {
        for picture in &self.pictures {
            self.files.extend(chart::write(picture, folder, option, save)?);
        }
        Ok(())
    }

    /// Returns the number of figures drawn.
    pub(super) fn count(&self) -> usize {
        self.pictures.len()
    }

    /// Returns the files written, and the figures without files with the reasons, for JSON.
    pub(super) fn output(&self) -> PlotOutput<'_> {
        let files = self.files.iter().map(|file| file.display().to_string()).collect();
        PlotOutput { files, skipped: &self.skipped }
    }

    /// Returns the first error of a user's figure.
    pub(super) fn result(self) -> Result<(), CliError> {
        self.error.map_or(Ok(()), Err)
    }
}

/// Draws figures of the newest run.
pub(crate) fn plot(args: &Plot) -> Result<u8, CliError> {
    if args.grid && (args.x.is_none() || args.series.is_none()) {
        return Err(CliError::usage(
            "--grid requires --x and --series, e.g. 'plot bounds/detection --x bug --series mechanism --grid'",
        ));
    }
    let catalogue = select::catalogue(&args.files)?;
    let declared = catalogue.figures()?;
    let run = stored_run::open(&args.results.folder);
    // Errors in the arguments are reported even if there is no run.
    let adhoc = args.x.as_ref().map(|x| {
        let mut experiments = catalogue.experiments(Profile::Full)?;
        // Experiments of a user's file that is not named again.
        experiments.extend(run.iter().flat_map(|run| run.record.experiments.values()).cloned());
        adhoc_figure(args, x, &experiments)
    });
    let adhoc = adhoc.transpose()?;
    if adhoc.is_none() {
        check_names(&declared, &args.figures)?;
    }
    let run = run?;
    stored_run::check_one_program(&run)?;
    let mut figures = match adhoc {
        Some(figure) => {
            stored_run::resolve_names(&run, std::slice::from_ref(&figure.experiment))?;
            Figures {
                pictures: vec![picture(&figure, &Summaries::new(&run))?],
                ..Figures::default()
            }
        }
        None if args.figures.is_empty() => Figures::new(declared.iter(), &run),
        None => Figures { pictures: named_pictures(&declared, args, &run)?, ..Figures::default() },
    };
    if figures.pictures.is_empty() {
        figures.result()?;
        let folder = run.folder.display();
        return Err(CliError::usage(format!(
            "{folder}: no figure has samples; name an experiment with --x"
        )));
    }
    figures.draw(&args.output, "--output", file::write)?;
    if args.json {
        print_json(&figures.output())?;
    } else {
        let lines = figures.files.iter().map(|path| format!("{}\n", path.display()));
        print_plain(&lines.collect::<String>())?;
    }
    figures.result().map(|()| 0)
}

/// Returns the figures of some experiments of a run as SVG, by ID; those without samples are omitted.
pub(super) fn svg_figures(
    run: &Run,
    experiments: &[String],
    figures: &[DeclaredFigure],
) -> Result<Vec<(String, String)>, CliError> {
    let figures = figures.iter().filter(|it| experiments.contains(&it.figure.experiment));
    let drawn = Figures::new(figures, run);
    let svg = |picture: &Picture| Ok((picture.id().to_owned(), chart::draw(picture)?));
    drawn.pictures.iter().map(svg).collect()
}

/// Draws the figures of some experiments into the folder of a run.
pub(super) fn draw_run(
    run: &Run,
    experiments: &[Experiment],
    figures: &[DeclaredFigure],
) -> Result<Figures, CliError> {
    let ids: Vec<_> = experiments.iter().map(Experiment::id).collect();
    let figures = figures.iter().filter(|it| ids.contains(&it.figure.experiment));
    let mut figures = Figures::new(figures, run);
    let folder = run.folder.join("figures");
    // Another user may own the folder: neither it nor a file in it may be a link.
    file::create_folder(&folder).map_err(|why| {
        let folder = folder.display();
        CliError::failed(format!("{folder}: {why}; remove it or choose another --results folder"))
    })?;
    figures.draw(&folder, "--results", file::replace)?;
    Ok(figures)
}

/// Checks that the named figures are declared.
fn check_names(all: &[DeclaredFigure], names: &[String]) -> Result<(), CliError> {
    for id in names {
        if !all.iter().any(|it| it.figure.id == *id) {
            let similar = select::similar(id, all.iter().map(|it| it.figure.id.as_str()))
                .unwrap_or_else(|| "'tollgate list' lists figures".into());
            return Err(CliError::usage(format!("unknown figure '{id}'; {similar}")));
        }
    }
    Ok(())
}

/// Returns the pictures of the figures that the command line names.
fn named_pictures(
    all: &[DeclaredFigure],
    args: &Plot,
    run: &Run,
) -> Result<Vec<Picture>, CliError> {
    let figures = all.iter().map(|it| &it.figure);
    let named = figures.filter(|figure| args.figures.contains(&figure.id));
    let summaries = Summaries::new(run);
    Ok(named.map(|figure| picture(figure, &summaries)).collect::<Result<_, _>>()?)
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
    figure.filter = select::filter(&args.levels)?;
    let figure = figure.resolve(SUITES, experiments).map_err(CliError::usage)?;
    figure.check().map_err(CliError::usage)?;
    Ok(figure)
}
