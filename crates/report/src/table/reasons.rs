//! Verdicts and their reasons as text.

use std::collections::BTreeSet;
use std::time::Duration;

use lab::claim::{
    Bounds, ClassResult, Judgement, MeasuredValue, Quantifier, Reason, Relation, Statistic, Unmet,
    Verdict, VerdictKind, Violations,
};
use lab::statistics::{LostRounds, Resolution, Unresolved};
use lab::summary::SummaryError;
use machine::proximity::Class;

use lab::format::{count, interval, precise};
use lab::quantity::format_duration;

const NOTHING: &str = "there is nothing to judge";
/// Maximum number of fitting values that the reason of a judgement lists.
const MAX_FITTING: usize = 3;
/// Maximum number of points of one cause that are named as left out.
const MAX_LEFT_OUT: usize = 3;

/// Returns the reason for a verdict in one line.
pub(super) fn why(verdict: &Verdict) -> String {
    if verdict.kind == VerdictKind::Incomparable {
        return not_judged(verdict);
    }
    let judgements = &verdict.judgements;
    let is_only = verdict.values().count() == 1;
    let mut text =
        deciding(verdict).map_or_else(|| NOTHING.to_string(), |one| judgement(one, is_only));
    if judgements.len() > 1 {
        text = format!("{}; {text}", counted(judgements));
    }
    let against = judgements.iter().filter(|one| one.kind == VerdictKind::Contradicted);
    let labels: Vec<_> =
        against.flat_map(|one| &one.values).map(|value| value.label.as_str()).collect();
    if let (Quantifier::Share(share), false) = (verdict.quantifier, labels.is_empty()) {
        let labels = labels.join("; ");
        text += &format!(" (claimed for {}); not true for: {labels}", precise(share, "share"));
    }
    let mut left_out: Vec<(&Reason, Vec<&str>)> = Vec::new();
    for one in judgements.iter().flat_map(|one| &one.left_out) {
        let names = one.names.iter().map(String::as_str);
        match left_out.iter_mut().find(|(why, _)| *why == &one.why) {
            Some((_, known)) => known.extend(names),
            None => left_out.push((&one.why, names.collect())),
        }
    }
    for (why, mut names) in left_out {
        names.sort_unstable();
        names.dedup();
        let more = names.len().saturating_sub(MAX_LEFT_OUT);
        let more = (more > 0).then(|| format!("{more} more"));
        names.truncate(MAX_LEFT_OUT);
        names.extend(more.as_deref());
        text += &format!("; left out: {}: {}", names.join(", "), reason(why));
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the values that the reason for a verdict states.
pub(super) fn stated(verdict: &Verdict) -> Vec<&MeasuredValue> {
    match deciding(verdict) {
        _ if verdict.kind == VerdictKind::Incomparable => {
            verdict.values().find(|value| value.value.is_some()).into_iter().collect()
        }
        Some(judgement) => match judgement.reasons.first() {
            Some(Reason::BestEverywhere { .. } | Reason::ClassesDiffer { .. }) => {
                judgement.values.iter().collect()
            }
            _ => stated_of(judgement),
        },
        None => Vec::new(),
    }
}

/// Returns the judgement that decides a verdict, or the first.
fn deciding(verdict: &Verdict) -> Option<&Judgement> {
    let is_deciding = |one: &&Judgement| one.kind == verdict.kind;
    verdict.judgements.iter().find(is_deciding).or(verdict.judgements.first())
}

/// Returns the values that decide a judgement, at most as many as its reason states.
fn stated_of(judgement: &Judgement) -> Vec<&MeasuredValue> {
    let max = if judgement.kind == VerdictKind::Reproduced { MAX_FITTING } else { 1 };
    judgement.values.iter().filter(|value| value.kind == judgement.kind).take(max).collect()
}

/// The published value next to the measured one.
fn not_judged(verdict: &Verdict) -> String {
    let published = verdict.published.as_ref();
    let value = published.map(|it| precise(it.value, &it.unit)).unwrap_or_default();
    let on = published.and_then(|it| it.on.as_deref()).unwrap_or("other hardware");
    let measured = verdict.values().find(|value| value.value.is_some());
    let shown = measured.or(verdict.values().next());
    let measured = measured.map(|it| value_with_interval(it) + with_cores(it));
    let measured = measured.unwrap_or_else(|| "not measured".into());
    let why = shown.into_iter().flat_map(|value| &value.reasons);
    let why = why.filter(|one| matches!(one, Reason::NotComparable { .. })).map(reason);
    format!("{value} on {on}, here {measured}; {}", why.collect::<Vec<_>>().join("; "))
}

/// `3 of 5 reproduced, 1 contradicted, 1 not measurable here`
fn counted(judgements: &[Judgement]) -> String {
    let count = |kind| judgements.iter().filter(|one| one.kind == kind).count();
    let mut text = format!("{} of {} reproduced", count(VerdictKind::Reproduced), judgements.len());
    for (kind, word) in [
        (VerdictKind::Contradicted, "contradicted"),
        (VerdictKind::Inconclusive, "inconclusive"),
        (VerdictKind::Unmeasurable, "not measurable here"),
    ] {
        if count(kind) > 0 {
            text += &format!(", {} {word}", count(kind));
        }
    }
    text
}

/// Returns the argument of a judgement. `is_only` states whether the verdict has a single value.
fn judgement(judgement: &Judgement, is_only: bool) -> String {
    if let [differ @ Reason::ClassesDiffer { results }, ..] = judgement.reasons.as_slice() {
        let deciding = |one: &ClassResult| {
            let of_class = || judgement.values.iter().filter(|it| it.class == Some(one.class));
            let value = of_class().find(|it| it.kind == one.kind).or_else(|| of_class().next());
            value.map(|value| labelled(value, is_only))
        };
        let values: Vec<_> = results.iter().filter_map(deciding).collect();
        return format!("{}: {}", reason(differ), values.join("; "));
    }
    if let [Reason::BestEverywhere { level, resolved, rounds }, rest @ ..] =
        judgement.reasons.as_slice()
    {
        let best = match level {
            None => "no level is best everywhere".to_string(),
            Some(level) if *resolved => format!("{level} is best everywhere"),
            Some(level) => format!("{level} may be best everywhere"),
        };
        let contests = judgement.values.iter().filter_map(|value| match &value.statistic {
            Some(Statistic::Best { at, candidates }) => {
                Some(contest(at, candidates) + with_cores(value))
            }
            _ => None,
        });
        let contests = contests.collect::<Vec<_>>().join("; ");
        let rest: String = rest.iter().map(|one| format!("; {}", reason(one))).collect();
        return format!("{best}: {contests}, {}{rest}", count(*rounds, "round"));
    }
    let deciding = judgement.values.iter().filter(|value| value.kind == judgement.kind).count();
    let stated = stated_of(judgement);
    let mut texts: Vec<_> = stated.iter().map(|one| labelled(one, is_only)).collect();
    if deciding > texts.len() {
        texts.push(format!("and {} more", deciding - texts.len()));
    }
    texts.extend(judgement.reasons.iter().map(reason));
    if texts.is_empty() { NOTHING.into() } else { texts.join("; ") }
}

/// Returns the argument with the label of its value. The claim itself says which point a single value
/// is of; a ratio has two.
fn labelled(value: &MeasuredValue, is_only: bool) -> String {
    let is_ratio = matches!(value.statistic, Some(Statistic::Ratio { .. }));
    match value.label.is_empty() || is_only && !is_ratio {
        true => argument(value),
        false => format!("{}: {}", value.label, argument(value)),
    }
}

/// The value, the claimed one, and what weakens the result.
fn argument(value: &MeasuredValue) -> String {
    let mut text = value.statistic.as_ref().map_or_else(String::new, |it| statistic(value, it));
    let states_claim = matches!(value.statistic, Some(Statistic::Violations { .. }));
    // How many rounds remove the correlation is unknown.
    let is_correlated = value.reasons.iter().any(|one| matches!(one, Reason::Correlated { .. }));
    for one in &value.reasons {
        let (clause, part) = match one {
            Reason::ClaimedAlways { .. } if states_claim => continue,
            Reason::Leans { to, .. } if is_correlated => (false, format!("leans to {}", to.name())),
            one => (is_clause(one), reason(one)),
        };
        if !text.is_empty() {
            text += if clause { ", " } else { "; " };
        }
        text += &part;
    }
    text
}

/// Returns whether a reason continues the clause of the value.
fn is_clause(reason: &Reason) -> bool {
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

/// `12 rounds with near cores`
fn rounds(value: &MeasuredValue) -> String {
    count(value.rounds, "round") + with_cores(value)
}

/// ` with near cores`; empty for a value of a single core.
pub(super) fn with_cores(value: &MeasuredValue) -> &'static str {
    match value.class {
        None => "",
        Some(Class::Same) => " on SMT siblings",
        Some(Class::Near) => " with near cores",
        Some(Class::Middle) => " with cores between near and far",
        Some(Class::Far) => " with far cores",
    }
}

/// `107 ns (106 ns to 109 ns)`
fn value_with_interval(value: &MeasuredValue) -> String {
    value.value.map_or_else(
        || "no value".into(),
        |centre| match &value.interval {
            Some(ends) => interval(centre, ends, &value.unit),
            None => precise(centre, &value.unit),
        },
    )
}

fn statistic(value: &MeasuredValue, statistic: &Statistic) -> String {
    let (text, rounds) = (value_with_interval(value), rounds(value));
    match statistic {
        Statistic::Median { failed, void } => {
            let lost = match failed + void {
                0 => String::new(),
                lost => format!(" ({lost} lost: {failed} failed, {void} void)"),
            };
            format!("{text} over {rounds}{lost}")
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
fn ratio(text: &str, of_best: bool, rounds: &str, lost: &LostRounds) -> String {
    let of_best = if of_best { "the best of each side, " } else { "" };
    let lost = match lost_rounds(lost) {
        lost if lost.is_empty() => lost,
        lost => format!(" ({lost})"),
    };
    format!("{text}, {of_best}{rounds}{lost}")
}

/// `3 lost: 3 with the core shared for one of the two values, or for both`; empty if no round is lost.
fn lost_rounds(lost: &LostRounds) -> String {
    let causes = [
        (lost.missing, "without one of the two values"),
        (lost.other_class, "with near cores for one value and far cores for the other"),
        (lost.other_sharing, "with the core shared for one of the two values, or for both"),
        (lost.other_session, "with the values in different sessions"),
    ];
    let causes = causes.iter().filter(|(rounds, _)| *rounds > 0);
    let causes: Vec<_> = causes.map(|(rounds, cause)| format!("{rounds} {cause}")).collect();
    match lost.total() {
        0 => String::new(),
        total => format!("{total} lost: {}", causes.join(", ")),
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
fn contest(at: &str, candidates: &[String]) -> String {
    format!("{at}: {}", candidates.join(" or "))
}

/// `at least 0.97 and at most 1.03`
fn limits(bounds: &Bounds, unit: &str) -> String {
    let bound = |word: &str, bound: Option<f64>| {
        bound.map(|bound| format!("{word} {}", precise(bound, unit)))
    };
    let both = [bound("at least", bounds.at_least), bound("at most", bounds.at_most)];
    both.into_iter().flatten().collect::<Vec<_>>().join(" and ")
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

/// `leans to reproduced: about 30 more rounds (2 min 10 s of measuring) would decide`
fn leans(to: VerdictKind, rounds: Option<usize>, seconds: Option<f64>) -> String {
    let Some(rounds) = rounds else {
        return format!("leans to {}, too close to the bound for any number of rounds", to.name());
    };
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.ceil()).ok());
    let time = time.map(|time| format!(" ({} of measuring)", format_duration(time)));
    let time = time.unwrap_or_default();
    format!("leans to {}: about {}{time} would decide", to.name(), count(rounds, "more round"))
}

/// Returns a reason in one line.
pub(super) fn reason(reason: &Reason) -> String {
    let share = |share: f64| precise(share, "share");
    match reason {
        Reason::Claimed { bounds, unit } => format!("claimed {}", limits(bounds, unit)),
        Reason::NotComparable { unmet } => format!("comparable only on {}", lacking(unmet)),
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
        Reason::OneOfSteps { steps } => {
            format!("one of {}, so chance may explain it", count(*steps, "step"))
        }
        Reason::NearBound { floor } => {
            format!("unresolved: closer to the bound than the noise floor of {}", share(*floor))
        }
        Reason::Capped { above, below } => {
            let rounds = count(above + below, "search");
            format!("{rounds} ended at the highest load, so the true value may be higher; raise it")
        }
        Reason::BestEverywhere { level, rounds, .. } => {
            let level = level.as_deref().unwrap_or("no level");
            format!("{level} is best everywhere, {}", count(*rounds, "round"))
        }
        Reason::ManyLost { lost, rounds, ratio, agrees } => {
            let ratio = precise(*ratio, "1");
            let change = if *agrees { "" } else { " and the verdict another" };
            format!("{lost} of {rounds} rounds are lost; with them the ratio is {ratio}{change}")
        }
        Reason::TooFewRounds { rounds, needed } => {
            format!("{rounds} of the {needed} required rounds")
        }
        Reason::TooManyFailed { failed, rounds, max } => {
            format!("{failed} of {rounds} rounds failed, more than {}", share(*max))
        }
        Reason::Leans { to, rounds, seconds } => leans(*to, *rounds, *seconds),
        Reason::TooFewBoots { boots: [above, below], needed } => format!(
            "different boots measured the two sides ({above} and {below}); each requires {needed}"
        ),
        Reason::FailuresMayDecide { failed } => {
            format!("{} may change it; measure again with --fresh", count(*failed, "failed sample"))
        }
        Reason::Correlated { lag_1, command } => format!(
            "too few rounds for a 95% interval, because they are correlated (lag-1 {lag_1:.2}): \
             {command}"
        ),
        Reason::NoFloor { rounds, needed, command } => match rounds {
            Some(rounds) => format!(
                "no noise floor: twins have {} in common and require {needed}: {command}",
                count(*rounds, "round")
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
            let lost = lost_rounds(lost);
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
