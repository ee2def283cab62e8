//! Inventory: the experiments of the suites with their claims and figures, and the capabilities of the
//! machine.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::capability::{Capability, State};
use lab::claim::Claim;
use lab::experiment::Experiment;
use lab::factor::Factor;
use lab::figure::Figure;
use lab::option::SuiteOption;
use lab::plan;
use lab::point::{Level, Point};
use lab::quantity::format_duration;
use lab::schema::JsonOutput;
use lab::suite::{Suite, find_method};
use schemars::JsonSchema;
use serde::Serialize;

use lab::table::{ColumnHeader, Emphasis, Page, TableCell};

/// Experiment with the part that this machine can measure.
struct ListedExperiment<'a> {
    experiment: &'a Experiment,
    /// Number of points that this machine can measure.
    available: usize,
    /// Time of all rounds of these points.
    expected: Duration,
    factors: Vec<(&'a str, Vec<&'a Level>)>,
}

/// Claims and figures to be listed with the experiments that they are about.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// Claims and promises.
    pub claims: Vec<Claim>,
    /// Figures.
    pub figures: Vec<Figure>,
}

impl Declared {
    fn claims_on<'a>(&'a self, experiments: &[String]) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(|claim| experiments.contains(&claim.experiment))
    }

    fn figures_of<'a>(&'a self, experiments: &[String]) -> impl Iterator<Item = &'a Figure> {
        self.figures.iter().filter(|figure| experiments.contains(&figure.experiment))
    }

    /// Renders the claims on some experiments, and their figures.
    pub fn text(&self, experiments: &[Experiment], page: Page) -> String {
        let ids: Vec<_> = experiments.iter().map(Experiment::id).collect();
        let claims = self.claims_on(&ids).map(|claim| {
            let source = if claim.is_promise() { "tollgate" } else { &claim.source };
            vec![TableCell::from(claim.id.as_str()), source.into(), claim.says.as_str().into()]
        });
        let figures = self.figures_of(&ids);
        let figures = figures
            .map(|figure| vec![TableCell::from(figure.id.as_str()), figure.title.as_str().into()]);
        let table = |titles: &[&str], rows: Vec<_>| match rows.is_empty() {
            true => String::new(),
            false => {
                let headers: Vec<_> = titles.iter().map(|it| ColumnHeader::left(*it)).collect();
                page.table(&headers, rows)
            }
        };
        let tables = [
            table(&["claim", "source", "statement"], claims.collect()),
            table(&["figure", "title"], figures.collect()),
        ];
        tables.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// Returns the number of claims by source and the figures, e.g. `claims: 31 of ESCAPE
    /// benchmarking, 20 of tollgate; figures: copy-a, copy-b`.
    fn summary(&self, experiments: &[String]) -> String {
        let mut sources: Vec<(&str, usize)> = Vec::new();
        for claim in self.claims_on(experiments) {
            match sources.iter_mut().find(|(source, _)| *source == claim.source) {
                Some((_, count)) => *count += 1,
                None => sources.push((&claim.source, 1)),
            }
        }
        let sources = sources.iter().map(|(source, count)| format!("{count} of {source}"));
        let figures = self.figures_of(experiments).map(|figure| figure.id.clone());
        let part = |name: &str, parts: Vec<String>| {
            (!parts.is_empty()).then(|| format!("{name}: {}", parts.join(", ")))
        };
        let parts = [part("claims", sources.collect()), part("figures", figures.collect())];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Renders suites with their experiments: points, rounds, expected time of all rounds, factors; and the number
/// of their claims and the IDs of their figures.
pub fn list(
    suites: &[&Suite],
    experiments: &[Experiment],
    declared: &Declared,
    page: Page,
) -> String {
    let mut text = String::new();
    for suite in suites {
        let listed: Vec<_> = listed(suite, experiments).collect();
        if listed.is_empty() {
            continue;
        }
        text +=
            &page.paragraph(&format!("{}: {}", suite.name(), suite.about()), 2, Emphasis::Strong);
        let headers = [
            ColumnHeader::left("experiment"),
            ColumnHeader::right("points"),
            ColumnHeader::right("avail."),
            ColumnHeader::right("rounds"),
            ColumnHeader::right("time"),
            ColumnHeader::left("description, factors (levels)"),
        ];
        text += &page.table(&headers, listed.iter().map(ListedExperiment::row).collect());
        let ids: Vec<_> = listed.iter().map(|it| it.experiment.id()).collect();
        let summary = declared.summary(&ids);
        if !summary.is_empty() {
            text += &page.paragraph(&summary, 2, Emphasis::Plain);
        }
        text.push('\n');
    }
    text.trim_end_matches('\n').to_string() + "\n"
}

/// JSON output of `tollgate list`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListOutput<'a> {
    suites: Vec<ListedSuite<'a>>,
}

impl JsonOutput for ListOutput<'_> {
    const NAME: &'static str = "list";
    const WRITTEN_BY: &'static str = "tollgate list --json";
    const VERSION: u64 = 1;
}

