//! The output at the end of `tollgate run`.

use lab::catalogue::{Catalogue, DeclaredFigure};
use lab::claim::{Claim, Verdict};
use lab::data::DataError;
use lab::experiment::Profile;
use lab::format::count;
use lab::headline::{self, Headline, Stated};
use lab::journal::Run;
use lab::run::{RunRequest, RunSummary, is_lab_experiment};
use machine::file::Output;
use report::export::{Format, to_file};
use report::table::{self, Page, Screen, ShowOptions};
use serde_json::json;

use super::plot::Figures;
use crate::arguments;
use crate::error::CliError;
use crate::output::{print, print_json, print_plain};
use crate::{SUITES, select};

/// What the catalogue declares about results.
pub(super) struct Declared {
    pub(super) claims: Vec<Claim>,
    pub(super) figures: Vec<DeclaredFigure>,
    pub(super) headlines: Vec<Headline>,
}

impl Declared {
    /// Resolves all claims, figures and headlines.
    ///
    /// # Errors
    /// Returns the first error in a data file.
    pub(super) fn of(catalogue: &Catalogue) -> Result<Self, DataError> {
        Ok(Self {
            claims: catalogue.claims()?,
            figures: catalogue.figures()?,
            headlines: catalogue.headlines()?,
        })
    }
}

/// Results of a run as they are printed.
struct Results<'a> {
    run: &'a Run,
    /// Measured experiments.
    experiments: &'a [String],
    headlines: Vec<Stated>,
    judged: Vec<(Claim, Verdict)>,
}

/// Prints one screen, or tables and verdicts, and writes figures and a CSV file. Returns the first
/// error of a user's figure at the end.
pub(super) fn print_results(
    args: &arguments::Run,
    request: &RunRequest,
    summary: &RunSummary,
    declared: Declared,
) -> Result<(), CliError> {
    let run = select::open(&summary.folder)?;
    let experiments = select::measured(&run, &request.experiments);
    let figures = super::plot::draw_run(&run, &request.experiments, &declared.figures)?;
    // A run interrupted before its first sample has no results.
    let is_empty = run.samples.is_empty();
    if !is_empty {
        let csv = summary.folder.join("samples.csv");
        to_file(std::slice::from_ref(&run), &|_| true, Format::Csv, &csv, Output::replace)
            .map_err(CliError::failed)?;
    }
    let is_measured =
        |one: &&Headline| one.experiments().iter().all(|id| experiments.iter().any(|it| it == id));
    let headlines = declared.headlines.iter().filter(is_measured);
    let results = Results {
        run: &run,
        experiments: &experiments,
        headlines: headlines.filter_map(|one| headline::state(one, &run)).collect(),
        judged: super::claims::judge_run(&run, &request.experiments, declared.claims),
    };
    if args.json {
        results.print_json(summary, &figures)?;
    } else if args.tables && !is_empty {
        results.print_tables()?;
        let facts = results.facts(summary, &figures);
        let lines = facts.iter().map(|(label, fact)| format!("{label}: {fact}\n"));
        print_plain(&format!("\n{}", lines.collect::<String>()))?;
    } else if !is_empty {
        results.print_screen(args, summary, &figures)?;
    }
    figures.result()
}

impl Results<'_> {
    fn print_json(&self, summary: &RunSummary, figures: &Figures) -> Result<(), CliError> {
        print_json(&json!({
            "folder": summary.folder.display().to_string(),
            "samples": summary.samples,
            "headlines": self.headlines,
            "tables": table::show_json(self.run, self.experiments, &ShowOptions::default())?,
            "claims": table::verdicts_json(&self.judged),
            "figures": figures.json(),
            "inconsistencies": select::inconsistencies(self.run),
        }))
    }

    fn print_tables(&self) -> Result<(), CliError> {
        let page = Page::stdout();
        print(&table::show(self.run, self.experiments, &ShowOptions::default(), page)?)?;
        select::print_inconsistencies(self.run)?;
        if self.judged.is_empty() {
            return Ok(());
        }
        print("")?;
        print(&table::verdicts(&self.judged, true, page))
    }

    fn print_screen(
        &self,
        args: &arguments::Run,
        summary: &RunSummary,
        figures: &Figures,
    ) -> Result<(), CliError> {
        let is_measured = |suite: &str| {
            self.experiments.iter().any(|id| lab::experiment::suite_name(id) == suite)
        };
        let suites = SUITES.iter().map(|suite| suite.name()).filter(|name| is_measured(name));
        let screen = Screen {
            suites: &suites.collect::<Vec<_>>(),
            headlines: &self.headlines,
            judged: &self.judged,
            inconsistencies: &select::inconsistencies(self.run),
            facts: &self.facts(summary, figures),
            commands: &commands(args),
        };
        print(&screen.text(Page::stdout()))
    }

    /// Returns what was measured and where it is stored.
    fn facts(&self, summary: &RunSummary, figures: &Figures) -> Vec<(&'static str, String)> {
        let record = &self.run.record;
        let of_suites = self.run.samples.iter().filter(|it| !is_lab_experiment(&it.experiment));
        let all = of_suites.count();
        let samples = count(all, "sample");
        let session = match summary.samples as usize {
            now if now == all => String::new(),
            now => format!(", {now} of them in this session"),
        };
        let folder = summary.folder.display();
        let mut files = format!("{folder}: samples.csv");
        if figures.count() > 0 {
            files += &format!(", figures/ ({})", count(figures.count(), "figure"));
        }
        let profile = record.profile.name();
        let measured = format!("{samples} on {}, profile {profile}{session}", record.host);
        vec![("measured", measured), ("run", files)]
    }
}

