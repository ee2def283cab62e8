//! Filling of headlines: the numbers of a run for their slots.

use std::collections::BTreeMap;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::slot::{SlotKind, point};
use super::{Headline, Part, Slot, parts};
use crate::claim::Bounds;
use crate::format;
use crate::journal::Run;
use crate::point::{Filter, Point};
use crate::sample::Sample;
use crate::statistics::{
    CONFIDENCE, INTERVAL_ROUNDS, Interval, IntervalKind, NoiseFloor, OpenEnd, Ratio, Resolution,
    resolve,
};
use crate::summary::{Limit, Rounds, Samples, Summary, Unit, alike, pairs, summarise};

/// Maximum half-width of a number in a headline, as a share of it. A wider interval has no digit to
/// quote.
const MAX_HALF_WIDTH: f64 = 0.25;

/// A headline with the numbers of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Filled {
    /// ID of the headline.
    pub id: String,
    /// Suite of its experiment.
    pub suite: String,
    /// The sentence.
    pub sentence: String,
}

/// Returns a headline with the numbers of a run; `None` if no sentence has a value for every slot.
///
/// A slot has a value if at least 6 rounds gave one, and at most 10% of the rounds of each of its points failed. Half
/// of its 95% interval must be at most 25% of it, except for a number of rounds; a ratio must also be resolved. A value
/// whose rounds are too correlated for an interval has their range in its place; a ratio of such rounds is none. Rounds
/// with near and with far cores are not mixed: the sentence is about those of which there are more, and names them.
pub fn fill(headline: &Headline, run: &Run) -> Option<Filled> {
    let slots: BTreeMap<&str, Source> = headline
        .slots
        .iter()
        .filter_map(|(name, slot)| Some((name.as_str(), Source::of(headline, slot, run)?)))
        .collect();
    let mut classes: BTreeMap<Class, usize> = BTreeMap::new();
    for class in slots.values().flat_map(Source::classes) {
        *classes.entry(class).or_default() += 1;
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, rounds)| std::cmp::Reverse(*rounds));
    let fill = |class: Option<Class>| {
        headline.says.iter().find_map(|sentence| filled(sentence, &slots, class))
    };
    let sentence = match classes.as_slice() {
        [] => fill(None)?,
        classes => classes.iter().find_map(|(class, _)| {
            Some(format!("{} ({} cores)", fill(Some(*class))?, class.name()))
        })?,
    };
    Some(Filled { id: headline.id.clone(), suite: headline.suite().into(), sentence })
}

/// Returns the number of rounds of a headline so far, in one state of the core: of the sentence whose slots have the most,
/// the smallest number of any of its points.
pub fn rounds(headline: &Headline, run: &Run) -> usize {
    let of_slot = |name: &str| {
        let source = headline.slots.get(name).and_then(|slot| Source::of(headline, slot, run));
        source.map_or(0, |source| source.rounds())
    };
    let of_sentence = |sentence: &String| {
        let slots = parts(sentence).unwrap_or_default().into_iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Slot(name) => Some(of_slot(name)),
        });
        slots.min()
    };
    headline.says.iter().filter_map(of_sentence).max().unwrap_or_default()
}

/// Returns a sentence with its slots filled; `None` if one of them has no value.
fn filled(sentence: &str, slots: &BTreeMap<&str, Source>, class: Option<Class>) -> Option<String> {
    let text = |part| match part {
        Part::Text(text) => Some(text.to_owned()),
        Part::Slot(name) => slots.get(name)?.text(class),
    };
    parts(sentence).ok()?.into_iter().map(text).collect()
}

/// Returns the text of a value, or of the end of its interval beyond which it is, e.g. `at least 1.3`; `None` if both ends
/// are open.
fn bound(interval: &Interval, value: f64, text: impl Fn(f64) -> String) -> Option<String> {
    match interval.open_end() {
        None => Some(text(value)),
        Some(OpenEnd::High | OpenEnd::Low) => Some(format::ends(interval, text)),
        Some(OpenEnd::Both) => None,
    }
}

