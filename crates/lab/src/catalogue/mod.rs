//! The catalogue: experiments, claims and figures of all suites and of a user's files.
//!
//! Every file is parsed once. Resolving checks names and levels against the methods of the suites.

mod declared;

use std::collections::BTreeMap;
use std::path::PathBuf;

use machine::file;
use serde::Deserialize;
use toml::Spanned;

use self::declared::Declared;
use crate::claim::{self, Claim};
use crate::data::{DataError, MAX_FILE, MAX_TABLES, SourceLocation, line_of, read_toml};
use crate::experiment::{Experiment, MAX_POINTS, Profile, suite_name};
use crate::factor;
use crate::figure::Figure;
use crate::suite::{self, Suite};

/// Experiments, claims and figures of suites and of a user's files.
pub struct Catalogue<'a> {
    suites: Vec<&'a Suite>,
    files: Vec<DataFile>,
}

/// The tables of one data file, checked as far as this is possible without the suites.
#[derive(Debug)]
pub struct DataFile {
    /// Name of the suite that contains the file; `None` for a user's file.
    suite: Option<String>,
    experiments: Vec<(SourceLocation, Declared)>,
    claims: Vec<Claim>,
    figures: Vec<DeclaredFigure>,
}

/// A figure with its origin.
#[derive(Debug, Clone)]
pub struct DeclaredFigure {
    /// The figure.
    pub figure: Figure,
    /// Location of its declaration.
    pub location: SourceLocation,
    /// Whether a user's file declares it, not a suite's.
    pub is_user_supplied: bool,
}

/// Tables of a file as parsed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    experiment: Vec<Spanned<Declared>>,
    #[serde(default)]
    claim: Vec<Spanned<claim::Declared>>,
    #[serde(default)]
    figure: Vec<Spanned<Figure>>,
}

