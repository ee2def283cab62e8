//! Experiments: named sweeps, declared in TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::point::{Filter, OneOrMany, Point};
use crate::quantity;
use crate::suite::Suite;

/// How much is measured: rounds, time a sample, how narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A look: minutes for everything.
    Quick,
    /// Figures to rely on.
    Standard,
    /// Figures to publish.
    Full,
}

impl Profile {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// How much it measures unless an experiment says otherwise.
    pub fn effort(self) -> Effort {
        let (min_rounds, rounds, budget) = match self {
            Self::Quick => (10, 10, Duration::from_millis(2)),
            Self::Standard => (20, 30, Duration::from_millis(5)),
            Self::Full => (20, 60, Duration::from_millis(20)),
        };
        Effort {
            min_rounds,
            rounds,
            budget,
            resolve: 0.02,
        }
    }
}

/// How much is measured at each point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effort {
    /// No point stops before these.
    pub min_rounds: u32,
    /// Every point stops at these.
    pub rounds: u32,
    /// Time measured in a sample.
    pub budget: Duration,
    /// A point stops when the half-width of its 95% interval is this share of its median.
    pub resolve: f64,
}

/// An experiment as a person declares it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    name: String,
    suite: Option<String>,
    about: String,
    metric: String,
    #[serde(default)]
    baseline: BTreeMap<String, crate::point::Level>,
    #[serde(default)]
    sweeps: Sweeps,
    #[serde(default)]
    exclude: Vec<Filter>,
    twins: Option<Vec<Filter>>,
    #[serde(default)]
    roles: Vec<String>,
    batch: Option<usize>,
    limit: Option<String>,
    rounds: Option<u32>,
    min_rounds: Option<u32>,
    budget: Option<String>,
    resolve: Option<String>,
    factors: BTreeMap<String, OneOrMany>,
    #[serde(default)]
    quick: Override,
    #[serde(default)]
    standard: Override,
    #[serde(default)]
    full: Override,
}

/// What a profile changes; what is no keyword is a factor's levels.
#[derive(Debug, Clone, Default, Deserialize)]
struct Override {
    rounds: Option<u32>,
    min_rounds: Option<u32>,
    budget: Option<String>,
    resolve: Option<String>,
    skip: Option<bool>,
    #[serde(flatten)]
    factors: BTreeMap<String, OneOrMany>,
}

/// Which factors are varied together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Sweeps {
    /// `"all"`: the full product.
    Word(String),
    /// Each a few factors around the baseline.
    Around(Vec<Vec<String>>),
}

impl Default for Sweeps {
    fn default() -> Self {
        Self::Word("all".into())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    experiment: Vec<toml::Spanned<toml::Value>>,
    // Other tables of the same file have readers of their own.
    #[serde(default, rename = "claim")]
    _claim: Vec<toml::Value>,
    #[serde(default, rename = "figure")]
    _figure: Vec<toml::Value>,
}

/// An experiment, ready to be planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The suite that measures it.
    pub suite: String,
    /// Its name without the suite.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// The metric that tables, stopping and figures look at first.
    pub metric: String,
    /// The point around which sweeps vary.
    pub baseline: Point,
    /// Which factors are varied together, for tables.
    pub sweeps: Vec<Vec<String>>,
    /// The points, in the order of the declaration.
    pub points: Vec<Point>,
    /// The points that are measured a second time in every round.
    pub twins: Vec<Point>,
    /// The roles; empty where one process measures all.
    pub roles: Vec<String>,
    /// Points an order.
    pub batch: usize,
    /// How long a sample may take before its process is killed; from its expected time if absent.
    pub limit: Option<Duration>,
    /// How much is measured.
    pub effort: Effort,
}

impl Experiment {
    /// `copy/throughput`
    pub fn id(&self) -> String {
        format!("{}/{}", self.suite, self.name)
    }

    /// Keeps only the points that the filter matches.
    pub fn keep(&mut self, wanted: impl Fn(&Point) -> bool) {
        self.points.retain(&wanted);
        self.twins.retain(&wanted);
    }
}

/// A fault in a TOML file, in one line: what, where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct DataError {
    /// The file's name.
    pub file: String,
    /// What is wrong, and where in the file.
    pub what: String,
}

