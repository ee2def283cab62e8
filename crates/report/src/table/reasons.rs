//! Reasons of verdicts as text.

use std::time::Duration;

use lab::claim::{Reason, Relation, Unmet, VerdictKind};
use lab::format::{count, interval, precise};
use lab::quantity::format_duration;
use lab::sharing::{Sharing, SharingCounts};
use lab::statistics::{Resolution, Unresolved};
use lab::summary::{Limit, SummaryError};
use machine::proximity::Class;

use super::notes::differing;
use super::statistic::{limits, lost_pairs, ratio};

/// The remedy if environments of a run disagree.
const FRESH: &str = "measure again with --fresh";

/// Returns whether a reason continues the clause of the value.
pub(super) fn is_clause(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Claimed { .. }
            | Reason::ClaimedAlways { .. }
            | Reason::ClaimedSometimes { .. }
            | Reason::ClaimedImprovement { .. }
            | Reason::ClaimedValue { .. }
            | Reason::Resolved { .. }
            | Reason::NearBound { .. }
    )
}

fn relation(relation: Relation) -> &'static str {
    match relation {
        Relation::Higher => "higher",
        Relation::Lower => "lower",
        Relation::Better => "better",
    }
}

/// `Intel family 6 model 94 (here AMD family 26 model 2)`
fn lacking(unmet: &[Unmet]) -> String {
    let text = |one: &Unmet| format!("{} (here {})", one.needed, one.found);
    unmet.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn again(text: &str, command: Option<&String>) -> String {
    command.map_or_else(|| text.to_string(), |command| format!("{text}; {command}"))
}

/// `leans to reproduced: about 30 more rounds (2 min 10 s) would decide`
fn leans(to: VerdictKind, rounds: Option<usize>, seconds: Option<f64>) -> String {
    let Some(rounds) = rounds else {
        return format!("leans to {}, too close to the bound for any number of rounds", to.name());
    };
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.ceil()).ok());
    let time = time.map(|time| format!(" ({})", format_duration(time)));
    let time = time.unwrap_or_default();
    format!("leans to {}: about {}{time} would decide", to.name(), count(rounds, "more round"))
}