/// A suite with its experiments, and the claims and figures on them.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedSuite<'a> {
    /// Name.
    suite: &'a str,
    /// Description in one line.
    about: &'a str,
    experiments: Vec<ExperimentOutput<'a>>,
    claims: Vec<ClaimOutput<'a>>,
    figures: Vec<FigureOutput<'a>>,
}

/// An experiment with the part that this machine can measure.
#[derive(Debug, Serialize, JsonSchema)]
struct ExperimentOutput<'a> {
    /// ID, e.g. `copy/throughput`.
    id: String,
    /// Description in one line.
    about: &'a str,
    /// Metric of tables and figures.
    metric: &'a str,
    /// Factor to the levels of all points.
    factors: BTreeMap<&'a str, Vec<&'a Level>>,
    /// Number of points.
    points: usize,
    /// Number of points that this machine can measure.
    available: usize,
    /// Maximum number of rounds.
    rounds: u32,
    /// Time of all rounds of the points that this machine can measure, s.
    expected_seconds: f64,
}

/// A declared claim.
#[derive(Debug, Serialize, JsonSchema)]
struct ClaimOutput<'a> {
    id: &'a str,
    /// The claim in one sentence.
    says: &'a str,
    /// Publication; `tollgate` for its promises.
    source: &'a str,
    /// ID of the experiment.
    experiment: &'a str,
}

/// A declared figure.
#[derive(Debug, Serialize, JsonSchema)]
struct FigureOutput<'a> {
    id: &'a str,
    title: &'a str,
    /// ID of the experiment.
    experiment: &'a str,
}

/// Returns suites with their experiments, claims and figures for JSON.
pub fn list_output<'a>(
    suites: &[&'a Suite],
    experiments: &'a [Experiment],
    declared: &'a Declared,
) -> ListOutput<'a> {
    let claim = |claim: &'a Claim| ClaimOutput {
        id: &claim.id,
        says: &claim.says,
        source: &claim.source,
        experiment: &claim.experiment,
    };
    let figure = |figure: &'a Figure| FigureOutput {
        id: &figure.id,
        title: &figure.title,
        experiment: &figure.experiment,
    };
    let suite = |suite: &&'a Suite| {
        let listed: Vec<_> = listed(suite, experiments).collect();
        let ids: Vec<_> = listed.iter().map(|it| it.experiment.id()).collect();
        ListedSuite {
            suite: suite.name(),
            about: suite.about(),
            experiments: listed.into_iter().map(ListedExperiment::output).collect(),
            claims: declared.claims_on(&ids).map(claim).collect(),
            figures: declared.figures_of(&ids).map(figure).collect(),
        }
    };
    ListOutput { suites: suites.iter().map(suite).collect() }
}

