//! The condition of a claim in words, for claims whose source states no single value.

use lab::claim::{Condition, Expect, Quantifier, SpreadUnit, Trend};
use lab::format::precise;
use lab::point::Filter;

use super::statistic::limits;

/// Returns a condition in words: `function=naive over function=glibc: at least 1.64`. Values are in `unit`.
pub(super) fn condition(expect: &Expect, unit: &str) -> String {
    let text = match &expect.kind {
        Condition::Value(bounds) => limits(bounds, unit),
        Condition::EverySample(bounds) => format!("every sample {}", limits(bounds, unit)),
        Condition::SomeSample(bounds) => format!("some sample not {}", limits(bounds, unit)),
        Condition::Ratio { of, to, bounds, baselines, .. } => {
            let relative = match baselines {
                Some(_) => ", each relative to its baseline",
                None => "",
            };
            format!("{} over {}{relative}: {}", best(of), best(to), limits(bounds, "1"))
        }
        Condition::Ranking(ranked) => {
            ranked.iter().map(best).collect::<Vec<_>>().join(" better than ")
        }
        Condition::WinnerChanges { factor, along } => {
            format!("no {factor} is the best at every {along}")
        }
        Condition::Shape { form, along, beyond, within } => {
            let within = within.map(|share| format!(" within {}", precise(share, "share")));
            let within = within.unwrap_or_default();
            match (form, beyond) {
                (Trend::Rises, _) => format!("rises along {along}"),
                (Trend::Falls, _) => format!("falls along {along}"),
                (Trend::Flat, _) => format!("equal{within} along {along}"),
                (Trend::Saturates, Some(level)) => {
                    format!("improves along {along} up to {level}, then equal{within}")
                }
                (Trend::Saturates, None) => format!("improves along {along}, then equal{within}"),
            }
        }
        Condition::TwinsDifferAtMost(value) => {
            format!("twins differ by at most {}", precise(*value, unit))
        }
        Condition::RoundsDifferAtMost(value, SpreadUnit::Steps) => {
            let steps = match value {
                1.0 => "1 step".to_owned(),
                steps => format!("{} steps", precise(*steps, "1")),
            };
            format!(
                "the middle half of the rounds on an idle core at most {steps} of the counter wide"
            )
        }
        Condition::RoundsDifferAtMost(value, SpreadUnit::Share) => {
            let share = precise(*value, "share");
            format!(
                "the middle half of the rounds on an idle core at most {share} of the median wide"
            )
        }
    };
    let each = match expect.each.as_slice() {
        [] => String::new(),
        factors => format!(", for each {}", factors.join(" and ")),
    };
    let hold = match expect.hold {
        Quantifier::All => String::new(),
        Quantifier::Some => ", at one point or more".into(),
        Quantifier::Share(share) => format!(", at {} of the points", precise(share, "share")),
    };
    text + &each + &hold
}

/// Returns the points of a filter, of which the best counts if a factor has several levels.
fn best(filter: &Filter) -> String {
    let is_choice = filter.0.values().any(|levels| levels.levels().len() > 1);
    let best = if is_choice { "the best of " } else { "" };
    format!("{best}{}", levels(filter))
}

/// Returns the levels of a filter: `function=naive mode=fixed or jobs`.
fn levels(filter: &Filter) -> String {
    let of = |(factor, levels): (&String, &lab::point::OneOrMany)| {
        let levels: Vec<_> = levels.levels().iter().map(ToString::to_string).collect();
        format!("{factor}={}", levels.join(" or "))
    };
    match filter.0.is_empty() {
        true => "all".into(),
        false => filter.0.iter().map(of).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(toml: &str) -> String {
        condition(&toml::from_str(toml).unwrap(), "ns")
    }

    #[test]
    fn every_kind_of_condition_is_stated() {
        for (toml, expected) in [
            ("at_most = 80.0", "at most 80 ns"),
            ("never = { above = 0.0 }", "every sample at most 0 ns"),
            ("sometimes = { above = 3.0 }", "some sample not at most 3 ns"),
            (
                "ratio_of = { function = 'naive' }\nto = { function = ['glibc', 'apex'] }\n\
                 at_least = 1.5\nat_most = 1.7\neach = ['length']",
                "function=naive over the best of function=glibc or apex: at least 1.5 and at most 1.7, for each length",
            ),
            (
                "ranking = [{ by = 'a' }, { by = 'b' }]\nhold = 'some'",
                "by=a better than by=b, at one point or more",
            ),
            (
                "winner_changes = 'function'\nalong = 'length'",
                "no function is the best at every length",
            ),
            ("shape = 'rises'\nalong = 'load'", "rises along load"),
            ("shape = 'flat'\nalong = 'load'\nwithin = '5%'", "equal within 5% along load"),
            (
                "shape = 'saturates'\nalong = 'pipes'\nbeyond = '2'\nwithin = '10%'\nhold = '95%'",
                "improves along pipes up to 2, then equal within 10%, at 95% of the points",
            ),
            ("twins_differ_at_most = 2.0", "twins differ by at most 2 ns"),
            (
                "rounds_differ_at_most_steps = 1.0",
                "the middle half of the rounds on an idle core at most 1 step of the counter wide",
            ),
        ] {
            assert_eq!(of(toml), expected, "{toml}");
        }
    }
}
