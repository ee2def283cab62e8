//! As many copies of a form and of a blocker as take about as long, mixed evenly.

/// The most copies of the one for one of the other.
const MOST: f64 = 24.0;
/// Copies of both in a loop, at most.
const COPIES: usize = 120;

/// As many copies of a form and of a blocker as take about as long.
pub(super) struct Mixture {
    forms: usize,
    blockers: usize,
    /// Core cycles of the slower of the two parts alone, and of the faster.
    longer: f64,
    shorter: f64,
}

impl Mixture {
    /// Of two that take so many core cycles a copy alone.
    pub(super) fn new(alone: f64, other: f64) -> Self {
        let ratio = (alone / other).clamp(1.0 / MOST, MOST);
        let (forms, blockers) = match ratio >= 1.0 {
            true => (1, ratio.round() as usize),
            false => (ratio.recip().round() as usize, 1),
        };
        let (own, others) = (forms as f64 * alone, blockers as f64 * other);
        Self { forms, blockers, longer: own.max(others), shorter: own.min(others) }
    }

    /// The mixture with these copies of the blocker, or of what stands in its place.
    pub(super) fn unit<'a>(&self, copies: &'a [Vec<u8>]) -> Unit<'a> {
        Unit { forms: self.forms, blockers: self.blockers, copies }
    }

    /// How often the unit is run through in a loop that may have so many instructions.
    pub(super) fn times(&self, fits: usize) -> usize {
        times(self.forms + self.blockers, fits)
    }

    /// 0 where both together take as long as the slower alone, 1 where as long as one after the other.
    pub(super) fn hindered(&self, cycles: f64) -> f64 {
        ((cycles - self.longer) / self.shorter).clamp(0.0, 1.0)
    }
}

/// How often so many copies are run through in a loop that may have so many instructions: an even number.
pub(super) fn times(copies: usize, fits: usize) -> usize {
    (COPIES.min(fits) / copies / 2 * 2).max(2)
}

/// So many copies of a form and so many of something else.
pub(super) struct Unit<'a> {
    pub(super) forms: usize,
    pub(super) blockers: usize,
    pub(super) copies: &'a [Vec<u8>],
}

impl Unit<'_> {
    /// The unit so many times, its two parts mixed evenly.
    pub(super) fn code(&self, forms: &[Vec<u8>], times: usize) -> Vec<u8> {
        let mut own = forms.iter().cycle();
        let mut others = self.copies.iter().cycle();
        let (mut code, mut due) = (Vec::new(), 0);
        for _ in 0..self.forms * times {
            code.extend(own.next().into_iter().flatten());
            due += self.blockers;
            while due >= self.forms {
                due -= self.forms;
                code.extend(others.next().into_iter().flatten());
            }
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_as_long_as_both_shares_all() {
        let mixture = Mixture::new(3.0, 0.5);
        assert_eq!((mixture.forms, mixture.blockers), (1, 6));
        assert!((mixture.hindered(6.0) - 1.0).abs() < 1e-9);
        assert!(mixture.hindered(2.9) < 1e-9 && (mixture.hindered(4.5) - 0.5).abs() < 1e-9);
        assert_eq!(Mixture::new(0.25, 1.0).forms, 4);
    }

    #[test]
    fn a_loop_is_as_long_as_fits_and_can_be_halved() {
        assert_eq!([times(1, 1000), times(1, 48), times(7, 1000), times(25, 48)], [120, 48, 16, 2]);
    }

    #[test]
    fn parts_are_mixed_evenly() {
        let other = [vec![2]];
        let unit = |forms, blockers| Unit { forms, blockers, copies: &other };
        assert_eq!(unit(1, 2).code(&[vec![1]], 2), [1, 2, 2, 1, 2, 2]);
        assert_eq!(unit(2, 1).code(&[vec![1]], 2), [1, 1, 2, 1, 1, 2]);
        assert_eq!(unit(1, 0).code(&[vec![1], vec![3]], 3), [1, 3, 1]);
    }
}
