//! Declarations of claims.

mod table;

use machine::proximity::Class;
use serde::Deserialize;

pub(crate) use table::DeclaredTable;

use super::expect::Share;
use super::{CarriesOver, Claim, Expect, Published, Setup};
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
    origin: Option<String>,
    experiment: String,
    #[serde(default, rename = "where")]
    filter: Filter,
    prefer: Option<Filter>,
    metric: Option<String>,
    published: Option<DeclaredValue>,
    carries_over: Option<CarriesOver>,
    requires: Option<Setup>,
    #[serde(default)]
    emulated: bool,
    cores: Option<usize>,
    profile: Option<Profile>,
    class: Option<Class>,
    rounds: Option<usize>,
    unmeasurable: Option<String>,
    one_sided: Option<String>,
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
            origin: self.origin,
            experiment: self.experiment,
            filter: self.filter,
            prefer: self.prefer,
            metric: self.metric,
            unit: None,
            published,
            carries_over: self.carries_over,
            requires: self.requires,
            emulated: self.emulated,
            cores: self.cores,
            profile: self.profile,
            class: self.class,
            rounds: self.rounds,
            unmeasurable: self.unmeasurable,
            one_sided: self.one_sided,
            expect: self.expect,
            location,
            arguments: String::new(),
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
        self.check_origin()?;
        if self.requires.as_ref().is_some_and(|setup| !setup.filter.0.is_empty()) {
            return Err("requires: takes no 'where'; set the claim's 'where'".into());
        }
        match (&self.published, &self.expect) {
            (None, None) => Err("'published' or 'expect' is missing".into()),
            (Some(published), _) if !published.value.is_finite() => {
                Err("the published value must be a finite number".into())
            }
            (Some(published), None) if self.unmeasurable.is_none() => self.check_value(published),
            (_, Some(_)) if self.carries_over.is_some() => {
                Err("'carries_over' applies to a published value without 'expect'; remove one"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the origin is that of a published number.
    fn check_origin(&self) -> Result<(), String> {
        let Some(origin) = &self.origin else { return Ok(()) };
        let states_number = self.published.is_some()
            || self.expect.as_ref().is_some_and(|expect| expect.kind.states_number());
        if origin.trim().is_empty() {
            Err("'origin' is empty; name a file, or state how the number is computed".into())
        } else if self.is_promise() {
            Err("'origin' is that of a published number, which a promise has not; remove it".into())
        } else if !states_number {
            Err("'origin' is that of a published number, which this claim has not; remove it"
                .into())
        } else {
            Ok(())
        }
    }

    /// Checks a published value that is judged itself.
    fn check_value(&self, published: &Published) -> Result<(), String> {
        match (&self.carries_over, published.tolerance) {
            (None, _) => Err("'carries_over' is missing; set \"anywhere\", \"nowhere\", or the \
                              hardware of the value, e.g. { cpu = \"Intel family 6 model 94\" }"
                .into()),
            (Some(CarriesOver::Nowhere), Some(_)) => {
                Err("a value that carries over nowhere takes no 'tolerance'; remove it".into())
            }
            (Some(CarriesOver::Anywhere | CarriesOver::To(_)), None) => {
                Err("a value that carries over requires 'tolerance', e.g. \"10%\"".into())
            }
            _ => Ok(()),
        }
    }
}
