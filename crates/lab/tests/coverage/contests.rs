//! Contests of equal points and of one that is better, and alarms of equal twins.

use lab::metric::Better;
use lab::point::Point;
use lab::statistics::Censored;
use lab::summary::{Contest, Floors, Observation, Observed, Rounds};

use crate::{BASE, CHANGED, POINTS, REPLICATIONS, TWIN, seeds, share, spread_rounds};

/// The simulated points as the summary of an experiment has them.
struct Simulated {
    levels: Vec<(Point, Rounds)>,
    twins: Observed,
}

fn name(point: usize) -> Point {
    Point::from([("level", point.to_string().as_str())])
}

impl Simulated {
    fn new(values: Vec<Vec<f64>>) -> Self {
        let observed = |values: &Vec<f64>| -> Rounds {
            let one = |value: &f64| Observation {
                value: *value,
                resolution: 0.0,
                class: None,
                session: 1,
                sharing: None,
                censored: Censored::default(),
            };
            (0u32..).zip(values.iter().map(one)).collect()
        };
        let all: Vec<_> = (0..POINTS).map(|at| (name(at), observed(&values[at]))).collect();
        let of = |point: usize| [(name(BASE), all[point].1.clone())].into();
        let twins = Observed { points: of(BASE), twins: of(TWIN), ..Observed::default() };
        let levels = all.into_iter().filter(|(point, _)| *point != name(TWIN)).collect();
        Self { levels, twins }
    }

    /// Compares the levels, of which the highest is the best.
    fn contest(&self) -> Contest<'_> {
        let levels = self.levels.iter().map(|(point, rounds)| (point, rounds)).collect();
        let floors = Floors::of(&self.twins);
        Contest::all(&[levels], Better::Higher, &floors).unwrap().remove(0)
    }
}

/// A best level of equal ones is false, and so is an alarm of equal twins.
#[test]
fn equal_levels_rarely_have_a_best_one() {
    for rounds in [6, 10, 20] {
        let (mut stars, mut eliminated, mut alarms, mut found) = (0, 0, 0, 0);
        for seed in seeds(0.7) {
            let equal = Simulated::new(spread_rounds(0.0, rounds, 0, seed));
            let contest = equal.contest();
            stars += usize::from(contest.best().is_some());
            eliminated += usize::from(contest.candidates().count() < equal.levels.len());
            alarms += usize::from(!equal.twins.twin_ratios()[0].1.interval.includes(1.0));
            let unequal = Simulated::new(spread_rounds(0.2, rounds, 0, seed));
            found += usize::from(unequal.contest().best() == Some(&name(CHANGED)));
        }
        let [stars, eliminated, alarms, found] =
            [stars, eliminated, alarms, found].map(|count| share(count, REPLICATIONS as usize));
        println!(
            "{rounds:2} rounds of 7 equal levels: a best one in {:.1}%, one excluded in {:.1}%, twin alarm in {:.1}%; if one is 20% better, it is found in {:.1}%",
            stars * 100.0,
            eliminated * 100.0,
            alarms * 100.0,
            found * 100.0
        );
        assert!(stars <= 0.05 && eliminated <= 0.05, "{rounds}: {stars} {eliminated}");
        assert!(alarms <= 0.065, "{rounds}: {alarms}");
        assert!(rounds < 20 || found > 0.7, "{rounds}: {found}");
    }
}