/// A slot with the values of its experiment and metric.
struct Source<'a> {
    kind: &'a SlotKind,
    summary: Summary,
    samples: Samples<'a>,
    metric: &'a str,
}

impl<'a> Source<'a> {
    fn of(headline: &'a Headline, slot: &'a Slot, run: &'a Run) -> Option<Self> {
        let experiment = headline.experiment_of(slot);
        let metric = slot.metric.as_deref()?;
        let summary = summarise(run, experiment, metric, Unit::Own).ok()?;
        let samples = Samples::newest(run, experiment)?;
        Some(Self { kind: &slot.kind, summary, samples, metric })
    }

    fn point(&self, filter: &Filter) -> Option<Point> {
        Some(point(filter, &self.samples.declared()?.baseline))
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        let filters = match self.kind {
            SlotKind::Value(of) | SlotKind::Every { of, .. } | SlotKind::Outside { of, .. } => {
                vec![of]
            }
            SlotKind::Ratio { of, to } | SlotKind::Share { of, to } => vec![of, to],
        };
        filters.into_iter().filter_map(|filter| self.point(filter))
    }

    /// Returns the smallest number of rounds of its points in one state of the core.
    fn rounds(&self) -> usize {
        let of_point = |point: Point| {
            let rounds = self.summary.observed.points.get(&point);
            rounds.map_or(0, |rounds| alike(rounds).len())
        };
        self.points().map(of_point).min().unwrap_or_default()
    }

    /// Returns the class of each round of its points.
    fn classes(&self) -> Vec<Class> {
        let points = self.points();
        let rounds = points.filter_map(|point| self.summary.observed.points.get(&point));
        rounds.flat_map(Rounds::values).filter_map(|one| one.class).collect()
    }

    /// Returns its number as text, of the rounds with a class; `None` if too many rounds of one of its points failed.
    fn text(&self, class: Option<Class>) -> Option<String> {
        let mut points = self.points();
        if points.any(|point| self.samples.round_counts(&[&point], false).fails_too_often()) {
            return None;
        }
        match self.kind {
            SlotKind::Value(filter) => self.value(&self.point(filter)?, class),
            SlotKind::Ratio { of, to } => self.ratio(of, to, class),
            SlotKind::Share { of, to } => self.share(of, to, class),
            SlotKind::Every { of, bounds } => self.every(&self.point(of)?, bounds, class),
            SlotKind::Outside { of, bounds } => self.outside(&self.point(of)?, bounds, class),
        }
    }

    /// Returns the values of a point in the rounds of a class, as far as their class is known.
    fn observed(&self, point: &Point, class: Option<Class>) -> Option<Rounds> {
        let mut rounds = self.summary.observed.points.get(point)?.clone();
        rounds.retain(|_, one| one.class.is_none_or(|it| class.is_none_or(|class| it == class)));
        Some(rounds)
    }

    fn value(&self, point: &Point, class: Option<Class>) -> Option<String> {
        let row = self.summary.rows.iter().find(|row| row.point == *point)?;
        let all = self.summary.observed.points.get(point)?.len();
        let estimate = match class {
            Some(class) if !row.by_class.is_empty() => row.by_class.get(&class),
            // All of its rounds are of another class.
            Some(_) if self.observed(point, class)?.len() < all => None,
            _ => row.estimate.as_ref(),
        };
        let estimate = estimate.filter(|one| one.rounds >= INTERVAL_ROUNDS)?;
        let half = estimate.relative_half_width();
        if half > MAX_HALF_WIDTH {
            return None;
        }
        let of_half = Some(half * estimate.median.abs());
        let text = |value: f64| format::value(value, of_half, &self.summary.record.unit);
        let value = bound(&estimate.interval, estimate.median, text)?;
        Some(match (estimate.interval.kind, estimate.interval.open_end()) {
            (IntervalKind::Confidence, None) => format!("{value} {}", format::half_width(half)),
            (_, Some(_)) => value,
            (IntervalKind::Range | IntervalKind::Single, None) => {
                format!("{value} ({})", format::ends(&estimate.interval, text))
            }
        })
    }