fn listed<'a>(
    suite: &Suite,
    experiments: &'a [Experiment],
) -> impl Iterator<Item = ListedExperiment<'a>> {
    experiments.iter().filter(move |e| e.suite == suite.name()).map(move |experiment| {
        let method = lab::suite::method(suite, &experiment.method);
        let is_available =
            |point: &&Point| method.as_ref().is_ok_and(|method| method.available(point).is_ok());
        let mut available = experiment.clone();
        available.keep(|point| is_available(&point));
        ListedExperiment {
            experiment,
            available: available.points.len(),
            expected: plan::expected(&available, suite),
            factors: factors(experiment),
        }
    })
}

/// Returns the factors with the levels of all points, in the order of the points.
fn factors(experiment: &Experiment) -> Vec<(&str, Vec<&Level>)> {
    let names = experiment.baseline.factors();
    let levels = |name: &str| {
        let mut levels: Vec<&Level> = Vec::new();
        for level in experiment.points.iter().filter_map(|point| point.get(name)) {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        levels
    };
    names.map(|name| (name, levels(name))).collect()
}

impl<'a> ListedExperiment<'a> {
    fn row(&self) -> Vec<TableCell> {
        let varied = self.factors.iter().filter(|(_, levels)| levels.len() > 1);
        let factors = varied.map(|(name, levels)| format!("{name} ({})", levels.len()));
        let points = self.experiment.points.len();
        let emphasis = if self.available < points { Emphasis::Doubtful } else { Emphasis::Plain };
        vec![
            self.experiment.id().into(),
            points.to_string().into(),
            TableCell::new(self.available.to_string(), emphasis),
            self.experiment.effort.rounds.to_string().into(),
            match self.available {
                0 => "—".into(),
                _ => format_duration(self.expected).into(),
            },
            TableCell::from_lines(&[
                self.experiment.about.clone(),
                factors.collect::<Vec<_>>().join(", "),
            ]),
        ]
    }

    fn output(self) -> ExperimentOutput<'a> {
        ExperimentOutput {
            id: self.experiment.id(),
            about: &self.experiment.about,
            metric: &self.experiment.metric,
            factors: self.factors.into_iter().collect(),
            points: self.experiment.points.len(),
            available: self.available,
            rounds: self.experiment.effort.rounds,
            expected_seconds: self.expected.as_secs_f64(),
        }
    }
}

/// Renders an experiment with the levels and descriptions of its factors, below a title.
pub fn describe(title: &str, suites: &[&Suite], experiment: &Experiment, page: Page) -> String {
    let mut text = page.paragraph(title, 0, Emphasis::Strong);
    text += &page.paragraph(&experiment.about, 0, Emphasis::Plain);
    let known = find_method(suites, &experiment.suite, &experiment.method)
        .map_or(&[][..], |method| method.factors());
    let headers = [
        ColumnHeader::left("factor"),
        ColumnHeader::left("levels"),
        ColumnHeader::left("description"),
    ];
    let row = |(name, levels): &(&str, Vec<&Level>)| {
        let known = known.iter().find(|factor| factor.name == *name);
        let about = known.map(Factor::described).unwrap_or_default();
        let levels: Vec<_> = levels.iter().map(|level| level.as_str()).collect();
        vec![TableCell::from(*name), levels.join(", ").into(), about.into()]
    };
    text + &page.table(&headers, factors(experiment).iter().map(row).collect())
}

/// Requirement of points of claims that this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Lack {
    /// The cause, e.g. `this CPU has no MPX`.
    pub cause: String,
    /// The remedy, if there is one.
    pub remedy: Option<String>,
    /// Number of claims with points that are unavailable for this cause.
    pub claims: usize,
}

