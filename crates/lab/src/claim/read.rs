//! Reading claims from TOML.

use std::collections::BTreeSet;

use machine::proximity::Class;
use serde::Deserialize;
use toml::Spanned;

use super::expect::Share;
use super::{Claim, Expect, Published, SourceLocation};
use crate::experiment::{DataError, MAX_TABLES, Profile, read_toml};
use crate::point::Filter;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    claim: Vec<Declared>,
    // Other tables of the same file have readers of their own.
    #[serde(default, rename = "experiment")]
    _experiment: Vec<toml::Value>,
    #[serde(default, rename = "figure")]
    _figure: Vec<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    // Spanned, so that what is found later can name the line.
    id: Spanned<String>,
    says: String,
    source: String,
    experiment: String,
    #[serde(default, rename = "where")]
    filter: Filter,
    metric: Option<String>,
    published: Option<DeclaredValue>,
    #[serde(default = "yes")]
    carries_over: bool,
    cores: Option<usize>,
    profile: Option<Profile>,
    class: Option<Class>,
    rounds: Option<usize>,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredValue {
    value: f64,
    unit: String,
    tolerance: Option<Share>,
    on: Option<String>,
}

fn yes() -> bool {
    true
}

/// Reads the claims of one file. Its experiments and figures are passed over.
///
/// # Errors
/// One line with the file, the line and the key.
pub fn read(file: &str, text: &str) -> Result<Vec<Claim>, DataError> {
    let parsed: File = read_toml(file, text)?;
    if parsed.claim.len() > MAX_TABLES {
        let what = format!("it has more than {MAX_TABLES} claims; split it into several files");
        return Err(DataError { file: file.into(), what });
    }
    let mut seen = BTreeSet::new();
    let mut claims = Vec::new();
    for declared in parsed.claim {
        let before = &text[..declared.id.span().start.min(text.len())];
        let place = SourceLocation { file: file.into(), line: before.matches('\n').count() + 1 };
        let claim = declared.into_claim(place);
        claim.check_form().map_err(|what| claim.fault(&what))?;
        if !seen.insert(claim.id.clone()) {
            return Err(claim.fault("another claim has the same id"));
        }
        claims.push(claim);
    }
    Ok(claims)
}

impl Declared {
    fn into_claim(self, place: SourceLocation) -> Claim {
        let published = self.published.map(|published| Published {
            value: published.value,
            unit: published.unit,
            tolerance: published.tolerance.map(|share| share.0),
            on: published.on,
        });
        Claim {
            id: self.id.into_inner(),
            says: self.says,
            source: self.source,
            experiment: self.experiment,
            filter: self.filter,
            metric: self.metric,
            published,
            carries_over: self.carries_over,
            cores: self.cores,
            profile: self.profile,
            class: self.class,
            rounds: self.rounds,
            expect: self.expect,
            place,
        }
    }
}

impl Claim {
    /// What can be seen without any suite.
    fn check_form(&self) -> Result<(), String> {
        if self.rounds == Some(0) {
            return Err("rounds must be 1 or more".into());
        }
        match (&self.published, &self.expect) {
            (None, None) => Err("it needs 'published' or 'expect'".into()),
            (Some(published), _) if !published.value.is_finite() => {
                Err("the published value must be a finite number".into())
            }
            (Some(published), None) if self.carries_over && published.tolerance.is_none() => {
                Err("a value that carries over needs 'tolerance', as \"10%\"; \
                     for a value of other hardware say carries_over = false"
                    .into())
            }
            _ => Ok(()),
        }
    }
}
