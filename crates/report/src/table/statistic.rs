//! Measured values as text: the statistic of a claim, its interval, and the rounds that it is based on.

use std::collections::BTreeSet;

use lab::claim::{Bounds, MeasuredValue, Reason, Statistic, Violations};
use lab::format::{count, interval, precise};
use lab::statistics::LostRounds;
use machine::proximity::Class;

/// `12 rounds with near cores`
fn rounds(value: &MeasuredValue) -> String {
    count(value.rounds, "round") + with_cores(value)
}

/// ` with near cores`; empty for a value of a single core.
pub(crate) fn with_cores(value: &MeasuredValue) -> &'static str {
    match value.class {
        None => "",
        Some(Class::Same) => " on SMT siblings",
        Some(Class::Near) => " with near cores",
        Some(Class::Middle) => " with cores between near and far",
        Some(Class::Far) => " with far cores",
    }
}

/// `107 ns (106 ns to 109 ns)`
pub(crate) fn value_with_interval(value: &MeasuredValue) -> String {
    value.value.map_or_else(
        || "no value".into(),
        |centre| match &value.interval {
            Some(ends) => interval(centre, ends, &value.unit),
            None => precise(centre, &value.unit),
        },
    )
}

pub(super) fn statistic(value: &MeasuredValue, statistic: &Statistic) -> String {
    let (text, rounds) = (value_with_interval(value), rounds(value));
    match statistic {
        Statistic::Median { failed, void, other_sharing } => {
            let causes = [
                (*failed, "failed"),
                (*void, "void"),
                (*other_sharing, "with the core in another state"),
            ];
            format!("{text} over {rounds}{}", in_brackets(&lost_rounds(&causes)))
        }
        Statistic::Ratio { of_best, lost } => ratio(&text, *of_best, &rounds, lost),
        Statistic::BetweenBoots => {
            format!("{text}, at least {} of each side", count(value.rounds, "boot"))
        }
        Statistic::TwinDifference => format!("twins differ by {text} over {rounds}"),
        Statistic::Spread { step, recorded } => {
            let step = step.map(|step| format!(" of {}", precise(step, "ns"))).unwrap_or_default();
            format!(
                "the middle half of {rounds} on an idle core (of {recorded}) spans {text}{step}"
            )
        }
        Statistic::Violations { valid, void, upper_limit, points } => {
            violations(value, [valid, void], *upper_limit, points)
        }
        Statistic::Occurrences { valid: Violations { count: 0, of, .. }, upper_limit } => {
            let limit = precise(*upper_limit, "share");
            format!("in 0 of {of} samples, a rate of at most {limit} with 95% confidence")
        }
        Statistic::Occurrences { valid: Violations { count, of, .. }, .. } => {
            format!("in {count} of {of} samples")
        }
        Statistic::Best { at, candidates } => {
            format!("{}, {text}, {rounds}", contest(at, candidates))
        }
    }
}

/// `1.02 (1.01 to 1.03), 20 rounds`
pub(super) fn ratio(text: &str, of_best: bool, rounds: &str, lost: &LostRounds) -> String {
    let of_best = if of_best { "the best of each side, " } else { "" };
    format!("{text}, {of_best}{rounds}{}", in_brackets(&lost_pairs(lost)))
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// `3 lost: 3 with the core shared for one of the two values, or for both`; empty if no round is lost.
pub(super) fn lost_pairs(lost: &LostRounds) -> String {
    lost_rounds(&[
        (lost.missing, "without one of the two values"),
        (lost.other_class, "with cores of another proximity for one value"),
        (lost.other_sharing, "with the core shared for one of the two values, or for both"),
        (lost.other_session, "with the values in different sessions"),
    ])
}

/// `3 lost: 1 failed, 2 void`, from the number of rounds by cause; empty if no round is lost.
fn lost_rounds(causes: &[(usize, &str)]) -> String {
    let causes = || causes.iter().filter(|(rounds, _)| *rounds > 0);
    let texts: Vec<_> = causes().map(|(rounds, cause)| format!("{rounds} {cause}")).collect();
    match causes().map(|(rounds, _)| rounds).sum() {
        0 => String::new(),
        total => format!("{total} lost: {}", texts.join(", ")),
    }
}

/// `every one of 20 samples is at most 64 MiB (at most 13.9% of the rounds at any point could differ, 95% confidence)`,
/// or the number of samples that violate the claim. The counts are those of valid and of void samples.
fn violations(
    value: &MeasuredValue,
    [valid, void]: [&Violations; 2],
    upper_limit: Option<f64>,
    points: &BTreeSet<String>,
) -> String {
    let claimed = value.reasons.iter().find_map(|one| match one {
        Reason::ClaimedAlways { bounds, unit } => Some((limits(bounds, unit), unit.as_str())),
        _ => None,
    });
    let (claimed, unit) = claimed.unwrap_or_default();
    let worst = |of: &Violations| match of.worst {
        Some(worst) => format!(" (the worst: {})", precise(worst, unit)),
        None => String::new(),
    };
    let rate = |verb: &str| {
        upper_limit.map(|limit| {
            let limit = precise(limit, "share");
            format!("at most {limit} of the rounds at any point {verb}, 95% confidence")
        })
    };
    let samples = count(valid.of, "sample");
    let mut text = match valid.count {
        0 => {
            let each = if valid.of == 1 { samples } else { format!("every one of {samples}") };
            let rate = rate("could differ").map(|rate| format!(" ({rate})")).unwrap_or_default();
            format!("{each} is {claimed}{rate}")
        }
        violating => {
            let points: Vec<_> = points.iter().map(String::as_str).collect();
            let at = if points.is_empty() { "" } else { " at " };
            let (worst, points) = (worst(valid), points.join("; "));
            let rate = rate("differ").map(|rate| format!("; {rate}")).unwrap_or_default();
            format!(
                "{violating} of {samples} not {claimed}{worst}{at}{points}, claimed of each{rate}"
            )
        }
    };
    if void.of > 0 {
        let samples = count(void.of, "void sample");
        text += &format!("; {} of {samples} not{}", void.count, worst(void));
    }
    text
}

/// `64 KiB: apex`, or all levels that may be the best there.
pub(super) fn contest(at: &str, candidates: &[String]) -> String {
    format!("{at}: {}", candidates.join(" or "))
}

/// `at least 0.97 and at most 1.03`
pub(super) fn limits(bounds: &Bounds, unit: &str) -> String {
    let bound = |word: &str, bound: Option<f64>| {
        bound.map(|bound| format!("{word} {}", precise(bound, unit)))
    };
    let both = [bound("at least", bounds.at_least), bound("at most", bounds.at_most)];
    both.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}