/// Reads TOML into a type, with the path to the fault on failure.
///
/// # Errors
/// One line with the file, the line and the path of keys.
pub fn read_toml<'de, T: Deserialize<'de>>(file: &str, text: &'de str) -> Result<T, DataError> {
    let fault = |what: String| DataError {
        file: file.into(),
        what,
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|e| fault(one_line(&e, text)))?;
    serde_path_to_error::deserialize(deserializer).map_err(|e| {
        let path = e.path().to_string();
        fault(format!("{} (at {path})", one_line(e.inner(), text)))
    })
}

fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    match error.span() {
        Some(span) => {
            let line = text[..span.start.min(text.len())].lines().count().max(1);
            format!("line {line}: {message}")
        }
        None => message,
    }
}

/// Reads the experiments of one file for one profile. `suite` is the suite whose file it is; a
/// person's own file names the suite in each experiment.
///
/// # Errors
/// One line with the file and the place.
pub fn read(
    file: &str,
    text: &str,
    suite: Option<&str>,
    suites: &[&dyn Suite],
    profile: Profile,
) -> Result<Vec<Experiment>, DataError> {
    let parsed: File = read_toml(file, text)?;
    let mut experiments = Vec::new();
    for value in parsed.experiment {
        let line = text[..value.span().start.min(text.len())]
            .lines()
            .count()
            .max(1);
        let fault = |what: String| DataError {
            file: file.into(),
            what: format!("line {line}: {what}"),
        };
        let declared: Declared = serde_path_to_error::deserialize(value.into_inner())
            .map_err(|e| fault(format!("{} (at {})", e.inner().message(), e.path())))?;
        let name = declared.name.clone();
        let owner = suite.or(declared.suite.as_deref()).ok_or_else(|| {
            fault(format!(
                "experiment '{name}' names no suite; add suite = \"copy\""
            ))
        })?;
        let owner = crate::suite::find(suites, owner)
            .ok_or_else(|| fault(format!("experiment '{name}': there is no suite '{owner}'")))?;
        let in_experiment = |what| fault(format!("experiment '{name}': {what}"));
        if let Some(experiment) = declared.resolve(owner, profile).map_err(in_experiment)? {
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

impl Declared {
    /// The experiment under a profile; nothing where the profile skips it.
    fn resolve(self, suite: &dyn Suite, profile: Profile) -> Result<Option<Experiment>, String> {
        let changed = match profile {
            Profile::Quick => &self.quick,
            Profile::Standard => &self.standard,
            Profile::Full => &self.full,
        };
        if changed.skip == Some(true) {
            return Ok(None);
        }
        if !suite
            .metrics()
            .iter()
            .any(|metric| metric.name == self.metric)
        {
            return Err(format!(
                "suite '{}' has no metric '{}'",
                suite.name(),
                self.metric
            ));
        }
        let mut factors = self.factors.clone();
        for (name, levels) in &changed.factors {
            if !factors.contains_key(name) {
                return Err(format!(
                    "profile '{}': '{name}' is no factor of it",
                    profile.name()
                ));
            }
            factors.insert(name.clone(), levels.clone());
        }
        let factors = Filter(factors).spelled(suite.factors())?;
        let baseline = self.baseline(suite, &factors)?;
        let sweeps = self.swept(&factors)?;
        let points = self.points(suite, &sweeps, &factors, &baseline)?;
        let twins = self.twin_points(suite, &points, &baseline)?;
        if points.is_empty() {
            return Err("no points are left".into());
        }
        let limit = self.limit.as_deref().map(quantity::duration).transpose();
        Ok(Some(Experiment {
            limit: limit.map_err(|e| format!("limit: {e}"))?,
            suite: suite.name().into(),
            effort: self.effort(profile, changed)?,
            baseline,
            sweeps,
            points,
            twins,
            // Roles meet at a rendezvous, so each point is an order of its own.
            batch: if self.roles.is_empty() {
                self.batch.unwrap_or(64).max(1)
            } else {
                1
            },
            name: self.name,
            about: self.about,
            metric: self.metric,
            roles: self.roles,
        }))
    }

    fn baseline(&self, suite: &dyn Suite, factors: &Filter) -> Result<Point, String> {
        let mut baseline = Point::default();
        for (name, levels) in &factors.0 {
            let first = levels.levels().first();
            let level = match self.baseline.get(name) {
                Some(level) => crate::factor::find(suite.factors(), name)?.level(level.as_str())?,
                None => first
                    .ok_or_else(|| format!("factor '{name}' has no level"))?
                    .clone(),
            };
            baseline.0.insert(name.clone(), level);
        }
        match self
            .baseline
            .keys()
            .find(|name| !factors.0.contains_key(*name))
        {
            Some(name) => Err(format!("baseline: '{name}' is no factor of it")),
            None => Ok(baseline),
        }
    }

    fn swept(&self, factors: &Filter) -> Result<Vec<Vec<String>>, String> {
        match &self.sweeps {
            Sweeps::Word(word) if word == "all" => Ok(vec![factors.0.keys().cloned().collect()]),
            Sweeps::Word(word) => Err(format!("sweeps = '{word}'; use \"all\" or a list")),
            Sweeps::Around(sweeps) => Ok(sweeps.clone()),
        }
    }

    fn points(
        &self,
        suite: &dyn Suite,
        sweeps: &[Vec<String>],
        factors: &Filter,
        baseline: &Point,
    ) -> Result<Vec<Point>, String> {
        let exclude: Result<Vec<_>, _> = self
            .exclude
            .iter()
            .map(|filter| filter.spelled(suite.factors()))
            .collect();
        let exclude = exclude?;
        let mut seen = BTreeSet::new();
        let mut points = Vec::new();
        for sweep in sweeps {
            for point in product(sweep, factors, baseline)? {
                let wanted = !exclude.iter().any(|filter| filter.matches(&point));
                if wanted && seen.insert(point.clone()) {
                    points.push(point);
                }
            }
        }
        Ok(points)
    }

    /// Without a word on twins, the baseline has one (or the first point, where it is no point).
    fn twin_points(
        &self,
        suite: &dyn Suite,
        points: &[Point],
        baseline: &Point,
    ) -> Result<Vec<Point>, String> {
        let Some(filters) = &self.twins else {
            let twin = if points.contains(baseline) {
                Some(baseline)
            } else {
                points.first()
            };
            return Ok(twin.cloned().into_iter().collect());
        };
        let filters: Result<Vec<_>, _> = filters
            .iter()
            .map(|filter| filter.spelled(suite.factors()))
            .collect();
        let filters = filters?;
        let is_twin = |point: &&Point| filters.iter().any(|filter| filter.matches(point));
        Ok(points.iter().filter(is_twin).cloned().collect())
    }

    fn effort(&self, profile: Profile, changed: &Override) -> Result<Effort, String> {
        let mut effort = profile.effort();
        let text = |own: &Option<String>, changed: &Option<String>| changed.clone().or(own.clone());
        if let Some(budget) = text(&self.budget, &changed.budget) {
            effort.budget = quantity::duration(&budget).map_err(|e| format!("budget: {e}"))?;
        }
        if let Some(resolve) = text(&self.resolve, &changed.resolve) {
            effort.resolve = quantity::share(&resolve).map_err(|e| format!("resolve: {e}"))?;
        }
        if let Some(rounds) = changed.rounds.or(self.rounds) {
            effort.rounds = rounds;
        }
        if let Some(rounds) = changed.min_rounds.or(self.min_rounds) {
            effort.min_rounds = rounds;
        }
        if effort.rounds == 0 {
            return Err("rounds must be 1 or more".into());
        }
        effort.min_rounds = effort.min_rounds.min(effort.rounds);
        Ok(effort)
    }
}

/// Every combination of the levels of some factors, the others as in the baseline.
fn product(sweep: &[String], factors: &Filter, baseline: &Point) -> Result<Vec<Point>, String> {
    let mut points = vec![baseline.clone()];
    for name in sweep {
        let levels = factors
            .0
            .get(name)
            .ok_or_else(|| format!("sweeps: '{name}' is no factor of it"))?
            .levels();
        points = points
            .iter()
            .flat_map(|point| levels.iter().map(|level| point.with(name, level.clone())))
            .collect();
    }
    Ok(points)
}