impl<'a> Catalogue<'a> {
    /// Parses the data of suites, and a user's files.
    ///
    /// # Errors
    /// Returns the first error in a file, or an error if a file cannot be read or two files declare
    /// the same ID.
    pub fn load(suites: &[&'a Suite], user_files: &[PathBuf]) -> Result<Self, DataError> {
        let mut files = Vec::new();
        for suite in suites {
            let (name, data) = (suite.name(), suite.data());
            for (file, text) in [
                ("experiments", data.experiments),
                ("claims", data.claims),
                ("promises", data.promises),
                ("figures", data.figures),
            ] {
                files.push(DataFile::read(&format!("{name}/{file}.toml"), text, Some(name))?);
            }
        }
        for path in user_files {
            let name = path.display().to_string();
            let text = file::read_input_text(path, MAX_FILE)
                .map_err(|e| DataError::of_file(&name, format!("{e}; name a TOML file")))?;
            files.push(DataFile::read(&name, &text, None)?);
        }
        Self::of_files(suites, files)
    }

    /// Parses the data of one suite.
    ///
    /// # Errors
    /// Returns the first error in a file.
    pub fn of_suite(suite: &'a Suite) -> Result<Self, DataError> {
        Self::load(&[suite], &[])
    }

    /// Builds a catalogue of files that are already parsed.
    ///
    /// # Errors
    /// Returns an error if an ID is declared twice.
    pub fn of_files(suites: &[&'a Suite], files: Vec<DataFile>) -> Result<Self, DataError> {
        let mut declared: BTreeMap<(&str, String), &SourceLocation> = BTreeMap::new();
        for (kind, id, location) in files.iter().flat_map(DataFile::ids) {
            if let Some(other) = declared.insert((kind, id.clone()), location) {
                let what = format!("{kind} '{id}': {other} has the same ID; choose another");
                return Err(location.error(what));
            }
        }
        Ok(Self { suites: suites.to_vec(), files })
    }

    /// Returns the experiments that a profile does not skip.
    ///
    /// # Errors
    /// Returns an error for an unknown suite, method, metric, factor or level, and for a number out
    /// of range.
    pub fn experiments(&self, profile: Profile) -> Result<Vec<Experiment>, DataError> {
        let mut experiments = Vec::new();
        for file in &self.files {
            experiments.extend(file.experiments(&self.suites, profile)?);
        }
        Ok(experiments)
    }

    /// Returns the claims, with their metrics named and levels in canonical spelling.
    ///
    /// # Errors
    /// Returns an error for an unknown experiment, metric, factor or level.
    pub fn claims(&self) -> Result<Vec<Claim>, DataError> {
        // The full profile skips nothing and contains every level.
        let experiments = self.experiments(Profile::Full)?;
        let claims = self.files.iter().flat_map(|file| &file.claims);
        claims.map(|claim| claim::check(claim, &self.suites, &experiments)).collect()
    }

    /// Returns the figures, with levels in canonical spelling.
    ///
    /// # Errors
    /// Returns an error for an unknown suite, metric, factor or level.
    pub fn figures(&self) -> Result<Vec<DeclaredFigure>, DataError> {
        let figures = self.files.iter().flat_map(|file| &file.figures);
        let resolved = figures.map(|declared| {
            let resolved = self.resolve_figure(&declared.figure);
            let figure = resolved.map_err(|what| declared.location.error(what))?;
            Ok(DeclaredFigure { figure, ..declared.clone() })
        });
        resolved.collect()
    }

    /// Returns a figure with its levels in canonical spelling.
    ///
    /// # Errors
    /// Returns one line for an unknown suite, metric, factor or level.
    pub fn resolve_figure(&self, figure: &Figure) -> Result<Figure, String> {
        self.resolved(figure).map_err(|what| format!("figure '{}': {what}", figure.id))
    }

    fn resolved(&self, figure: &Figure) -> Result<Figure, String> {
        let mut resolved = figure.clone();
        let suite_of = |experiment: Option<&String>| {
            let id = experiment.unwrap_or(&figure.experiment);
            suite::find(&self.suites, suite_name(id))
                .ok_or_else(|| format!("unknown experiment '{id}'"))
        };
        let suite = suite_of(None)?;
        let factors = suite::factors(suite);
        resolved.filter = figure.filter.canonical(&factors)?;
        for name in [&figure.x].into_iter().filter(|x| !x.is_empty()).chain(&figure.series) {
            factor::find(&factors, name)?;
        }
        check_metric(suite, figure.metric.as_deref())?;
        for line in &mut resolved.lines {
            let suite = suite_of(line.experiment.as_ref())?;
            line.filter = line.filter.canonical(&suite::factors(suite))?;
            check_metric(suite, line.metric.as_deref())?;
        }
        for panel in &mut resolved.beside {
            let suite = suite_of(panel.experiment.as_ref())?;
            let factors = suite::factors(suite);
            panel.filter = panel.filter.canonical(&factors)?;
            if !panel.x.is_empty() {
                factor::find(&factors, &panel.x)?;
            }
            check_metric(suite, panel.metric.as_deref())?;
        }
        Ok(resolved)
    }
}

fn check_metric(suite: &Suite, metric: Option<&str>) -> Result<(), String> {
    let metrics = suite::metrics(suite);
    match metric.filter(|name| !metrics.iter().any(|metric| metric.name == *name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<_> = metrics.iter().map(|metric| metric.name).collect();
            let (suite, known) = (suite.name(), known.join(", "));
            Err(format!("unknown metric '{name}' of {suite}; expected one of {known}"))
        }
    }
}

impl DataFile {
    /// Parses a file of a suite, or a user's file, which names the suite in each experiment.
    ///
    /// # Errors
    /// Returns the first error with its line.
    pub fn read(name: &str, text: &str, suite: Option<&str>) -> Result<Self, DataError> {
        let tables: Tables = read_toml(name, text)?;
        for (kind, count) in [
            ("experiments", tables.experiment.len()),
            ("claims", tables.claim.len()),
            ("figures", tables.figure.len()),
        ] {
            if count > MAX_TABLES {
                let what = format!("more than {MAX_TABLES} {kind}; split it into several files");
                return Err(DataError::of_file(name, what));
            }
        }
        let location =
            |start: usize| SourceLocation { file: name.into(), line: line_of(text, start) };
        let mut experiments = Vec::new();
        for one in tables.experiment {
            let location = location(one.span().start);
            let declared = one.into_inner();
            declared.check_name().map_err(|what| location.error(what))?;
            experiments.push((location, declared));
        }
        let mut claims = Vec::new();
        for one in tables.claim {
            let location = location(one.span().start);
            claims.push(one.into_inner().into_claim(location)?);
        }
        let mut figures = Vec::new();
        for one in tables.figure {
            let location = location(one.span().start);
            let figure = one.into_inner();
            figure
                .check()
                .map_err(|what| location.error(format!("figure '{}': {what}", figure.id)))?;
            figures.push(DeclaredFigure { figure, location, is_user_supplied: suite.is_none() });
        }
        let suite = suite.map(String::from);
        Ok(Self { suite, experiments, claims, figures })
    }

    /// Claims in the order of the file, not checked against the suites.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Figures in the order of the file, not checked against the suites.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().map(|one| &one.figure)
    }

    /// Kind, ID and location of every table.
    fn ids(&self) -> impl Iterator<Item = (&'static str, String, &SourceLocation)> {
        let experiments = self.experiments.iter().map(|(location, declared)| {
            ("experiment", declared.id(self.suite.as_deref()), location)
        });
        let claims = self.claims.iter().map(|one| ("claim", one.id.clone(), &one.location));
        let figures =
            self.figures.iter().map(|one| ("figure", one.figure.id.clone(), &one.location));
        experiments.chain(claims).chain(figures)
    }

    fn experiments(
        &self,
        suites: &[&Suite],
        profile: Profile,
    ) -> Result<Vec<Experiment>, DataError> {
        // All experiments of a file share this maximum.
        let mut points_left = MAX_POINTS;
        let mut experiments = Vec::new();
        for (location, declared) in &self.experiments {
            let suite = self.suite.as_deref();
            let resolved = declared.resolve(suite, suites, profile, &mut points_left);
            experiments.extend(resolved.map_err(|what| location.error(what))?);
        }
        Ok(experiments)
    }
}