/// Renders how many capabilities are missing and which claims that affects, then all capabilities by group (`machine`,
/// then the suites): details of available ones, cause and fix of missing ones.
pub fn doctor(groups: &[(String, Vec<Capability>)], lacks: &[Lack], page: Page) -> String {
    let mut text = page.paragraph(&conclusion(groups), 2, Emphasis::Plain);
    if !lacks.is_empty() {
        let headers = [
            ColumnHeader::right("claims"),
            ColumnHeader::left("known before measuring: not judged, or not at all points, because"),
        ];
        let row = |lack: &Lack| {
            let remedy = lack.remedy.iter().map(|remedy| format!("; {remedy}"));
            let cause = lack.cause.clone() + &remedy.collect::<String>();
            vec![TableCell::from(lack.claims.to_string()), cause.into()]
        };
        text += &page.table(&headers, lacks.iter().map(row).collect());
    }
    text.push('\n');
    for (name, capabilities) in groups.iter().filter(|(_, all)| !all.is_empty()) {
        let present = capabilities.iter().filter(|c| c.state.is_present()).count();
        let line = format!("{name}: {present} of {} available", capabilities.len());
        text += &page.paragraph(&line, 2, Emphasis::Strong);
        let headers = [
            ColumnHeader::left("capability"),
            ColumnHeader::left("available"),
            ColumnHeader::left("details"),
        ];
        text += &page.table(&headers, capabilities.iter().map(capability_row).collect());
        text.push('\n');
    }
    text.trim_end_matches('\n').to_string() + "\n"
}

/// States how many capabilities are missing.
fn conclusion(groups: &[(String, Vec<Capability>)]) -> String {
    let absent = groups.iter().flat_map(|(_, all)| all).filter(|c| !c.state.is_present()).count();
    match absent {
        0 => "this machine can measure everything".to_string(),
        1 => "1 capability is missing: points that need it are unavailable".to_string(),
        _ => format!("{absent} capabilities are missing: points that need them are unavailable"),
    }
}

/// Renders the options of suites, which are off by default.
pub fn options(known: &[SuiteOption], page: Page) -> String {
    let row = |option: &SuiteOption| vec![option.usage().into(), option.enables.into()];
    let headers = [ColumnHeader::left("option of 'tollgate run'"), ColumnHeader::left("effect")];
    let title = "opt-in features";
    page.paragraph(title, 2, Emphasis::Strong)
        + &page.table(&headers, known.iter().map(row).collect())
}

/// JSON output of `tollgate doctor`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DoctorOutput<'a> {
    /// Capabilities of the machine, then those that each suite needs in addition.
    groups: Vec<CapabilityGroup<'a>>,
    /// Requirements of points of claims that the machine lacks, the cause of most claims first.
    lacks: &'a [Lack],
    /// Opt-in features.
    options: Vec<OptionOutput>,
}

impl JsonOutput for DoctorOutput<'_> {
    const NAME: &'static str = "doctor";
    const WRITTEN_BY: &'static str = "tollgate doctor --json";
    const VERSION: u64 = 1;
}

/// Capabilities of the machine or of a suite.
#[derive(Debug, Serialize, JsonSchema)]
struct CapabilityGroup<'a> {
    /// `machine`, or the name of the suite.
    of: &'a str,
    capabilities: &'a [Capability],
}

/// An opt-in feature.
#[derive(Debug, Serialize, JsonSchema)]
struct OptionOutput {
    /// Option of `tollgate run`.
    usage: String,
    /// Effect in one line.
    enables: &'static str,
}

/// Returns capabilities, what claims lack, and options for JSON.
pub fn doctor_output<'a>(
    groups: &'a [(String, Vec<Capability>)],
    lacks: &'a [Lack],
    known: &[SuiteOption],
) -> DoctorOutput<'a> {
    let group =
        |(of, capabilities): &'a (String, Vec<Capability>)| CapabilityGroup { of, capabilities };
    let option = |one: &SuiteOption| OptionOutput { usage: one.usage(), enables: one.enables };
    DoctorOutput {
        groups: groups.iter().map(group).collect(),
        lacks,
        options: known.iter().map(option).collect(),
    }
}

fn capability_row(capability: &Capability) -> Vec<TableCell> {
    let (available, emphasis, details) = match &capability.state {
        State::Present { detail } => {
            ("yes", Emphasis::Good, format!("{}: {detail}", capability.about))
        }
        State::Absent { reason, remedy } => {
            ("no", Emphasis::Doubtful, format!("{}: {reason}; {remedy}", capability.about))
        }
    };
    vec![capability.name.as_str().into(), TableCell::new(available, emphasis), details.into()]
}
