//! Noise floors: what the machine makes of no difference, near the points that have twins.

use serde::Serialize;

use super::Observed;
use crate::point::Point;
use crate::statistics::NoiseFloor;

/// The noise floors of an experiment, one for each pair of twins. Copies of 16 B and of 256 MiB
/// differ from themselves by very different shares, so no one floor stands for all points.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Floors(Vec<(Point, NoiseFloor)>);

impl Floors {
    /// The floors of all twins that have values.
    pub fn of(observed: &Observed) -> Self {
        let floor = |(point, ratio)| Some((point, NoiseFloor::from_twins(&[ratio])?));
        Self(observed.twin_ratios().into_iter().filter_map(floor).collect())
    }

    /// The floor for comparing these points: that of the nearest twins, which differ from one of
    /// them in the fewest factors; of equally near ones, the highest. Nothing without twins.
    pub fn near(&self, points: &[&Point]) -> Option<&NoiseFloor> {
        let distance = |twin: &Point| points.iter().map(|point| twin.differing(point)).min();
        let nearest = self.0.iter().map(|(twin, _)| distance(twin)).min()?;
        let near = self.0.iter().filter(|(twin, _)| distance(twin) == nearest);
        near.map(|(_, floor)| floor).max_by(|a, b| a.floor.total_cmp(&b.floor))
    }

    /// The lowest and the highest floor.
    pub fn span(&self) -> Option<(&NoiseFloor, &NoiseFloor)> {
        let floors = || self.0.iter().map(|(_, floor)| floor);
        let lowest = floors().min_by(|a, b| a.floor.total_cmp(&b.floor))?;
        Some((lowest, floors().max_by(|a, b| a.floor.total_cmp(&b.floor))?))
    }

    /// The floors of two runs together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::paired_ratio;

    fn floor(share: f64) -> NoiseFloor {
        let pairs: Vec<_> = (0..20).map(|_| (1.0 + share, 1.0)).collect();
        NoiseFloor::from_twins(&[paired_ratio(&pairs, 0).unwrap()]).unwrap()
    }

    #[test]
    fn the_nearest_twins_give_the_floor() {
        let at = |length: &str, function: &str| {
            Point::from([("length", length), ("function", function)])
        };
        let floors =
            Floors(vec![(at("16 B", "glibc"), floor(0.01)), (at("1 MiB", "glibc"), floor(0.5))]);
        let near = |point: &Point| floors.near(&[point]).unwrap().floor;
        assert!(near(&at("16 B", "ours")) < 0.02);
        assert!(near(&at("1 MiB", "ours")) > 0.3);
        // As far from both: the higher.
        assert!(near(&at("4 KiB", "glibc")) > 0.3);
        assert_eq!(Floors::default().near(&[&at("16 B", "glibc")]), None);
    }
}
