//! Mixtures of a form and a blocker: copies of both in numbers that take about the same time.

/// Maximum ratio of copies.
const MAX_RATIO: f64 = 24.0;
/// Maximum number of copies of both in a loop.
const MAX_COPIES: usize = 120;

/// Numbers of copies of a form and a blocker that take about the same time.
pub(super) struct Mixture {
    forms: usize,
    blockers: usize,
    /// Core cycles of the slower and of the faster part, each without the other.
    longer: f64,
    shorter: f64,
}

impl Mixture {
    /// Creates a mixture from the core cycles per copy of the form and of the blocker.
    pub(super) fn new(form: f64, blocker: f64) -> Self {
        let ratio = (form / blocker).clamp(1.0 / MAX_RATIO, MAX_RATIO);
        let (forms, blockers) = match ratio >= 1.0 {
            true => (1, ratio.round() as usize),
            false => (ratio.recip().round() as usize, 1),
        };
        let parts = (forms as f64 * form, blockers as f64 * blocker);
        Self { forms, blockers, longer: parts.0.max(parts.1), shorter: parts.0.min(parts.1) }
    }

    /// Returns the unit with these copies of the blocker or of its substitute.
    pub(super) fn unit<'a>(&self, copies: &'a [Vec<u8>]) -> Unit<'a> {
        Unit { forms: self.forms, blockers: self.blockers, copies }
    }

    /// Returns how often the unit is repeated in a loop of at most `fits` instructions.
    pub(super) fn times(&self, fits: usize) -> usize {
        times(self.forms + self.blockers, fits)
    }

    /// Returns the slowdown: 0 if both together take as long as the slower one, 1 if they take the sum of both times.
    pub(super) fn slowdown(&self, cycles: f64) -> f64 {
        ((cycles - self.longer) / self.shorter).clamp(0.0, 1.0)
    }
}

/// Returns how often `copies` are repeated in a loop of at most `fits` instructions: an even number.
pub(super) fn times(copies: usize, fits: usize) -> usize {
    (MAX_COPIES.min(fits) / copies / 2 * 2).max(2)
}

/// Copies of a form and of a second instruction.
pub(super) struct Unit<'a> {
    pub(super) forms: usize,
    pub(super) blockers: usize,
    pub(super) copies: &'a [Vec<u8>],
}

impl Unit<'_> {
    /// Returns the code of `times` units with evenly interleaved parts.
    pub(super) fn code(&self, forms: &[Vec<u8>], times: usize) -> Vec<u8> {
        let mut forms = forms.iter().cycle();
        let mut others = self.copies.iter().cycle();
        let (mut code, mut credit) = (Vec::new(), 0);
        for _ in 0..self.forms * times {
            code.extend(forms.next().into_iter().flatten());
            credit += self.blockers;
            while credit >= self.forms {
                credit -= self.forms;
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
    fn the_slowdown_is_1_if_a_mixture_takes_the_sum_of_both_times() {
        let mixture = Mixture::new(3.0, 0.5);
        assert_eq!((mixture.forms, mixture.blockers), (1, 6));
        assert!((mixture.slowdown(6.0) - 1.0).abs() < 1e-9);
        assert!(mixture.slowdown(2.9) < 1e-9 && (mixture.slowdown(4.5) - 0.5).abs() < 1e-9);
        assert_eq!(Mixture::new(0.25, 1.0).forms, 4);
    }

    #[test]
    fn a_loop_fits_and_has_an_even_number_of_units() {
        assert_eq!([times(1, 1000), times(1, 48), times(7, 1000), times(25, 48)], [120, 48, 16, 2]);
    }

    #[test]
    fn parts_are_interleaved_evenly() {
        let other = [vec![2]];
        let unit = |forms, blockers| Unit { forms, blockers, copies: &other };
        assert_eq!(unit(1, 2).code(&[vec![1]], 2), [1, 2, 2, 1, 2, 2]);
        assert_eq!(unit(2, 1).code(&[vec![1]], 2), [1, 1, 2, 1, 1, 2]);
        assert_eq!(unit(1, 0).code(&[vec![1], vec![3]], 3), [1, 3, 1]);
    }
}
