//! What a claim expects, and how that is written in TOML.

use serde::Deserialize;

use crate::point::{Filter, Level};
use crate::quantity;

/// What must hold, and where.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Expect {
    /// What must hold.
    pub kind: Condition,
    /// Judged once for every combination of levels of these factors.
    pub each: Vec<String>,
    /// Whether it must hold for all of them or for some.
    pub hold: Quantifier,
}

/// Whether something must hold everywhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(try_from = "Level")]
pub enum Quantifier {
    /// Everywhere: `all`.
    #[default]
    All,
    /// Somewhere: `some`.
    Some,
    /// In this share of what can be measured: `95%`.
    Share(f64),
}

impl TryFrom<Level> for Quantifier {
    type Error = String;

    fn try_from(level: Level) -> Result<Self, Self::Error> {
        match level.as_str() {
            "all" => Ok(Self::All),
            "some" => Ok(Self::Some),
            word => match quantity::share(word) {
                Ok(share) => Ok(Self::Share(share)),
                Err(_) => Err(format!("'{word}' is not all, some or a share, as \"95%\"")),
            },
        }
    }
}

/// What must hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// The estimate of each point lies within bounds in the metric's unit.
    Value(Bounds),
    /// The ratio inside rounds lies within bounds. It is the plain ratio of the two values in the
    /// metric's unit, also where lower is better: twice as slow is 2. Where a side has several
    /// points, its best by the metric's direction is chosen on half of the rounds and judged on
    /// the other half.
    Ratio {
        /// Above the line.
        of: Filter,
        /// Below the line.
        to: Filter,
        /// Of the ratio.
        bounds: Bounds,
        /// What nothing here can exceed. Where it is itself, over `to`, below the lower bound, the
        /// machine does not allow what is claimed: unmeasurable, not contradicted.
        limit: Option<Filter>,
    },
    /// Each is resolved better than the next.
    Ranking(Vec<Filter>),
    /// No one level of the factor can be the best at all levels of another.
    WinnerChanges {
        /// Whose levels compete.
        factor: String,
        /// Along which the winner changes.
        along: String,
    },
    /// How the values go along a factor's levels, ascending as numbers.
    Shape {
        /// How they go.
        form: Trend,
        /// The factor.
        along: String,
        /// For saturates: up to this level they get better.
        beyond: Option<Level>,
        /// For saturates and flat: by which share they may differ.
        within: Option<f64>,
    },
    /// The difference between a point and its twin, in the metric's unit, is at most this.
    TwinsDifferAtMost(f64),
    /// The rounds of a point on an idle core lie at most so many steps of the time-stamp counter
    /// apart; for metrics in `ns` alone.
    RoundsDifferAtMostSteps(f64),
    /// The middle half of the rounds of a point on an idle core spreads by at most this share of their
    /// median.
    RoundsDifferAtMost(f64),
}

/// How values go along a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trend {
    /// The value at the last level is resolved higher than at the first.
    Rises,
    /// The value at the last level is resolved lower than at the first.
    Falls,
    /// No level differs from the first by more than `within`.
    Flat,
    /// The level `beyond` is resolved better than the first, and no level above it is better than
    /// it by more than `within`.
    Saturates,
}

/// Bounds, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The lower one.
    pub at_least: Option<f64>,
    /// The upper one.
    pub at_most: Option<f64>,
}

/// The table as it is written: every key of every kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    at_least: Option<f64>,
    at_most: Option<f64>,
    ratio_of: Option<Filter>,
    to: Option<Filter>,
    limit: Option<Filter>,
    ranking: Option<Vec<Filter>>,
    winner_changes: Option<String>,
    shape: Option<Trend>,
    along: Option<String>,
    beyond: Option<Level>,
    within: Option<Share>,
    twins_differ_at_most: Option<f64>,
    rounds_differ_at_most_steps: Option<f64>,
    rounds_differ_at_most: Option<Share>,
    each: Option<Vec<String>>,
    hold: Option<Quantifier>,
}

/// A share as `"10%"` or `0.1`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Level")]
pub(super) struct Share(pub(super) f64);

impl TryFrom<Level> for Share {
    type Error = quantity::QuantityError;

    fn try_from(level: Level) -> Result<Self, Self::Error> {
        quantity::share(level.as_str()).map(Self)
    }
}

/// The keys that say which kind is meant, with the other keys that the kind takes.
const KINDS: [(&str, &[&str]); 7] = [
    ("ratio_of", &["to", "at_least", "at_most", "limit", "each", "hold"]),
    ("ranking", &["each", "hold"]),
    ("winner_changes", &["along", "each", "hold"]),
    ("shape", &["along", "beyond", "within", "each", "hold"]),
    ("twins_differ_at_most", &["hold"]),
    ("rounds_differ_at_most_steps", &["hold"]),
    ("rounds_differ_at_most", &["hold"]),
];
/// The keys of the kind that no key names: bounds of a value.
const VALUE: &[&str] = &["at_least", "at_most", "hold"];

