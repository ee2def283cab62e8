//! The catalogue: experiments, claims, figures and headlines of all suites and of a user's files.
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
use crate::experiment::{Experiment, MAX_POINTS, Profile};
use crate::figure::Figure;
use crate::headline::Headline;
use crate::suite::Suite;

/// Experiments, claims, figures and headlines of suites and of a user's files.
pub struct Catalogue<'a> {
    suites: Vec<&'a Suite>,
    files: Vec<DataFile>,
}

/// The tables of one data file, checked as far as this is possible without the suites.
#[derive(Debug)]
pub struct DataFile {
    /// Name of the suite that contains the file; `None` for a user's file.
    suite: Option<String>,
    text: String,
    experiments: Vec<(SourceLocation, Declared)>,
    claims: Vec<Claim>,
    figures: Vec<DeclaredFigure>,
    headlines: Vec<(SourceLocation, Headline)>,
}

/// A table of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declaration<'a> {
    /// `experiment`, `claim`, `figure` or `headline`.
    pub kind: &'static str,
    /// Location of its first line.
    pub location: &'a SourceLocation,
    /// The table in TOML, with the comments above it.
    pub text: &'a str,
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
    table: Vec<claim::DeclaredTable>,
    #[serde(default)]
    figure: Vec<Spanned<Figure>>,
    #[serde(default)]
    headline: Vec<Spanned<Headline>>,
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
                ("headlines", data.headlines),
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
        self.resolved(profile, true)
    }

    /// Returns all experiments with the effort of a profile, also those that it skips.
    ///
    /// # Errors
    /// As [`Self::experiments`].
    pub fn all_experiments(&self, profile: Profile) -> Result<Vec<Experiment>, DataError> {
        self.resolved(profile, false)
    }

    fn resolved(&self, profile: Profile, may_skip: bool) -> Result<Vec<Experiment>, DataError> {
        let mut experiments = Vec::new();
        for file in &self.files {
            experiments.extend(file.experiments(&self.suites, profile, may_skip)?);
        }
        Ok(experiments)
    }

    /// Returns the claims, with their metrics named and levels in canonical spelling.
    ///
    /// # Errors
    /// Returns an error for an unknown experiment, metric, factor or level.
    pub fn claims(&self) -> Result<Vec<Claim>, DataError> {
        // The full profile skips nothing and contains every level.
        self.claims_on(&self.experiments(Profile::Full)?)
    }

    fn claims_on(&self, experiments: &[Experiment]) -> Result<Vec<Claim>, DataError> {
        let claims = self.files.iter().flat_map(|file| &file.claims);
        claims.map(|claim| claim::check(claim, &self.suites, experiments)).collect()
    }

    /// Returns the figures, with levels in canonical spelling and the published values of their points, which claims
    /// state.
    ///
    /// # Errors
    /// Returns an error for an unknown experiment, metric, factor, level or unit, in a figure or a claim.
    pub fn figures(&self) -> Result<Vec<DeclaredFigure>, DataError> {
        let experiments = self.experiments(Profile::Full)?;
        let claims = self.claims_on(&experiments)?;
        let figures = self.files.iter().flat_map(|file| &file.figures);
        let resolved = figures.map(|declared| {
            let resolved = declared.figure.resolve(&self.suites, &experiments);
            let with_published = resolved.and_then(|mut figure| {
                figure.add_published(&claims, &self.suites, &experiments)?;
                Ok(figure)
            });
            let figure = with_published.map_err(|what| declared.location.error(what))?;
            Ok(DeclaredFigure { figure, ..declared.clone() })
        });
        resolved.collect()
    }

    /// Returns the headlines, with metrics named and levels in canonical spelling.
    ///
    /// # Errors
    /// Returns an error for an unknown experiment, metric, factor or level, and for a point that no
    /// profile measures.
    pub fn headlines(&self) -> Result<Vec<Headline>, DataError> {
        // The full profile may replace levels of the others.
        let mut experiments = self.experiments(Profile::Full)?;
        for profile in [Profile::Standard, Profile::Quick] {
            experiments.extend(self.experiments(profile)?);
        }
        let headlines = self.files.iter().flat_map(|file| &file.headlines);
        let resolved = headlines.map(|(location, headline)| {
            let resolved = headline.resolve(&self.suites, &experiments);
            resolved.map_err(|what| location.error(what))
        });
        resolved.collect()
    }

    /// Returns the tables with an ID, of any kind.
    pub fn declarations<'c>(&'c self, id: &str) -> Vec<Declaration<'c>> {
        let of_file = |file: &'c DataFile| {
            let with_id = file.ids().filter(|(_, other, _)| other == id);
            with_id.map(|(kind, _, location)| {
                let text = declaration(&file.text, location.line);
                Declaration { kind, location, text }
            })
        };
        self.files.iter().flat_map(of_file).collect()
    }
}