    /// Returns a ratio with its noise floor, if it is precise enough.
    fn paired(
        &self,
        of: &Filter,
        to: &Filter,
        class: Option<Class>,
    ) -> Option<(Ratio, Option<&NoiseFloor>)> {
        let (above, below) = (self.point(of)?, self.point(to)?);
        let pairs = pairs(&self.observed(&above, class)?, &self.observed(&below, class)?);
        let ratio = pairs.ratio().ok()?.widened_if_correlated(CONFIDENCE);
        let is_known = ratio.interval.kind == IntervalKind::Confidence
            && ratio.relative_half_width() <= MAX_HALF_WIDTH;
        is_known.then(|| (ratio, self.summary.floors.near(&[&above, &below], pairs.state)))
    }

    fn ratio(&self, of: &Filter, to: &Filter, class: Option<Class>) -> Option<String> {
        let (ratio, floor) = self.paired(of, to, class)?;
        // Three digits at most.
        let half = ratio.relative_half_width().max(0.005) * ratio.ratio;
        let is_higher = resolve(&ratio, floor) == Resolution::Higher;
        let text = |ratio| format::value(ratio, Some(half), "1");
        bound(&ratio.interval, ratio.ratio, text).filter(|_| is_higher)
    }

    fn share(&self, of: &Filter, to: &Filter, class: Option<Class>) -> Option<String> {
        let (Ratio { ratio, interval, .. }, _) = self.paired(of, to, class)?;
        let value = bound(&interval, ratio, format::percent)?;
        Some(match interval.open_end() {
            Some(_) => value,
            None => format!("{value} ({})", format::ends(&interval, format::percent)),
        })
    }

    /// Returns the number of valid rounds of a class if every sample of the point is within bounds,
    /// void ones and those of other classes included.
    fn every(&self, point: &Point, bounds: &Bounds, class: Option<Class>) -> Option<String> {
        let value = |sample: &Sample| sample.values.get(self.metric).copied();
        let of_point = || self.samples.all().filter(|sample| sample.point == *point);
        let failed = of_point()
            .any(|sample| sample.error.is_some() || sample.is_valid() && value(sample).is_none());
        if failed || !of_point().filter_map(value).all(|value| bounds.includes(value)) {
            return None;
        }
        let rounds = self.samples.rounds(point, false);
        let rounds =
            rounds.filter(|(_, sample)| sample.is_valid() && self.may_be_of(sample, class)).count();
        (rounds >= INTERVAL_ROUNDS).then(|| format::count(rounds, "round"))
    }

    /// Returns how many of the samples of a class are not within bounds, if any is not; without those of which this is
    /// unknown.
    fn outside(&self, point: &Point, bounds: &Bounds, class: Option<Class>) -> Option<String> {
        let of_point = self.samples.all().filter(|sample| sample.point == *point);
        let of_class = of_point.filter(|sample| self.may_be_of(sample, class));
        let is_outside = |sample: &Sample| {
            let is_outside = !bounds.includes(*sample.values.get(self.metric)?);
            // If the instrument or the search limited the value, the true one may be within.
            (!is_outside || Limit::of(sample, self.metric).is_none()).then_some(is_outside)
        };
        let is_outside: Vec<bool> = of_class.filter_map(is_outside).collect();
        let (count, all) = (is_outside.iter().filter(|it| **it).count(), is_outside.len());
        let is_known = count > 0 && all >= INTERVAL_ROUNDS;
        is_known.then(|| format!("{count} of {}", format::count(all, "sample")))
    }

    /// Returns whether a sample is of a class, as far as its class is known.
    fn may_be_of(&self, sample: &Sample, class: Option<Class>) -> bool {
        let of = self.samples.class(sample);
        of.is_none_or(|of| class.is_none_or(|class| of == class))
    }
}
