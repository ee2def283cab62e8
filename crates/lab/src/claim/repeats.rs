//! Whether the rounds of a point repeat: how far their middle half spreads, as a share of their median.

use super::evidence::Evidence;
use super::steps::{NEVER_IDLE, is_idle};
use super::verdict::{Judgement, MeasuredValue, NoVerdict};
use super::{VerdictKind, words};
use crate::point::Point;
use crate::statistics::median;

impl Evidence<'_> {
    /// One outcome for each point, from its rounds on an idle core.
    pub(super) fn judge_repeats(&self, most: f64) -> Vec<Judgement> {
        let outcome = |point| Judgement::of_all(vec![self.repeats_part(point, most)]);
        self.known.iter().map(outcome).collect()
    }

    fn repeats_part(&self, point: &Point, most: f64) -> MeasuredValue {
        let label = self.label(point);
        let Some(rounds) = self.observed.points.get(point) else {
            return MeasuredValue::nothing(label, self.lack_of(point));
        };
        let idle = |round: u32| self.sample(point, round).is_some_and(is_idle);
        let values = rounds.iter().filter(|(round, _)| idle(**round)).map(|(_, one)| one.value);
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let Some(middle) = median(&values) else {
            return MeasuredValue::nothing(label, NoVerdict::inconclusive(NEVER_IDLE));
        };
        if middle == 0.0 {
            let why = "the median is 0, and a spread is a share of the median; \
                       choose a metric that is above 0";
            return MeasuredValue::nothing(label, NoVerdict::inconclusive(why));
        }
        let quarter = values.len() / 4;
        let spread = ((values[values.len() - 1 - quarter] - values[quarter]) / middle).abs();
        let kind = match spread <= most {
            true => VerdictKind::Reproduced,
            false => VerdictKind::Contradicted,
        };
        let why = format!(
            "the middle half of {} on an idle core (of {}) spreads by {}, claimed at most {}",
            words::rounds(values.len()),
            rounds.len(),
            words::percent(spread),
            words::percent(most),
        );
        let (kind, why) = self.enough(kind, values.len(), why);
        MeasuredValue {
            label,
            value: Some(spread),
            interval: None,
            unit: "share".into(),
            rounds: values.len(),
            lost: rounds.len() - values.len(),
            kind,
            why,
        }
    }
}
