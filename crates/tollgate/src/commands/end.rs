//! The output at the end of `tollgate run`.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::catalogue::{Catalogue, DeclaredFigure};
use lab::claim::{Claim, Verdict};
use lab::experiment::Experiment;
use lab::format::{count, percent};
use lab::guest::GuestsRecord;
use lab::headline::{Filled, Headline};
use lab::journal::Run;
use lab::quantity::format_duration;
use lab::run::{RunRequest, RunSummary};
use lab::sample::Sample;
use lab::schema::JsonOutput;
use lab::sharing::SharingCounts;
use lab::statistics::INTERVAL_ROUNDS;
use lab::summary::Samples;
use machine::file::Output;
use report::export::{Format, to_file};
use report::table::{self, JudgedClaim, NoHeadline, Page, Screen, ShowOptions, ShowOutput};
use schemars::JsonSchema;
use serde::Serialize;

use super::next::{Rounds, commands};
use super::plot::{Figures, PlotOutput};
use super::{headlines, show};
use crate::arguments::{self, SelectionArgs};
use crate::error::CliError;
use crate::output::{print, print_json, print_plain};
use crate::select;
use crate::stored_run;

/// Share of samples with a busy SMT sibling above which the screen states it.
const MAX_SHARED: f64 = 0.1;

/// Declarations of the catalogue about results.
pub(super) struct Declared {
    /// All claims, or those that the user selected.
    pub(super) claims: Vec<Claim>,
    pub(super) figures: Vec<DeclaredFigure>,
    pub(super) headlines: Vec<Headline>,
}

impl Declared {
    /// Resolves all figures and headlines, and the selected claims: all without a selection.
    ///
    /// # Errors
    /// Returns the first error in a data file, or an error for an unknown claim.
    pub(super) fn of(catalogue: &Catalogue, args: &arguments::Run) -> Result<Self, CliError> {
        let claims = match args.selection.claim.as_slice() {
            [] => catalogue.claims()?,
            names => select::select_claims(catalogue, names)?,
        };
        Ok(Self {
            claims: select::with_arguments(
                claims,
                args.measure.results(),
                &args.selection.points.files,
            ),
            figures: catalogue.figures()?,
            headlines: catalogue.headlines()?,
        })
    }
}

/// Results of a run as they are printed.
struct Results<'a> {
    args: &'a arguments::Run,
    request: &'a RunRequest<'a>,
    summary: &'a RunSummary,
    run: &'a Run,
    /// Measured experiments.
    experiments: &'a [String],
    /// Declared headlines.
    declared: &'a [Headline],
    headlines: Vec<Filled>,
    judged: Vec<(Claim, Verdict)>,
}

/// JSON output of `tollgate run`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunOutput<'a> {
    /// Folder of the run.
    folder: String,
    /// Number of samples measured in this session.
    samples: u64,
    /// Guests in which it was measured; `null` for the host.
    guests: Option<&'a GuestsRecord>,
    /// Headlines that have values.
    headlines: &'a [Filled],
    tables: ShowOutput,
    claims: Vec<JudgedClaim<'a>>,
    figures: PlotOutput<'a>,
    /// Signs that the journal was edited, and contradictions between values of the run, one line each.
    inconsistencies: Vec<String>,
}

impl JsonOutput for RunOutput<'_> {
    const NAME: &'static str = "run";
    const WRITTEN_BY: &'static str = "tollgate run --json";
    const VERSION: u64 = 3;
}

/// Prints one screen, or tables and verdicts, and writes figures and a CSV file. Returns the first
/// error of a user's figure at the end.
pub(super) fn print_results(
    args: &arguments::Run,
    request: &RunRequest,
    summary: &RunSummary,
    declared: &Declared,
) -> Result<(), CliError> {
    let run = stored_run::open(&summary.folder)?;
    let experiments = stored_run::measured(&run, &request.experiments);
    let figures = super::plot::draw_run(&run, &request.experiments, &declared.figures)?;
    // A run interrupted before its first sample has no results.
    let is_empty = run.samples.is_empty();
    if !is_empty {
        let csv = summary.folder.join("samples.csv");
        to_file(std::slice::from_ref(&run), &|_| true, Format::Csv, &csv, Output::replace)
            .map_err(CliError::failed)?;
    }
    let judged = match args.selection.claim.as_slice() {
        [] => {
            let requested: Vec<_> = request.experiments.iter().map(Experiment::id).collect();
            super::claims::judge_run(&run, &requested, declared.claims.clone())
        }
        _ => super::claims::judge(declared.claims.clone(), Some(&run)),
    };
    let results = Results {
        args,
        request,
        summary,
        run: &run,
        experiments: &experiments,
        headlines: headlines::filled(&declared.headlines, &run, &experiments),
        declared: &declared.headlines,
        judged,
    };
    if args.json {
        results.print_json(&figures)?;
    } else if args.tables && !is_empty {
        results.print_tables()?;
        let facts = results.facts(&figures);
        let lines = facts.iter().map(|(label, fact)| format!("{label}: {fact}\n"));
        print_plain(&format!("\n{}", lines.collect::<String>()))?;
    } else if !is_empty {
        results.print_screen(&figures)?;
    }
    figures.result()
}