/// Returns the table that starts at a line, counted from 1, with the comments above it and without
/// those of the next table; the line itself if it is a row of a table.
fn declaration(text: &str, line: usize) -> &str {
    let is_table = |line: &&str| {
        let kinds = ["experiment", "claim", "table", "figure", "headline"];
        kinds.iter().any(|kind| line.trim_end() == format!("[[{kind}]]"))
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = line.saturating_sub(1).min(lines.len());
    let is_faint = |line: &&&str| line.starts_with('#') || line.trim().is_empty();
    let (start, end) = match lines.get(at) {
        Some(row) if !is_table(row) => (at, at + 1),
        _ => {
            let above = lines[..at].iter().rev().take_while(|line| line.starts_with('#')).count();
            let next = lines.iter().skip(at + 1).position(is_table);
            let next = next.map_or(lines.len(), |next| at + 1 + next);
            let below = lines[at..next].iter().rev().take_while(is_faint).count();
            (at - above, next - below)
        }
    };
    let bytes = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    text[bytes(&lines[..start])..bytes(&lines[..end])].trim()
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
            ("tables", tables.table.len()),
            ("figures", tables.figure.len()),
            ("headlines", tables.headline.len()),
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
        for table in tables.table {
            claims.extend(table.into_claims(location)?);
        }
        claims.sort_by_key(|claim| claim.location.line);
        let mut figures = Vec::new();
        for one in tables.figure {
            let location = location(one.span().start);
            let figure = one.into_inner();
            figure.check().map_err(|what| location.error(what))?;
            figures.push(DeclaredFigure { figure, location, is_user_supplied: suite.is_none() });
        }
        let mut headlines = Vec::new();
        for one in tables.headline {
            let location = location(one.span().start);
            let headline = one.into_inner();
            headline.check().map_err(|what| location.error(what))?;
            headlines.push((location, headline));
        }
        let suite = suite.map(String::from);
        Ok(Self { suite, text: text.into(), experiments, claims, figures, headlines })
    }

    /// Returns the claims in the order of the file, not checked against the suites.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Returns the figures in the order of the file, not checked against the suites.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().map(|one| &one.figure)
    }

    /// Returns the kind, ID and location of every table.
    fn ids(&self) -> impl Iterator<Item = (&'static str, String, &SourceLocation)> {
        let experiments = self.experiments.iter().map(|(location, declared)| {
            ("experiment", declared.id(self.suite.as_deref()), location)
        });
        let claims = self.claims.iter().map(|one| ("claim", one.id.clone(), &one.location));
        let figures =
            self.figures.iter().map(|one| ("figure", one.figure.id.clone(), &one.location));
        let headlines = self.headlines.iter();
        let headlines = headlines.map(|(location, one)| ("headline", one.id.clone(), location));
        experiments.chain(claims).chain(figures).chain(headlines)
    }

    fn experiments(
        &self,
        suites: &[&Suite],
        profile: Profile,
        may_skip: bool,
    ) -> Result<Vec<Experiment>, DataError> {
        // All experiments of a file share this maximum.
        let mut points_left = MAX_POINTS;
        let mut experiments = Vec::new();
        for (location, declared) in &self.experiments {
            let suite = self.suite.as_deref();
            if may_skip && declared.is_skipped(profile) {
                continue;
            }
            let resolved = declared.resolve(suite, suites, profile, &mut points_left);
            experiments.push(resolved.map_err(|what| location.error(what))?);
        }
        Ok(experiments)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests;