/// Returns commands that continue after a run, with their purposes.
fn commands(args: &arguments::Run) -> Vec<(String, &'static str)> {
    let results = args.results.folder.display().to_string();
    let results =
        if results == "results" { String::new() } else { format!(" --results {results}") };
    let names: String = args.selection.names.iter().map(|name| format!(" {name}")).collect();
    let files: String =
        args.selection.files.iter().map(|file| format!(" -e {}", file.display())).collect();
    let more = match args.selection.profile {
        Profile::Quick => format!("tollgate run{names} --profile standard{results}{files}"),
        Profile::Standard | Profile::Full => format!("tollgate run{names} --fresh{results}{files}"),
    };
    vec![
        (format!("tollgate show{names}{results}"), "all values as tables"),
        (
            format!("tollgate claims{results}{files}"),
            "each verdict with its reason; 'explain ID' for one",
        ),
        (more, "more rounds and points, to decide more claims"),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use lab::claim;
    use lab::headline::{Slot, SlotKind};
    use lab::suite::Purpose;

    use super::*;

    /// Returns the screen of a run in which every headline has its longest sentence and every claim
    /// is contradicted.
    fn longest_screen(page: Page) -> String {
        let catalogue = Catalogue::load(SUITES, &[]).unwrap();
        let boundaries = SUITES.iter().filter(|suite| suite.purpose() == Purpose::Boundary);
        let suites: Vec<_> = boundaries.map(|suite| suite.name()).collect();
        let state = |headline: Headline| {
            let filled = headline.says.iter().map(|sentence| {
                let fill = |text: String, (name, slot): (&String, &Slot)| {
                    let value = match slot.kind {
                        SlotKind::Value(_) => "148.8 M/s ±12%",
                        SlotKind::Ratio { .. } => "10.9",
                        SlotKind::Share { .. } => "86% (70% to 95%)",
                        SlotKind::Every { .. } => "20 rounds",
                        SlotKind::Outside { .. } => "12 of 20 samples",
                    };
                    text.replace(&format!("{{{name}}}"), value)
                };
                headline.slots.iter().fold(sentence.clone(), fill) + " (near cores)"
            });
            let sentence = filled.max_by_key(String::len).unwrap();
            Stated { id: headline.id.clone(), suite: headline.suite().into(), sentence }
        };
        let headlines: Vec<_> = catalogue.headlines().unwrap().into_iter().map(state).collect();
        let judge = |claim: Claim| {
            let verdict = claim::judge(&claim, None, 2);
            (claim, Verdict { kind: claim::VerdictKind::Contradicted, ..verdict })
        };
        let judged: Vec<_> = catalogue.claims().unwrap().into_iter().map(judge).collect();
        let screen = Screen {
            suites: &suites,
            headlines: &headlines,
            judged: &judged,
            inconsistencies: &["the parts of a trip are larger than the trip".into()],
            facts: &[("measured", "1 sample".into()), ("run", "results/vm-quick-1".into())],
            commands: &[("tollgate show".into(), "all values as tables")],
        };
        screen.text(page)
    }

    #[test]
    fn a_run_ends_with_one_screen() {
        let text = longest_screen(Page::default());
        assert!(text.lines().count() <= 40, "{}:\n{text}", text.lines().count());
        assert!(text.contains("more: tollgate claims"), "{text}");
        for width in [40, 80, 100] {
            let text = longest_screen(Page { width, colour: false });
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{width}:\n{text}");
        }
    }
}