impl TryFrom<Table> for Expect {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        table.check_keys()?;
        let each = table.each.clone().unwrap_or_default();
        let hold = table.hold.unwrap_or_default();
        let kind = table.kind()?;
        Ok(Self { kind, each, hold })
    }
}

impl Table {
    fn keys(&self) -> Vec<&'static str> {
        let keys = [
            ("at_least", self.at_least.is_some()),
            ("at_most", self.at_most.is_some()),
            ("ratio_of", self.ratio_of.is_some()),
            ("to", self.to.is_some()),
            ("limit", self.limit.is_some()),
            ("ranking", self.ranking.is_some()),
            ("winner_changes", self.winner_changes.is_some()),
            ("shape", self.shape.is_some()),
            ("along", self.along.is_some()),
            ("beyond", self.beyond.is_some()),
            ("within", self.within.is_some()),
            ("twins_differ_at_most", self.twins_differ_at_most.is_some()),
            ("rounds_differ_at_most_steps", self.rounds_differ_at_most_steps.is_some()),
            ("rounds_differ_at_most", self.rounds_differ_at_most.is_some()),
            ("each", self.each.is_some()),
            ("hold", self.hold.is_some()),
        ];
        let set = keys.into_iter().filter(|(_, set)| *set);
        set.map(|(key, _)| key).collect()
    }

    /// One kind, and no key that it does not take.
    fn check_keys(&self) -> Result<(), String> {
        let keys = self.keys();
        let kind = KINDS.iter().find(|(kind, _)| keys.contains(kind));
        let (name, takes) = kind.map_or(("a value", VALUE), |(kind, takes)| (*kind, *takes));
        match keys.iter().find(|key| **key != name && !takes.contains(key)) {
            Some(key) => Err(format!("{name} takes no '{key}', only {}", takes.join(", "))),
            None => Ok(()),
        }
    }

    fn kind(self) -> Result<Condition, String> {
        let along = || self.along.clone().ok_or("it needs 'along', a factor");
        if let Some(of) = self.ratio_of {
            let to = self.to.ok_or("'ratio_of' needs 'to', the points below the line")?;
            let bounds = Bounds::new(self.at_least, self.at_most)?;
            if [bounds.at_least, bounds.at_most].into_iter().flatten().any(|b| b <= 0.0) {
                return Err("the bound of a ratio must be above zero".into());
            }
            if self.limit.is_some() && bounds.at_least.is_none() {
                return Err("'limit' needs 'at_least', which it may not allow".into());
            }
            return Ok(Condition::Ratio { of, to, bounds, limit: self.limit });
        }
        if let Some(ranking) = self.ranking {
            if ranking.len() < 2 {
                return Err("'ranking' needs two filters or more, the best first".into());
            }
            return Ok(Condition::Ranking(ranking));
        }
        if let Some(factor) = self.winner_changes {
            return Ok(Condition::WinnerChanges { factor, along: along()? });
        }
        if let Some(form) = self.shape {
            let along = along()?;
            let within = self.within.map(|share| share.0);
            form.check(self.beyond.as_ref(), within)?;
            return Ok(Condition::Shape { form, along, beyond: self.beyond, within });
        }
        let not_negative = |name: &str, most: f64| match most.is_finite() && most >= 0.0 {
            true => Ok(most),
            false => Err(format!("'{name}' must be 0 or more")),
        };
        if let Some(most) = self.twins_differ_at_most {
            return not_negative("twins_differ_at_most", most).map(Condition::TwinsDifferAtMost);
        }
        if let Some(Share(most)) = self.rounds_differ_at_most {
            return Ok(Condition::RoundsDifferAtMost(most));
        }
        if let Some(most) = self.rounds_differ_at_most_steps {
            let most = not_negative("rounds_differ_at_most_steps", most);
            return most.map(Condition::RoundsDifferAtMostSteps);
        }
        Bounds::new(self.at_least, self.at_most).map(Condition::Value)
    }
}

impl Trend {
    fn check(self, beyond: Option<&Level>, within: Option<f64>) -> Result<(), String> {
        let bounded = matches!(self, Self::Flat | Self::Saturates);
        if bounded != within.is_some() {
            let verb = if bounded { "needs" } else { "takes no" };
            return Err(format!("this shape {verb} 'within', as \"10%\""));
        }
        if (self == Self::Saturates) != beyond.is_some() {
            let verb = if self == Self::Saturates { "needs" } else { "takes no" };
            return Err(format!("this shape {verb} 'beyond', a level"));
        }
        match beyond.map(Level::number) {
            Some(None) => Err("'beyond' must be a number or a number of bytes".into()),
            _ => Ok(()),
        }
    }
}

impl Bounds {
    fn new(at_least: Option<f64>, at_most: Option<f64>) -> Result<Self, String> {
        let finite = [at_least, at_most].into_iter().flatten().all(f64::is_finite);
        match (at_least, at_most) {
            (None, None) => Err("it needs 'at_least' or 'at_most'".into()),
            _ if !finite => Err("a bound must be a finite number".into()),
            (Some(least), Some(most)) if least > most => {
                Err(format!("'at_least' {least} is above 'at_most' {most}"))
            }
            _ => Ok(Self { at_least, at_most }),
        }
    }
}
