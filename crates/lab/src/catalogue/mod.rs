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
use crate::experiment::{Experiment, MAX_POINTS, Profile};
use crate::figure::Figure;
use crate::suite::Suite;

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
    table: Vec<claim::DeclaredTable>,
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
    /// Returns an error for an unknown experiment, metric, factor or level.
    pub fn figures(&self) -> Result<Vec<DeclaredFigure>, DataError> {
        let experiments = self.experiments(Profile::Full)?;
        let figures = self.files.iter().flat_map(|file| &file.figures);
        let resolved = figures.map(|declared| {
            let resolved = declared.figure.resolve(&self.suites, &experiments);
            let figure = resolved.map_err(|what| declared.location.error(what))?;
            Ok(DeclaredFigure { figure, ..declared.clone() })
        });
        resolved.collect()
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
            ("tables", tables.table.len()),
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
        let suite = suite.map(String::from);
        Ok(Self { suite, experiments, claims, figures })
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use crate::method::{Method, Params, Probe};
    use crate::metric::{Better, Metric};
    use crate::sample::Failure;
    use crate::suite::Data;

    #[derive(Params)]
    #[expect(dead_code, reason = "the methods measure nothing")]
    struct CopyParams {
        /// bytes
        #[factor(default = "64 B")]
        length: u64,
        /// threads
        #[factor(default = "1")]
        threads: u64,
    }

    #[derive(Params)]
    #[expect(dead_code, reason = "the methods measure nothing")]
    struct FaultParams {
        /// threads
        #[factor(default = "1")]
        threads: u64,
        /// pages
        #[factor(default = "1")]
        pages: u64,
    }

    macro_rules! methods {
        ($($method:ident, $name:literal, $params:ty, $metric:literal;)*) => {$(
            struct $method;

            impl Method for $method {
                type Params = $params;

                fn name(&self) -> &'static str {
                    $name
                }
                fn metrics(&self) -> &'static [Metric] {
                    &[Metric { name: $metric, unit: "ns", better: Better::Lower, about: "" }]
                }
                fn probe(&self) -> Result<Box<dyn Probe<$params>>, Failure> {
                    Err(Failure::failed("a toy"))
                }
            }
        )*};
    }
    methods! {
        Copy, "copy", CopyParams, "time";
        Faults, "faults", FaultParams, "latency";
    }

    static TOY: Suite = Suite::new("toy", "for tests", Data::EMPTY, &[&Copy, &Faults]);

    const EXPERIMENTS: &str = r#"
[[experiment]]
name = "copy"
about = ""
metric = "time"
factors = { length = [64, 128], threads = [1, 2] }
quick = { skip = true }

[[experiment]]
name = "faults"
about = ""
metric = "latency"
factors = { pages = [1, 2], threads = [1, 2] }
"#;

    const FIGURES: &str = r#"
[[figure]]
id = "curves"
title = "Curves"
experiment = "toy/copy"
metric = "time"
x = "length"
where = { threads = [1, 2] }
series = "threads"
lines = [{ label = "limit", experiment = "toy/faults", metric = "latency", where = { pages = 1 } }]

[[figure]]
id = "grid"
title = "Grid"
experiment = "toy/copy"
kind = "grid"
x = "length"
series = "threads"
groups = [["01", "2"]]
side_panels = [{ experiment = "toy/faults", metric = "latency", x = "pages", where = { pages = 2 } }]
"#;

    const CLAIM: &str = r#"
[[claim]]
id = "it"
says = "it does"
source = "a paper"
experiment = "toy/copy"
metric = "time"
where = { length = 64 }
expect = { ratio_of = { threads = 1 }, to = { threads = 2 }, at_least = 1 }
"#;

    fn catalogue(text: &str) -> Catalogue<'static> {
        let experiments = DataFile::read("toy/experiments.toml", EXPERIMENTS, Some("toy"));
        let file = DataFile::read("my.toml", text, None);
        Catalogue::of_files(&[&TOY], vec![experiments.unwrap(), file.unwrap()]).unwrap()
    }

    #[test]
    fn a_valid_figure_has_canonical_levels() {
        let figures = catalogue(FIGURES).figures().unwrap();
        assert_eq!(figures[1].figure.groups, [["1".into(), "2".into()]]);
    }

    #[test]
    fn unknown_names_in_figures_are_refused() {
        let no_experiment = "; expected one of toy/copy, toy/faults";
        let of_copy = "; expected one of length, threads";
        let of_faults = "; expected one of threads, pages";
        for (right, wrong, line, what, known) in [
            ("\"toy/copy\"", "\"toy/cpoy\"", 2, "unknown experiment 'toy/cpoy'", no_experiment),
            ("\"toy/copy\"", "\"tyo/copy\"", 2, "unknown experiment 'tyo/copy'", no_experiment),
            // Names of another method of the suite.
            ("\"time\"", "\"latency\"", 2, "unknown metric 'latency' of method 'copy'", " time"),
            ("\"length\"", "\"pages\"", 2, "x: unknown factor 'pages'", of_copy),
            ("{ threads = [1", "{ pages = [1", 2, "where: unknown factor 'pages'", of_copy),
            ("series = \"threads\"", "series = \"pages\"", 2, "series: unknown factor", of_copy),
            ("/faults\", m", "/none\", m", 2, "line 'limit': unknown experiment", no_experiment),
            ("\"latency\", w", "\"time\", w", 2, "line 'limit': unknown metric", " latency"),
            ("{ pages = 1 }", "{ length = 1 }", 2, "line 'limit': where: unknown", of_faults),
            ("[1, 2]", "[1, \"many\"]", 2, "where: factor 'threads': 'many'", "whole number"),
            ("\"01\"", "\"one\"", 12, "groups: factor 'threads': 'one'", "whole number"),
            (
                "/faults\", metric = \"latency\", x",
                "/f\", x",
                12,
                "side_panels: unknown exp",
                "faults",
            ),
            ("\"latency\", x", "\"time\", x", 12, "side_panels: unknown metric 'time'", " latency"),
            ("x = \"pages\"", "x = \"length\"", 12, "side_panels: x: unknown factor", of_faults),
            ("{ pages = 2 }", "{ length = 2 }", 12, "side_panels: where: unknown", of_faults),
        ] {
            assert!(FIGURES.contains(right), "{right}");
            let text = FIGURES.replacen(right, wrong, 1);
            let error = catalogue(&text).figures().unwrap_err().to_string();
            let id = if line == 2 { "curves" } else { "grid" };
            let place = format!("my.toml:{line}: figure '{id}': {what}");
            assert!(error.starts_with(&place) && error.contains(known), "{error}");
        }
    }

    #[test]
    fn unknown_names_in_claims_are_refused() {
        assert_eq!(catalogue(CLAIM).claims().unwrap().len(), 1);
        for (right, wrong, what) in [
            ("toy/copy", "toy/cpoy", "unknown experiment 'toy/cpoy'; expected one of toy/copy"),
            ("\"time\"", "\"latency\"", "unknown metric 'latency' of method 'copy'; expected"),
            ("{ length", "{ pages", "where: unknown factor 'pages'; expected one of length"),
            ("{ threads = 1", "{ pages = 1", "ratio_of: unknown factor 'pages'; expected one"),
            ("{ threads = 2", "{ threads = \"x\"", "to: factor 'threads': 'x' is not a whole"),
        ] {
            assert!(CLAIM.contains(right), "{right}");
            let error = catalogue(&CLAIM.replacen(right, wrong, 1)).claims().unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with(&format!("my.toml:2: claim 'it': {what}")), "{error}");
        }
    }
}
