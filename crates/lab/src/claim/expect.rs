//! Conditions that claims set, and their TOML form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::point::{Filter, Level};
use crate::quantity;

/// Condition that must be true, and at which points.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Expect {
    /// The condition.
    pub kind: Condition,
    /// Factors; the condition is judged for every combination of their levels.
    pub each: Vec<String>,
    /// For which of the combinations or points it must be true.
    pub hold: Quantifier,
}

/// For which combinations or points a condition must be true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Level", rename_all = "kebab-case")]
pub enum Quantifier {
    /// For each: `all`.
    #[default]
    All,
    /// For at least one: `some`.
    Some,
    /// For at least this share of those that can be measured: `95%`.
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
                Err(_) => Err(format!("'{word}' is not all, some or a share, e.g. \"95%\"")),
            },
        }
    }
}

/// Condition that must be true.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// The estimate of each point is within bounds, in the unit of the metric.
    Value(Bounds),
    /// The value of every sample is within bounds, in the unit of the metric. One valid sample
    /// outside contradicts; void samples are inspected and listed separately.
    EverySample(Bounds),
    /// The value of at least one valid sample is outside bounds, in the unit of the metric. If none
    /// is, it may still happen: the claim is never contradicted.
    SomeSample(Bounds),
    /// The ratio within rounds is within bounds. It is the ratio of the two values, whichever
    /// direction is better: twice as slow is 2. If a side has several points, the best by the
    /// direction of the metric counts.
    Ratio {
        /// Points of the numerator.
        of: Filter,
        /// Points of the denominator.
        to: Filter,
        /// Bounds of the ratio.
        bounds: Bounds,
        /// Points that limit `of` on this machine. If their ratio to `to` is below the lower bound,
        /// the machine does not permit the claimed ratio: the claim is unmeasurable, not
        /// contradicted.
        limit: Option<Filter>,
        /// Levels that make the baselines of `of` and of `to`. If present, each value is divided by
        /// that of its baseline in the same round: the ratio is one of two overheads.
        baselines: Option<[Filter; 2]>,
    },
    /// Each filter's best point is resolved better than the next one's.
    Ranking(Vec<Filter>),
    /// No level of a factor can be the best at all levels of another factor.
    WinnerChanges {
        /// Factor whose levels compete.
        factor: String,
        /// Factor along which the winner changes.
        along: String,
    },
    /// The values follow a trend along the levels of a factor, in ascending numeric order.
    Shape {
        /// The trend.
        form: Trend,
        /// The factor.
        along: String,
        /// For [`Trend::Saturates`]: the level up to which they improve.
        beyond: Option<Level>,
        /// For [`Trend::Saturates`] and [`Trend::Flat`]: permitted difference, as a share.
        within: Option<f64>,
    },
    /// The difference between a point and its twin is at most this, in the unit of the metric.
    TwinsDifferAtMost(f64),
    /// The middle half of the rounds of a point on an idle core is at most this wide.
    RoundsDifferAtMost(f64, SpreadUnit),
}

impl Condition {
    /// Returns whether points are compared with each other, which requires a noise floor.
    pub(super) fn compares_points(&self) -> bool {
        match self {
            Self::Ratio { .. }
            | Self::Ranking(_)
            | Self::WinnerChanges { .. }
            | Self::Shape { .. } => true,
            Self::Value(_)
            | Self::EverySample(_)
            | Self::SomeSample(_)
            | Self::TwinsDifferAtMost(_)
            | Self::RoundsDifferAtMost(..) => false,
        }
    }

    /// Returns whether it compares values or ratios with a number.
    pub(super) fn states_number(&self) -> bool {
        match self {
            Self::Value(_)
            | Self::EverySample(_)
            | Self::SomeSample(_)
            | Self::Ratio { .. }
            | Self::TwinsDifferAtMost(_)
            | Self::RoundsDifferAtMost(..) => true,
            Self::Ranking(_) | Self::WinnerChanges { .. } => false,
            Self::Shape { beyond, within, .. } => beyond.is_some() || within.is_some(),
        }
    }
}

