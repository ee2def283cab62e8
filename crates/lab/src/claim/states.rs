//! States of the core in which points are compared, within rounds and between boots.

use super::evidence::Evidence;
use super::ratio::Step;
use super::reason::{NoVerdict, Reason};
use crate::point::Point;
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{INTERVAL_ROUNDS, Ratio, median, unpaired_ratio};
use crate::summary::{Pairing, Rounds, in_state, state_counts};

/// States of the core in which some points are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct States {
    /// That of points of one session; `None` if it may be any.
    pub(super) within_rounds: Option<Sharing>,
    /// That of points that different boots measured.
    pub(super) between_boots: Sharing,
}

impl Evidence<'_> {
    /// Returns the states of the core in which all of some pairs of points are judged.
    pub(super) fn states(&self, pairs: &[(Step, Step)]) -> States {
        let counts = |(above, below): &(Step, Step)| Pairing::of(above.1, below.1).counts();
        let within_rounds = Sharing::chosen(&pairs.iter().map(counts).collect::<Vec<_>>());
        let boots = |(point, _): &Step| -> Option<SharingCounts> {
            let count = |state: Sharing| {
                let has_some = |rounds: &&Rounds| state_counts(rounds).of(state) > 0;
                Some(self.observed.boots.get(*point)?.iter().filter(has_some).count())
            };
            let [alone, shared] = [count(Sharing::Alone)?, count(Sharing::Shared)?];
            Some(SharingCounts { alone, shared, changed: 0 })
        };
        let boots: Vec<_> =
            pairs.iter().flat_map(|(above, below)| [above, below]).filter_map(boots).collect();
        let between_boots = Sharing::chosen(&boots).unwrap_or(Sharing::Alone);
        States { within_rounds, between_boots }
    }

    /// Returns the ratio of two points that no session measured together because a factor is chosen at boot; `None` for
    /// other points. All rounds of a boot share its state, so each boot counts as one value, and boots are not paired.
    /// The rounds of all boots are of one state of the core.
    pub(super) fn between_boots(
        &self,
        above: Step,
        below: Step,
        state: Sharing,
    ) -> Result<Option<Ratio>, NoVerdict> {
        let medians = |point: &Point| -> Option<Vec<f64>> {
            let of_boot = |rounds: &Rounds| {
                let rounds = in_state(rounds, Some(state));
                median(&rounds.values().map(|one| one.value).collect::<Vec<_>>())
            };
            Some(self.observed.boots.get(point)?.iter().filter_map(of_boot).collect())
        };
        let (Some(numerator), Some(denominator)) = (medians(above.0), medians(below.0)) else {
            return Ok(None);
        };
        if Pairing::of(above.1, below.1).counts().total() > 0 {
            return Ok(None);
        }
        let needed = INTERVAL_ROUNDS;
        let boots = [numerator.len(), denominator.len()];
        if boots.iter().any(|boots| *boots < needed) {
            return Err(Reason::TooFewBoots { boots, needed }.into());
        }
        let ratio = unpaired_ratio(&numerator, &denominator);
        ratio.map(Some).map_err(|error| Reason::NotSummarised { error }.into())
    }
}
