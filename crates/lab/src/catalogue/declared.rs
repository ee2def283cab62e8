//! Declarations of experiments, and their resolution for a profile.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::data::is_plain_name;
use crate::experiment::{
    Effort, Experiment, MAX_COMPARISONS, MAX_LEVELS, MAX_LISTED, MAX_POINTS, Profile, check_count,
};
use crate::method::{AnyMethod, complete};
use crate::point::{Filter, Level, OneOrMany, Point};
use crate::quantity;
use crate::suite::{self, Suite};
use crate::terminal::one_line;

/// Maximum length of an experiment's name, in bytes.
const MAX_NAME: usize = 64;
/// The maximum length of a level, in bytes. An order repeats the levels of its points.
const MAX_LEVEL: usize = 4096;
/// The maximum number of roles of an experiment.
const MAX_ROLES: usize = 16;

/// An experiment as declared in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Declared {
    name: String,
    suite: Option<String>,
    method: Option<String>,
    about: String,
    metric: String,
    #[serde(default)]
    baseline: BTreeMap<String, Level>,
    #[serde(default)]
    sweeps: Sweeps,
    #[serde(default)]
    exclude: Vec<Filter>,
    twins: Option<Vec<Filter>>,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    blocking: Vec<String>,
    alternatives: Option<String>,
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

/// Changes by a profile; any other key is a factor with its levels.
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

/// Sets of factors that are varied together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Sweeps {
    /// `"all"`: the product of all factors.
    Word(String),
    /// The product of each set, with the other factors at the baseline.
    Around(Vec<Vec<String>>),
}

impl Default for Sweeps {
    fn default() -> Self {
        Self::Word("all".into())
    }
}

impl Declared {
    /// Returns the ID: suite and name.
    pub(super) fn id(&self, suite: Option<&str>) -> String {
        let suite = suite.or(self.suite.as_deref()).unwrap_or_default();
        format!("{suite}/{}", self.name)
    }

    /// Checks the name, which becomes part of file names and command lines.
    ///
    /// # Errors
    /// Returns an error for a name that is too long or contains other characters.
    pub(super) fn check_name(&self) -> Result<(), String> {
        if self.name.len() <= MAX_NAME && is_plain_name(&self.name) && !self.name.contains('.') {
            return Ok(());
        }
        let name = one_line(&self.name);
        Err(format!("experiment name '{name}': use 1 to {MAX_NAME} letters, digits, '-' and '_'"))
    }

    /// Returns whether a profile skips it.
    pub(super) fn is_skipped(&self, profile: Profile) -> bool {
        self.changed_by(profile).skip == Some(true)
    }

    fn changed_by(&self, profile: Profile) -> &Override {
        match profile {
            Profile::Quick => &self.quick,
            Profile::Standard => &self.standard,
            Profile::Full => &self.full,
        }
    }

    /// Returns the experiment for a profile. `suite` is the suite that contains the file, if any. Subtracts its points
    /// from `points_left`, the number that the file may still generate.
    ///
    /// # Errors
    /// Returns an error for an unknown suite, method, metric, factor or level, or a number out of
    /// range.
    pub(super) fn resolve(
        &self,
        suite: Option<&str>,
        suites: &[&Suite],
        profile: Profile,
        points_left: &mut usize,
    ) -> Result<Experiment, String> {
        let mut of_suite = || {
            let suite = suite
                .or(self.suite.as_deref())
                .ok_or_else(|| "'suite' is missing; add suite = \"copy\"".to_string())?;
            let suite = suite::find(suites, suite).ok_or_else(|| {
                let known: Vec<_> = suites.iter().map(|suite| suite.name()).collect();
                let (suite, known) = (one_line(suite), known.join(", "));
                format!("unknown suite '{suite}'; expected one of {known}")
            })?;
            self.resolve_in(suite, profile, points_left)
        };
        of_suite().map_err(|what| format!("experiment '{}': {what}", self.name))
    }

