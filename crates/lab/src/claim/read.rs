//! Declarations of claims.

mod table;

use machine::proximity::Class;
use serde::Deserialize;

pub(crate) use table::DeclaredTable;

use super::expect::Share;
use super::{Claim, Expect, Published};
use crate::data::{DataError, SourceLocation};
use crate::experiment::Profile;
use crate::point::Filter;

/// A claim as declared in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Declared {
    id: String,
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
    unmeasurable: Option<String>,
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

impl Declared {
    /// Returns the claim, checked as far as this is possible without a suite.
    ///
    /// # Errors
    /// Returns an error if the keys do not fit together.
    pub(crate) fn into_claim(self, location: SourceLocation) -> Result<Claim, DataError> {
        let published = self.published.map(|published| Published {
            value: published.value,
            unit: published.unit,
            tolerance: published.tolerance.map(|share| share.0),
            on: published.on,
        });
        let claim = Claim {
            id: self.id,
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
            unmeasurable: self.unmeasurable,
            expect: self.expect,
            location,
        };
        claim.check_form().map_err(|what| claim.error(&what))?;
        Ok(claim)
    }
}

impl Claim {
    fn check_form(&self) -> Result<(), String> {
        if self.rounds == Some(0) {
            return Err("rounds must be 1 or more".into());
        }
        match (&self.published, &self.expect) {
            (None, None) => Err("'published' or 'expect' is missing".into()),
            (Some(published), _) if !published.value.is_finite() => {
                Err("the published value must be a finite number".into())
            }
            (Some(published), None) if self.carries_over && published.tolerance.is_none() => {
                Err("a value that carries over requires 'tolerance', e.g. \"10%\"; \
                     for a value of other hardware set carries_over = false"
                    .into())
            }
            _ => Ok(()),
        }
    }
}