/// Unit of the width of the middle half of some rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpreadUnit {
    /// Steps of the time-stamp counter; only for metrics in `ns`.
    Steps,
    /// Share of the median.
    Share,
}

/// Trend of values along the levels of a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trend {
    /// The value at the last level is resolved higher than at the first, and none is resolved lower than the one
    /// before.
    Rises,
    /// The value at the last level is resolved lower than at the first, and none is resolved higher than the one
    /// before.
    Falls,
    /// No level differs from the first by more than `within`.
    Flat,
    /// The value at level `beyond` is resolved better than at the first, none up to it is resolved worse than the one
    /// before, and no later one is better than it by more than `within`.
    Saturates,
}

/// Inclusive bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Bounds {
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
}

/// The TOML table: every key of every condition.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    at_least: Option<f64>,
    at_most: Option<f64>,
    never: Option<Outside>,
    sometimes: Option<Outside>,
    always: Option<Always>,
    ratio_of: Option<Filter>,
    to: Option<Filter>,
    limit: Option<Filter>,
    baselines: Option<[Filter; 2]>,
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

/// Values that no sample has, or that some sample has.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outside {
    above: Option<f64>,
    below: Option<f64>,
}

/// Bounds of the value of every sample.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Always {
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// A share: `"10%"` or `0.1`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Level")]
pub(super) struct Share(pub(super) f64);

impl TryFrom<Level> for Share {
    type Error = quantity::QuantityError;

    fn try_from(level: Level) -> Result<Self, Self::Error> {
        quantity::share(level.as_str()).map(Self)
    }
}