impl Results<'_> {
    fn print_json(&self, figures: &Figures) -> Result<(), CliError> {
        print_json(&RunOutput {
            folder: self.summary.folder.display().to_string(),
            samples: self.summary.samples,
            guests: self.run.record.guests.as_ref(),
            headlines: &self.headlines,
            tables: table::show_output(self.run, self.experiments, &ShowOptions::default())?,
            claims: table::judged_claims(&self.judged),
            figures: figures.output(),
            inconsistencies: stored_run::inconsistencies(self.run),
        })
    }

    fn print_tables(&self) -> Result<(), CliError> {
        let page = Page::stdout();
        let groups = show::groups(self.run, self.experiments);
        let options = ShowOptions { groups, ..ShowOptions::default() };
        print(&table::show(self.run, self.experiments, &options, page)?)?;
        stored_run::print_inconsistencies(self.run)?;
        if self.judged.is_empty() {
            return Ok(());
        }
        print("")?;
        print(&table::verdicts(&self.judged, true, page))
    }

    fn print_screen(&self, figures: &Figures) -> Result<(), CliError> {
        let suites = headlines::suites(self.experiments);
        let suites = suites.map(|name| (name, self.no_headline(name)));
        let rounds = self.rounds();
        let selects_claims = !self.args.selection.claim.is_empty();
        let ids = self.judged.iter().filter(|_| selects_claims).map(|(claim, _)| claim.id.as_str());
        let screen = Screen {
            suites: &suites.collect::<Vec<_>>(),
            headlines: &self.headlines,
            judged: &self.judged,
            selects_claims,
            failures: &failures(&self.summary.faults),
            inconsistencies: &stored_run::inconsistencies(self.run),
            facts: &self.facts(figures),
            commands: &commands(self.args, self.request.profile, rounds, &ids.collect::<Vec<_>>()),
        };
        print(&screen.text(Page::stdout()))
    }

    fn rounds(&self) -> Rounds {
        Rounds::of(self.run, &self.request.experiments, self.args, &self.judged)
    }

    /// Returns why a suite has no headline; `None` if it has one, or if the selection is of claims or points.
    fn no_headline(&self, suite: &str) -> Option<NoHeadline> {
        let SelectionArgs { points, claim, .. } = &self.args.selection;
        let is_partial = points.filter.is_some() || !points.levels.is_empty() || !claim.is_empty();
        if is_partial {
            return None;
        }
        headlines::missing(self.declared, &self.headlines, (self.run, self.experiments), suite)
    }

    /// Returns what was measured, what is missing, and where it is stored.
    fn facts(&self, figures: &Figures) -> Vec<(&'static str, String)> {
        let record = &self.run.record;
        let all = stored_run::samples(self.run).count();
        let now = usize::try_from(self.summary.samples).unwrap_or(usize::MAX);
        let time = format_duration(Duration::from_secs(self.summary.time.as_secs().max(1)));
        let place = stored_run::place(record);
        let profile = record.profile.name();
        let samples = count(all, "sample");
        let measured = match now {
            0 => format!("{samples} {place}, profile {profile}; none was left to measure"),
            now if now == all => format!("{samples} in {time} {place}, profile {profile}"),
            now => format!("{samples} {place}, profile {profile}; {now} of them now, in {time}"),
        };
        let folder = self.summary.folder.display();
        let mut files = format!("{folder}: samples.csv");
        if figures.count() > 0 {
            files += &format!(", figures/ ({})", count(figures.count(), "figure"));
        }
        let mut facts = vec![("measured", measured)];
        facts.extend(shared_core(self.run, self.experiments).map(|fact| ("shared core", fact)));
        facts.extend(self.incomplete().map(|fact| ("incomplete", fact)));
        facts.push(("run", files));
        facts
    }

    /// Returns how many experiments lack rounds that verdicts need, and how long these take at the speed of this
    /// session; `None` if none does.
    fn incomplete(&self) -> Option<String> {
        let rounds = self.rounds();
        let Rounds { complete, experiments, missing, .. } = rounds;
        let seconds =
            missing as f64 * self.summary.time.as_secs_f64() / self.summary.samples as f64;
        let time = Duration::try_from_secs_f64(seconds.ceil()).ok();
        let time = time.map(|time| format!("; the rest takes about {}", format_duration(time)));
        (!rounds.is_complete()).then(|| {
            let all = count(experiments, "experiment");
            let needed = format!("the {INTERVAL_ROUNDS} rounds that verdicts need");
            format!("{complete} of {all} measured in {needed}{}", time.unwrap_or_default())
        })
    }
}