/// Returns a reason in one line.
pub(super) fn reason(reason: &Reason) -> String {
    let share = |share: f64| precise(share, "share");
    match reason {
        Reason::Claimed { bounds, unit } => format!("claimed {}", limits(bounds, unit)),
        Reason::NotComparable { unmet } => format!("comparable only on {}", lacking(unmet)),
        Reason::Tie => "the two are equal in every round".into(),
        Reason::NoEvidenceAgainst { why } => format!("no evidence against the claim: {why}"),
        Reason::OtherMachine { unmet } => {
            format!("requires {}; measure on such a machine", lacking(unmet))
        }
        Reason::ClaimedAlways { bounds, unit } => {
            format!("claimed {} in every sample", limits(bounds, unit))
        }
        Reason::ClaimedSometimes { bounds, unit } => {
            let value = |bound: f64| precise(bound, unit);
            let below = bounds.at_least.map(|bound| format!("below {}", value(bound)));
            let above = bounds.at_most.map(|bound| format!("above {}", value(bound)));
            let both: Vec<_> = below.into_iter().chain(above).collect();
            format!("claimed {} in some sample", both.join(" or "))
        }
        Reason::ClaimedImprovement { bounds } => {
            format!("claimed {} times better", limits(bounds, "1"))
        }
        Reason::ClaimedValue { value, unit, tolerance: None } => {
            format!("claimed {}", precise(*value, unit))
        }
        Reason::ClaimedValue { value, unit, tolerance: Some(tolerance) } => {
            format!("claimed {} within {}", precise(*value, unit), share(*tolerance))
        }
        Reason::Resolved { relation: it, resolution, floor } => match resolution {
            Resolution::Higher => format!("resolved {}", relation(*it)),
            Resolution::Lower => format!("resolved not {}", relation(*it)),
            Resolution::Unresolved { why } => {
                let floor = floor.filter(|_| *why == Unresolved::BelowFloor);
                let floor = floor.map(|floor| format!(" of {}", share(floor)));
                format!("unresolved: {why}{}", floor.unwrap_or_default())
            }
        },
        Reason::OneOfPairs { pairs } => {
            format!("one of {} of levels, so chance may explain it", count(*pairs, "pair"))
        }
        Reason::NearBound { floor } => {
            format!("unresolved: closer to the bound than the noise floor of {}", share(*floor))
        }
        Reason::Limited { limit: Limit::Search, above, below } => {
            let searches = match above + below {
                1 => "1 search is capped".into(),
                several => format!("{several} searches are capped"),
            };
            format!(
                "{searches}: the highest load passed, so the true value may be higher; raise it"
            )
        }
        Reason::Limited { limit: Limit::Instrument, above, below } => {
            let rounds = match (above, below) {
                (above, 0) => count(*above, "round"),
                (0, below) => format!("{} of the denominator", count(*below, "round")),
                (above, below) => {
                    format!("{} and {below} of the denominator", count(*above, "round"))
                }
            };
            format!("the instrument may have limited {rounds}: the true value may be better")
        }
        Reason::BestEverywhere { level, rounds, .. } => {
            let level = level.as_deref().unwrap_or("no level");
            format!("{level} is best everywhere, {}", count(*rounds, "round"))
        }
        Reason::ManyLost { lost, rounds, value, unit, agrees } => {
            let what = if unit.as_deref() == Some("1") { "ratio" } else { "value" };
            let value = value.map(|value| precise(value, unit.as_deref().unwrap_or_default()));
            let value = value.map(|value| format!("the {what} is {value}"));
            let verdict = (!agrees).then(|| "the verdict is another".to_string());
            let change: Vec<String> = value.into_iter().chain(verdict).collect();
            let change = match change.is_empty() {
                true => String::new(),
                false => format!("; with them {}", change.join(" and ")),
            };
            format!("{lost} of {rounds} rounds are lost{change}")
        }
        Reason::RepeatedLooks { looks, confidence } => {
            let confidence = share(*confidence);
            format!("an interval of {confidence}, because {looks} sessions could have decided it")
        }
        Reason::TooFewRounds { rounds, needed } => {
            format!("{rounds} of the {needed} required rounds")
        }
        Reason::TooManyFailed { failed, rounds, max } => {
            format!("{failed} of {rounds} rounds failed, more than {}", share(*max))
        }
        Reason::Leans { to, rounds, seconds } => leans(*to, *rounds, *seconds),
        Reason::LeansOnly { to } => format!("leans to {}", to.name()),
        Reason::NoRoundsDecide => "no number of rounds decides it here".into(),
        Reason::BothStates { counts: SharingCounts { alone, shared, changed } } => {
            let changed = match changed {
                0 => String::new(),
                changed => format!(", and {changed} in which that changed"),
            };
            format!(
                "{} on a core alone and {shared} on a shared one{changed}",
                count(*alone, "round")
            )
        }
        Reason::TooFewBoots { boots: [above, below], needed } => format!(
            "different boots measured the two sides ({above} and {below}); each requires {needed}"
        ),
        Reason::FailuresMayDecide { failed } => {
            format!("{} may change it; measure again with --fresh", count(*failed, "failed sample"))
        }
        Reason::Correlated { lag_1, command } => format!(
            "the interval is wide, because few rounds are correlated (lag-1 {lag_1:.2}): {command}"
        ),
        Reason::NoFloor { state, rounds, needed, command } => match rounds {
            Some(rounds) => format!(
                "no noise floor: twins have {} in common{} and require {needed}: {command}",
                count(*rounds, "round"),
                if *state == Some(Sharing::Shared) { " on a shared core" } else { "" }
            ),
            None => "no noise floor: the experiment has no twins; add 'twins' to it".into(),
        },
        Reason::MachineLimit { ratio: limit, of_best } => {
            let text = interval(limit.ratio, &limit.interval, "1");
            let rounds = count(limit.rounds, "round");
            let limit = ratio(&text, *of_best, &rounds, &limit.lost);
            format!("this machine's limit is {limit}")
        }
        Reason::At { label, why } => format!("{label}: {}", self::reason(why)),
        Reason::NotMeasured { command } => format!("not measured yet: {command}"),
        Reason::NotAllMeasured { what, measured, of, command } => {
            format!("{measured} of {of} {what} measured: {command}")
        }
        Reason::NoMethod { why } => why.clone(),
        Reason::Failed { failure, command } => again(&failure.to_string(), command.as_ref()),
        Reason::Void { cause, command } => {
            again(&format!("every round is void: {cause}"), command.as_ref())
        }
        Reason::NoValue { command } => {
            again("the samples have no value of this metric", command.as_ref())
        }
        Reason::ClassesDiffer { results } => {
            let each = results
                .iter()
                .map(|one| format!("{} with {} cores", one.kind.name(), one.class.name()));
            each.collect::<Vec<_>>().join(" and ")
        }
        Reason::EnvironmentsDiffer { here, there, environment } => {
            let differing = differing(std::slice::from_ref(environment));
            let (here, there) = (here.name(), there.name());
            format!("{here} here and {there} in another environment{differing}: {FRESH}")
        }
        Reason::FailedElsewhere { environment } => {
            let differing = differing(std::slice::from_ref(environment));
            let (failed, rounds) = (environment.failed, count(environment.rounds, "round"));
            format!("{failed} of {rounds} failed in another environment{differing}: {FRESH}")
        }
        Reason::ClassNotJudged { class, rounds } => {
            format!("{} with {} cores: too few to judge", count(*rounds, "round"), class.name())
        }
        Reason::OtherClass { class, last, command } => {
            let class = class.name();
            let last = last.map_or("of no class", Class::name);
            let text =
                format!("the cores were {class} in no round and {last} in the last; measure again");
            again(&text, command.as_ref())
        }
        Reason::NoCommonRound { lost, command } => {
            let lost = lost_pairs(lost);
            again(&format!("no round has both in one session and class: {lost}"), Some(command))
        }
        Reason::NoDirection => "the metric has no better direction to rank by".into(),
        Reason::NotSummarised { error } => error.to_string(),
        Reason::Summary { error: SummaryError::NoMetric { metric, .. } } => format!(
            "the run does not record '{metric}', which another build of tollgate measures; measure \
             again with --fresh"
        ),
        Reason::Summary { error } => error.to_string(),
        Reason::NoMetric { experiment } => {
            format!("the run does not record the metric of '{experiment}'")
        }
        Reason::NoCombination { factors } => {
            format!("no points to judge at any level of {}", factors.join(", "))
        }
        Reason::OpenFactors { factors } => format!(
            "the claim leaves open: {}; fix them in 'where' or list them in 'each'",
            factors.join(", ")
        ),
        Reason::TooFewLevels { factor, needed, above, level } => {
            let side = if *above { "above" } else { "up to" };
            let levels = if *needed == 1 { "a level" } else { "two levels" };
            format!("requires {levels} of '{factor}' {side} {level}")
        }
        Reason::NoContest { factor, along } => {
            format!("requires two levels of '{factor}' at two levels of '{along}'")
        }
        Reason::NotAtEveryLevel { along } => format!("not measured at every '{along}'"),
        Reason::NoTwins => "no point has a twin with values".into(),
        Reason::NeverIdle => {
            "the core was known to be idle in no round: other threads used it, or \
                              the kernel counts no steal time; measure again"
                .into()
        }
        Reason::ZeroMedian => "the median is 0, and the spread is a share of the median; choose a \
                               metric above 0"
            .into(),
        Reason::TooFewCores { needed, cores, threads_per_core } => {
            let threads = threads_per_core.map(|threads| {
                let noun = if threads == 1.0 { "thread" } else { "threads" };
                format!(" with {} {noun} each", precise(threads, "1"))
            });
            let threads = threads.unwrap_or_default();
            format!(
                "requires {needed} physical cores and this machine has {cores}{threads}; measure on \
                 a larger machine"
            )
        }
        Reason::OtherProfile { needed, profile, command } => format!(
            "requires a {} run and this one is {}: {command}",
            needed.name(),
            profile.name()
        ),
    }
}