/// Keys that determine the condition, with the other keys that it takes.
const KINDS: [(&str, &[&str]); 10] = [
    ("never", &[]),
    ("sometimes", &[]),
    ("always", &[]),
    ("ratio_of", &["to", "at_least", "at_most", "limit", "baselines", "each", "hold"]),
    ("ranking", &["each", "hold"]),
    ("winner_changes", &["along", "each", "hold"]),
    ("shape", &["along", "beyond", "within", "each", "hold"]),
    ("twins_differ_at_most", &["hold"]),
    ("rounds_differ_at_most_steps", &["hold"]),
    ("rounds_differ_at_most", &["hold"]),
];
/// Keys of the condition without such a key: bounds of a value.
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
            ("never", self.never.is_some()),
            ("sometimes", self.sometimes.is_some()),
            ("always", self.always.is_some()),
            ("ratio_of", self.ratio_of.is_some()),
            ("to", self.to.is_some()),
            ("limit", self.limit.is_some()),
            ("baselines", self.baselines.is_some()),
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

    /// Checks that the table has the keys of one condition.
    fn check_keys(&self) -> Result<(), String> {
        let keys = self.keys();
        let kind = KINDS.iter().find(|(kind, _)| keys.contains(kind));
        let (name, takes) = kind.map_or(("a value", VALUE), |(kind, takes)| (*kind, *takes));
        match keys.iter().find(|key| **key != name && !takes.contains(key)) {
            Some(key) if takes.is_empty() => Err(format!("{name} takes no '{key}'; remove it")),
            Some(key) => Err(format!("{name} takes no '{key}', only {}", takes.join(", "))),
            None => Ok(()),
        }
    }

    fn kind(self) -> Result<Condition, String> {
        let inside =
            |outside: Outside| Bounds::new_named(outside.below, outside.above, ["below", "above"]);
        if let Some(outside) = self.never {
            return inside(outside).map(Condition::EverySample);
        }
        if let Some(outside) = self.sometimes {
            return inside(outside).map(Condition::SomeSample);
        }
        if let Some(Always { at_least, at_most }) = self.always {
            return Bounds::new(at_least, at_most).map(Condition::EverySample);
        }
        let along = || self.along.clone().ok_or("'along' is missing; name a factor");
        if let Some(of) = self.ratio_of {
            let to = self.to.ok_or("'ratio_of' requires 'to', the points of the denominator")?;
            let bounds = Bounds::new(self.at_least, self.at_most)?;
            if [bounds.at_least, bounds.at_most].into_iter().flatten().any(|b| b <= 0.0) {
                return Err("the bound of a ratio must be above 0".into());
            }
            if self.limit.is_some() && bounds.at_least.is_none() {
                return Err(
                    "'limit' requires 'at_least', the bound that the machine may not permit".into(),
                );
            }
            let (limit, baselines) = (self.limit, self.baselines);
            if let (Some(_), Some(_)) = (&limit, &baselines) {
                return Err("'limit' and 'baselines' exclude each other; remove one".into());
            }
            let many = |one: &Filter| one.0.keys().find(|factor| !one.fixes(factor)).cloned();
            if let Some(factor) = baselines.iter().flatten().find_map(many) {
                return Err(format!("'baselines' requires a single level of '{factor}'"));
            }
            return Ok(Condition::Ratio { of, to, bounds, limit, baselines });
        }
        if let Some(ranking) = self.ranking {
            if ranking.len() < 2 {
                return Err("'ranking' requires two filters or more, the best first".into());
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
        let not_negative = |name: &str, max: f64| match max.is_finite() && max >= 0.0 {
            true => Ok(max),
            false => Err(format!("'{name}' must be 0 or more")),
        };
        if let Some(max) = self.twins_differ_at_most {
            return not_negative("twins_differ_at_most", max).map(Condition::TwinsDifferAtMost);
        }
        if let Some(Share(max)) = self.rounds_differ_at_most {
            return Ok(Condition::RoundsDifferAtMost(max, SpreadUnit::Share));
        }
        if let Some(max) = self.rounds_differ_at_most_steps {
            let max = not_negative("rounds_differ_at_most_steps", max);
            return max.map(|max| Condition::RoundsDifferAtMost(max, SpreadUnit::Steps));
        }
        Bounds::new(self.at_least, self.at_most).map(Condition::Value)
    }
}

impl Trend {
    fn check(self, beyond: Option<&Level>, within: Option<f64>) -> Result<(), String> {
        let bounded = matches!(self, Self::Flat | Self::Saturates);
        if bounded != within.is_some() {
            let verb = if bounded { "requires" } else { "takes no" };
            return Err(format!("this shape {verb} 'within', e.g. \"10%\""));
        }
        if (self == Self::Saturates) != beyond.is_some() {
            let verb = if self == Self::Saturates { "requires" } else { "takes no" };
            return Err(format!("this shape {verb} 'beyond', a level"));
        }
        match beyond.map(Level::number) {
            Some(None) => Err("'beyond' must be a number or a number of bytes".into()),
            _ => Ok(()),
        }
    }
}

impl Bounds {
    /// Returns whether a value is within the bounds.
    pub(crate) fn includes(&self, value: f64) -> bool {
        self.excess(value) <= 0.0
    }

    /// Returns the distance of a value outside the bounds to them; negative inside.
    pub(super) fn excess(&self, value: f64) -> f64 {
        let below = self.at_least.map(|low| low - value);
        let above = self.at_most.map(|high| value - high);
        [below, above].into_iter().flatten().fold(f64::NEG_INFINITY, f64::max)
    }

    fn new(at_least: Option<f64>, at_most: Option<f64>) -> Result<Self, String> {
        Self::new_named(at_least, at_most, ["at_least", "at_most"])
    }

    /// Checks bounds; `keys` names the lower and the upper one in errors.
    fn new_named(
        at_least: Option<f64>,
        at_most: Option<f64>,
        [lower, upper]: [&str; 2],
    ) -> Result<Self, String> {
        let finite = [at_least, at_most].into_iter().flatten().all(f64::is_finite);
        match (at_least, at_most) {
            (None, None) => Err(format!("'{lower}' or '{upper}' is missing")),
            _ if !finite => Err("a bound must be a finite number".into()),
            (Some(low), Some(high)) if low > high => {
                Err(format!("'{lower}' {low} is above '{upper}' {high}"))
            }
            _ => Ok(Self { at_least, at_most }),
        }
    }
}
