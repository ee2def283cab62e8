//! The loads of a search: rungs from the least to the largest, each the same share above the one below.

/// Rungs at equal ratios. Goals that meet on a rung share its trials.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadGrid {
    least: f64,
    largest: f64,
    /// The number of the top rung; the lowest is 0.
    pub(super) top: i64,
}

impl LoadGrid {
    /// Rungs at most `width` of the upper one apart.
    pub(super) fn new(least: f64, largest: f64, width: f64) -> Self {
        let top = ((largest / least).ln() / -(-width).ln_1p()).ceil();
        Self { least, largest, top: top as i64 }
    }

    /// The load of a rung; the ends are exact.
    pub(super) fn load(&self, rung: i64) -> f64 {
        match rung {
            0 if self.top > 0 => self.least,
            rung if rung == self.top => self.largest,
            rung => self.least * (self.largest / self.least).powf(rung as f64 / self.top as f64),
        }
    }

    /// The rung of a load as [`Self::load`] gave it; of any other the next below, clamped to the ladder.
    pub(super) fn rung(&self, load: f64) -> i64 {
        if self.top == 0 {
            return 0;
        }
        let place = (load / self.least).ln() / (self.largest / self.least).ln() * self.top as f64;
        ((place + 1e-3).floor() as i64).clamp(0, self.top)
    }

    /// How many rungs apart two loads may be to be no more than `width` of the upper one apart; at least 1.
    pub(super) fn rungs(&self, width: f64) -> i64 {
        let rung = (self.largest / self.least).ln() / self.top.max(1) as f64;
        ((-(-width).ln_1p() / rung + 1e-9).floor() as i64).clamp(1, self.top + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rungs_are_narrow_and_come_back(
            least in 0.1f64..100.0, factor in 1.0f64..1e5, width in 0.001f64..0.5,
        ) {
            let ladder = LoadGrid::new(least, least * factor, width);
            prop_assert_eq!(ladder.load(ladder.top), least * factor);
            prop_assert!(ladder.load(0) == least || ladder.top == 0);
            for rung in 0..=ladder.top {
                prop_assert_eq!(ladder.rung(ladder.load(rung)), rung);
            }
            for rung in 1..=ladder.top {
                let (below, load) = (ladder.load(rung - 1), ladder.load(rung));
                prop_assert!(below < load && (load - below) / load <= width * 1.000_001);
            }
        }

        #[test]
        fn a_wider_width_is_as_many_rungs_as_fit(width in 0.001f64..0.1, times in 1.0f64..9.0) {
            let ladder = LoadGrid::new(1.0, 1000.0, width);
            let wide = width * times;
            let rungs = ladder.rungs(wide);
            let apart = |rungs| 1.0 - ladder.load(ladder.top - rungs) / ladder.load(ladder.top);
            prop_assert!(apart(rungs) <= wide * 1.000_001 && apart(rungs + 1) > wide);
        }
    }
}