    fn resolve_in(
        &self,
        suite: &Suite,
        profile: Profile,
        points_left: &mut usize,
    ) -> Result<Experiment, String> {
        let changed = self.changed_by(profile);
        let method = suite::method(suite, self.method.as_ref().unwrap_or(&self.name))?;
        method.metric(&self.metric)?;
        // Checked before the profile overrides them, so that an unknown level is an error in every
        // profile.
        let mut factors = Filter(self.factors.clone()).canonical(method.factors())?;
        for (name, levels) in Filter(changed.factors.clone()).canonical(method.factors())?.0 {
            if factors.0.insert(name.clone(), levels).is_none() {
                return Err(format!(
                    "profile '{}': '{name}' is not a factor of it",
                    profile.name()
                ));
            }
        }
        for (name, levels) in &factors.0 {
            check_count(&format!("levels of '{name}'"), levels.levels().len(), 1, MAX_LEVELS)?;
            levels.levels().iter().try_for_each(|level| check_level(name, level))?;
        }
        self.check_roles()?;
        check_count("filters of twins", self.twins.as_ref().map_or(0, Vec::len), 0, MAX_LISTED)?;
        check_count("filters of exclude", self.exclude.len(), 0, MAX_LISTED)?;
        let baseline = self.baseline(method, &factors)?;
        let sweeps = self.swept(&factors)?;
        let made = made(&sweeps, &factors)?;
        *points_left = points_left.checked_sub(made).ok_or_else(|| too_many(made))?;
        let points = self.points(method, &sweeps, &factors, &baseline)?;
        let twins = self.twin_points(method, &points, &baseline)?;
        if points.is_empty() {
            return Err("no points remain; exclude fewer".into());
        }
        let is_unknown = |name: &&String| !factors.0.contains_key(*name);
        if let Some(name) = self.blocking.iter().find(is_unknown) {
            return Err(format!("blocking: '{name}' is not a factor of it"));
        }
        if let Some(name) = self.alternatives.as_ref().filter(is_unknown) {
            return Err(format!("alternatives: '{name}' is not a factor of it"));
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
            // Roles synchronise at each point, so an order contains one point.
            batch: if self.roles.is_empty() { self.batch.unwrap_or(64) } else { 1 },
            method: method.name().into(),
            name: self.name.clone(),
            about: self.about.clone(),
            metric: self.metric.clone(),
            roles: self.roles.clone(),
            skipped: Vec::new(),
            blocking: self.blocking.clone(),
            alternatives: self.alternatives.clone(),
            compared: Vec::new(),
        };
        experiment.within_limits()?;
        Ok(experiment)
    }

    /// Returns a level for every factor of the method: the baseline's, else the first one varied,
    /// else the default.
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
            check_level(name, &level)?;
            baseline = baseline.with(name, level);
        }
        match self.baseline.keys().find(|name| !factors.0.contains_key(*name)) {
            Some(name) => Err(format!("baseline: '{name}' is not a factor of it")),
            None => Ok(complete(method.factors(), &baseline)),
        }
    }

    /// Checks the roles, which become keys of samples: a worker starts for each.
    fn check_roles(&self) -> Result<(), String> {
        check_count("roles", self.roles.len(), 0, MAX_ROLES)?;
        let mut seen = BTreeSet::new();
        for role in &self.roles {
            if !is_plain_name(role) || role.len() > MAX_NAME {
                let role = one_line(role);
                return Err(format!(
                    "roles: '{role}': use 1 to {MAX_NAME} letters, digits, '-' and '_'"
                ));
            }
            if !seen.insert(role) {
                return Err(format!("roles: '{role}' is listed twice; list it once"));
            }
        }
        Ok(())
    }

    fn swept(&self, factors: &Filter) -> Result<Vec<Vec<String>>, String> {
        match &self.sweeps {
            Sweeps::Word(word) if word == "all" => Ok(vec![factors.0.keys().cloned().collect()]),
            Sweeps::Word(word) => Err(format!("sweeps = '{word}'; use \"all\" or a list")),
            Sweeps::Around(sweeps) => {
                check_count("sweeps", sweeps.len(), 1, MAX_LISTED)?;
                for sweep in sweeps {
                    let mut seen = BTreeSet::new();
                    if let Some(twice) = sweep.iter().find(|name| !seen.insert(*name)) {
                        return Err(format!("sweeps: '{twice}' is listed twice; list it once"));
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
                "exclude and twins: {compared} levels are too many for this many points; list fewer"
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

    /// Returns the points that have a twin: by default the baseline, or the first point if the
    /// baseline is not a point.
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
        let text = |own: &Option<String>, changed: &Option<String>| {
            changed.as_ref().or(own.as_ref()).cloned()
        };
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
            Some(min) if min > rounds => {
                return Err(format!(
                    "min_rounds = {min} exceeds the {rounds} rounds of profile '{}'; lower it \
                     or raise rounds",
                    profile.name()
                ));
            }
            Some(min) => effort.min_rounds = min,
            None => effort.min_rounds = effort.min_rounds.min(rounds),
        }
        Ok(effort)
    }
}

fn check_level(factor: &str, level: &Level) -> Result<(), String> {
    match level.as_str().len() {
        0..=MAX_LEVEL => Ok(()),
        _ => {
            Err(format!("factor '{factor}': a level is longer than {MAX_LEVEL} bytes; shorten it"))
        }
    }
}

/// Returns a predicate that is true if any of the filters matches a point.
fn any_of(filters: &[Filter], method: &dyn AnyMethod) -> Result<impl Fn(&Point) -> bool, String> {
    let canonical = filters.iter().map(|filter| filter.canonical(method.factors()));
    let filters: Vec<_> = canonical.collect::<Result<_, _>>()?;
    Ok(move |point: &Point| filters.iter().any(|filter| filter.matches(point)))
}

/// Counts the points of all sweeps; a point of two sweeps counts twice.
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
        "the sweeps make {made} points, and the maximum per file is {MAX_POINTS}; \
         sweep fewer factors together or list fewer levels"
    )
}

fn levels_of<'a>(name: &str, factors: &'a Filter) -> Result<&'a [Level], String> {
    let levels = factors.0.get(name).map(OneOrMany::levels);
    levels.ok_or_else(|| format!("sweeps: '{name}' is not a factor of it"))
}

/// Returns every combination of the levels of some factors, with the others at the baseline.
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
