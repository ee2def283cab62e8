//! An experiment as a person declares it, and what it becomes under a profile.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::data::line_of;
use super::limits::{MAX_COMPARISONS, MAX_LEVELS, MAX_LISTED, MAX_POINTS, MAX_TABLES, count};
use super::{DataError, Effort, Experiment, Profile, read_toml};
use crate::method::{AnyMethod, complete};
use crate::point::{Filter, OneOrMany, Point};
use crate::quantity;
use crate::suite::{self, Suite};
use crate::terminal::one_line;

/// The longest name of an experiment, bytes.
const MAX_NAME: usize = 64;

/// An experiment as a person declares it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    name: String,
    suite: Option<String>,
    method: Option<String>,
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
    #[serde(default)]
    blocking: Vec<String>,
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

/// The experiments that a suite declares, for one profile.
///
/// # Errors
/// One line with the file and the place.
pub fn of_suite(suite: &dyn Suite, profile: Profile) -> Result<Vec<Experiment>, DataError> {
    let file = format!("{}/experiments.toml", suite.name());
    read(&file, suite.data().experiments, Some(suite.name()), &[suite], profile)
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
    count("experiments", parsed.experiment.len(), 0, MAX_TABLES)
        .map_err(|what| DataError { file: file.into(), what })?;
    // All experiments of a file share what they may make.
    let mut left = MAX_POINTS;
    let mut names = BTreeSet::new();
    for value in parsed.experiment {
        let line = line_of(text, value.span().start);
        let fault =
            |what: String| DataError { file: file.into(), what: format!("line {line}: {what}") };
        let declared: Declared = serde_path_to_error::deserialize(value.into_inner())
            .map_err(|e| fault(format!("{} (at {})", e.inner().message(), e.path())))?;
        let name = declared.name.clone();
        check_name(&name).map_err(fault)?;
        let owner = suite.or(declared.suite.as_deref()).ok_or_else(|| {
            fault(format!("experiment '{name}' names no suite; add suite = \"copy\""))
        })?;
        let owner = suite::find(suites, owner)
            .ok_or_else(|| fault(format!("experiment '{name}': there is no suite '{owner}'")))?;
        let in_experiment = |what| fault(format!("experiment '{name}': {what}"));
        if !names.insert((owner.name().to_owned(), name.clone())) {
            return Err(in_experiment("it is declared twice; rename one".to_owned()));
        }
        if let Some(experiment) =
            declared.resolve(owner, profile, &mut left).map_err(in_experiment)?
        {
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

/// Whether a name may be one of an experiment: it becomes part of file names and command lines.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    let name = one_line(name);
    Err(format!("experiment name '{name}': use 1 to {MAX_NAME} letters, digits, '-' and '_'"))
}

impl Declared {
    /// The experiment under a profile; nothing where the profile skips it. `left` is how many points its
    /// file may still make.
    fn resolve(
        self,
        suite: &dyn Suite,
        profile: Profile,
        left: &mut usize,
    ) -> Result<Option<Experiment>, String> {
        let changed = match profile {
            Profile::Quick => &self.quick,
            Profile::Standard => &self.standard,
            Profile::Full => &self.full,
        };
        if changed.skip == Some(true) {
            return Ok(None);
        }
        let method = suite::method(suite, self.method.as_ref().unwrap_or(&self.name))?;
        if !method.metrics().iter().any(|metric| metric.name == self.metric) {
            let known: Vec<_> = method.metrics().iter().map(|metric| metric.name).collect();
            let (metric, known) = (one_line(&self.metric), known.join(", "));
            return Err(format!("unknown metric '{metric}'; expected one of {known}"));
        }
        // Spelled before they are overridden: a wrong level is wrong under every profile.
        let mut factors = Filter(self.factors.clone()).canonical(method.factors())?;
        for (name, levels) in Filter(changed.factors.clone()).canonical(method.factors())?.0 {
            if factors.0.insert(name.clone(), levels).is_none() {
                return Err(format!("profile '{}': '{name}' is no factor of it", profile.name()));
            }
        }
        for (name, levels) in &factors.0 {
            count(&format!("levels of '{name}'"), levels.levels().len(), 1, MAX_LEVELS)?;
        }
        count("filters of twins", self.twins.as_ref().map_or(0, Vec::len), 0, MAX_LISTED)?;
        count("filters of exclude", self.exclude.len(), 0, MAX_LISTED)?;
        let baseline = self.baseline(method, &factors)?;
        let sweeps = self.swept(&factors)?;
        let made = made(&sweeps, &factors)?;
        *left = left.checked_sub(made).ok_or_else(|| too_many(made))?;
        let points = self.points(method, &sweeps, &factors, &baseline)?;
        let twins = self.twin_points(method, &points, &baseline)?;
        if points.is_empty() {
            return Err("no points are left".into());
        }
        if let Some(name) = self.blocking.iter().find(|name| !factors.0.contains_key(*name)) {
            return Err(format!("blocking: '{name}' is no factor of it"));
        }
        let limit = self.limit.as_deref().map(quantity::duration).transpose();
        let experiment = Experiment {
            limit: limit.map_err(|e| format!("limit: {e}"))?,
            suite: suite.name().into(),
            effort: self.effort(profile, changed)?,
            defaults: baseline.without(factors.0.keys().map(String::as_str)),
            baseline,
            sweeps,
            points,
            twins,
            // Roles meet at a rendezvous, so each point is an order of its own.
            batch: if self.roles.is_empty() { self.batch.unwrap_or(64) } else { 1 },
            method: method.name().into(),
            name: self.name,
            about: self.about,
            metric: self.metric,
            roles: self.roles,
            blocking: self.blocking,
        };
        experiment.within_limits()?;
        Ok(Some(experiment))
    }

    /// One level for every factor of the method: the baseline's, the first of those that are varied, or the default.
    fn baseline(&self, method: &dyn AnyMethod, factors: &Filter) -> Result<Point, String> {
        let mut baseline = Point::default();
        for (name, levels) in &factors.0 {
            let first = levels.levels().first();
            let level = match self.baseline.get(name) {
                Some(level) => {
                    crate::factor::find(method.factors(), name)?.level(level.as_str())?
                }
                None => first.ok_or_else(|| format!("factor '{name}' has no level"))?.clone(),
            };
            baseline = baseline.with(name, level);
        }
        match self.baseline.keys().find(|name| !factors.0.contains_key(*name)) {
            Some(name) => Err(format!("baseline: '{name}' is no factor of it")),
            None => Ok(complete(method.factors(), &baseline)),
        }
    }

    fn swept(&self, factors: &Filter) -> Result<Vec<Vec<String>>, String> {
        match &self.sweeps {
            Sweeps::Word(word) if word == "all" => Ok(vec![factors.0.keys().cloned().collect()]),
            Sweeps::Word(word) => Err(format!("sweeps = '{word}'; use \"all\" or a list")),
            Sweeps::Around(sweeps) => {
                count("sweeps", sweeps.len(), 0, MAX_LISTED)?;
                for sweep in sweeps {
                    let mut seen = BTreeSet::new();
                    if let Some(twice) = sweep.iter().find(|name| !seen.insert(*name)) {
                        return Err(format!("sweeps: '{twice}' is named twice; name it once"));
                    }
                }
                Ok(sweeps.clone())
            }
        }
    }

    fn points(
        &self,
        method: &dyn AnyMethod,
        sweeps: &[Vec<String>],
        factors: &Filter,
        baseline: &Point,
    ) -> Result<Vec<Point>, String> {
        let excluded = any_of(&self.exclude, method)?;
        let compared = self.exclude.iter().chain(self.twins.iter().flatten());
        let compared: usize =
            compared.flat_map(|filter| filter.0.values()).map(|levels| levels.levels().len()).sum();
        if made(sweeps, factors)?.saturating_mul(compared) > MAX_COMPARISONS {
            return Err(format!(
                "exclude and twins: {compared} levels are too many for so many points; name fewer"
            ));
        }
        let mut seen = BTreeSet::new();
        let mut points = Vec::new();
        for sweep in sweeps {
            for point in product(sweep, factors, baseline)? {
                if !excluded(&point) && seen.insert(point.clone()) {
                    points.push(point);
                }
            }
        }
        Ok(points)
    }

    /// Without a word on twins, the baseline has one (or the first point, where it is no point).
    fn twin_points(
        &self,
        method: &dyn AnyMethod,
        points: &[Point],
        baseline: &Point,
    ) -> Result<Vec<Point>, String> {
        let Some(filters) = &self.twins else {
            let twin = if points.contains(baseline) { Some(baseline) } else { points.first() };
            return Ok(twin.cloned().into_iter().collect());
        };
        let is_twin = any_of(filters, method)?;
        Ok(points.iter().filter(|point| is_twin(point)).cloned().collect())
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
        let rounds = effort.rounds;
        match changed.min_rounds.or(self.min_rounds) {
            Some(least) if least > rounds => {
                return Err(format!(
                    "min_rounds = {least} is above the {rounds} rounds of profile '{}'; lower it \
                     or raise rounds",
                    profile.name()
                ));
            }
            Some(least) => effort.min_rounds = least,
            None => effort.min_rounds = effort.min_rounds.min(rounds),
        }
        Ok(effort)
    }
}

/// Whether one of some filters matches a point.
fn any_of(filters: &[Filter], method: &dyn AnyMethod) -> Result<impl Fn(&Point) -> bool, String> {
    let spelled = filters.iter().map(|filter| filter.canonical(method.factors()));
    let filters: Vec<_> = spelled.collect::<Result<_, _>>()?;
    Ok(move |point: &Point| filters.iter().any(|filter| filter.matches(point)))
}

/// How many points the sweeps make, those that several make counted each time.
fn made(sweeps: &[Vec<String>], factors: &Filter) -> Result<usize, String> {
    let mut made = 0usize;
    for sweep in sweeps {
        let mut product = 1usize;
        for name in sweep {
            product = product.saturating_mul(levels_of(name, factors)?.len());
        }
        made = made.saturating_add(product);
    }
    if made > MAX_POINTS { Err(too_many(made)) } else { Ok(made) }
}

fn too_many(made: usize) -> String {
    let made = if made == usize::MAX { "too many".into() } else { made.to_string() };
    format!(
        "the sweeps make {made} points, and a file may make {MAX_POINTS}; \
         sweep fewer factors together, or name fewer levels"
    )
}

fn levels_of<'a>(name: &str, factors: &'a Filter) -> Result<&'a [crate::point::Level], String> {
    let levels = factors.0.get(name).map(OneOrMany::levels);
    levels.ok_or_else(|| format!("sweeps: '{name}' is no factor of it"))
}

/// Every combination of the levels of some factors, the others as in the baseline.
fn product(sweep: &[String], factors: &Filter, baseline: &Point) -> Result<Vec<Point>, String> {
    let mut points = vec![baseline.clone()];
    for name in sweep {
        let levels = levels_of(name, factors)?;
        points = points
            .iter()
            .flat_map(|point| levels.iter().map(|level| point.with(name, level.clone())))
            .collect();
    }
    Ok(points)
}