/// Returns how many samples of experiments had a busy SMT sibling; `None` if they are few.
pub(super) fn shared_core(run: &Run, experiments: &[String]) -> Option<String> {
    let samples = experiments.iter().filter_map(|id| Samples::newest(run, id));
    let counts = samples.map(|samples| samples.sharing()).reduce(SharingCounts::and)?;
    let share = |count: usize| count as f64 / counts.total().max(1) as f64;
    let (shared, changed) = (share(counts.shared), share(counts.changed));
    (shared + changed > MAX_SHARED).then(|| {
        let (shared, changed) = (percent(shared), percent(changed));
        format!(
            "in {shared} of samples, in part of another {changed}; only rounds in one state compare"
        )
    })
}

/// Counts failures, one line for each experiment and kind: `2 samples in copy/frames: timeout`.
pub(super) fn failures<'s>(faults: impl IntoIterator<Item = &'s Sample>) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for sample in faults {
        let kind = sample.error.as_ref().map_or("", |failure| failure.kind.name());
        *counts.entry((&sample.experiment, kind)).or_default() += 1;
    }
    let line = |((experiment, kind), number): (&(&str, &str), &usize)| {
        format!("{} in {experiment}: {kind}", count(*number, "sample"))
    };
    counts.iter().map(line).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use clap::FromArgMatches;
    use lab::claim;
    use lab::experiment::Profile;
    use lab::headline::{Slot, SlotKind};
    use lab::suite::Purpose;

    use super::*;
    use crate::SUITES;
    use crate::arguments::{Arguments, Command};

    /// Returns the screen of a run in which every headline has its longest sentence and every claim
    /// is contradicted.
    fn longest_screen(page: Page) -> String {
        let catalogue = Catalogue::load(SUITES, &[]).unwrap();
        let boundaries = SUITES.iter().filter(|suite| suite.purpose() == Purpose::Boundary);
        let suites: Vec<_> = boundaries.map(|suite| (suite.name(), None)).collect();
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
            Filled { id: headline.id.clone(), suite: headline.suite().into(), sentence }
        };
        let headlines: Vec<_> = catalogue.headlines().unwrap().into_iter().map(state).collect();
        let judge = |claim: Claim| {
            let verdict = claim::judge(&claim, None, 2);
            (claim, Verdict { kind: claim::VerdictKind::Contradicted, ..verdict })
        };
        let judged: Vec<_> = catalogue.claims().unwrap().into_iter().map(judge).collect();
        let words = ["tollgate", "run", "--results", &"deep/".repeat(6), "--allow", "physical"];
        let matches = arguments::command().try_get_matches_from(words).unwrap();
        let Command::Run(args) = Arguments::from_arg_matches(&matches).unwrap().command else {
            panic!("not a run")
        };
        let long = "a line that is longer than a page is wide, because it names a folder, a point, \
                    and all that was measured there";
        let lines: Vec<String> = (0..8).map(|index| format!("{index} {long}")).collect();
        let screen = Screen {
            suites: &suites,
            headlines: &headlines,
            judged: &judged,
            selects_claims: false,
            failures: &vec!["20 samples in stream/throughput-vs-packet-size: timeout".into(); 8],
            inconsistencies: &lines,
            facts: &[
                ("measured", "1 sample".into()),
                ("incomplete", long.into()),
                ("run", "deep/deep/results/vm-quick-1".into()),
            ],
            commands: &commands(&args, Profile::Quick, Rounds::default(), &[]),
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
