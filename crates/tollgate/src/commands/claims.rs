//! `tollgate claims`

use std::collections::BTreeMap;
use std::path::Path;

use lab::claim::{self, Claim, LackingRounds, Verdict, VerdictKind};
use lab::experiment::{Experiment, Profile, suite_name};
use lab::guest::GuestsRecord;
use lab::journal::{self, JournalError, Run};
use lab::run::is_lab_experiment;
use lab::schema::JsonOutput;
use machine::topology::Topology;
use report::table::{self, JudgedClaim, Page};
use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::{Claims, Requirement};
use crate::error::CliError;
use crate::output::{print, print_json, print_plain};
use crate::select;
use crate::stored_run;

/// JSON output of `tollgate claims`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClaimsOutput<'a> {
    /// Claims with their verdicts.
    claims: Vec<JudgedClaim<'a>>,
    /// Guests in which the run was measured; `null` for the host, or without a run.
    guests: Option<&'a GuestsRecord>,
    /// Signs that the journal was edited, and contradictions between values of the run, one line each.
    inconsistencies: Vec<String>,
}

impl JsonOutput for ClaimsOutput<'_> {
    const NAME: &'static str = "claims";
    const WRITTEN_BY: &'static str = "tollgate claims --json";
    const VERSION: u64 = 3;
}

/// Prints each published value next to the measured one, with the verdict.
pub(crate) fn claims(args: &Claims) -> Result<u8, CliError> {
    // The status 1 of a check means that a claim is contradicted, also by
    // another environment of the run, or that the journal was edited.
    print_verdicts(args).map_err(|error| if args.check { error.with_status_2() } else { error })
}

fn print_verdicts(args: &Claims) -> Result<u8, CliError> {
    let claims = select::select_claims(&select::catalogue(&args.files)?, &args.names)?;
    let claims = select::with_arguments(claims, &args.results.folder, &args.files);
    let run = stored_run::open_any(&args.results.folder)?;
    run.as_ref().map_or(Ok(()), stored_run::check_one_program)?;
    let judged = judge(claims, run.as_ref());
    if args.json {
        print_json(&ClaimsOutput {
            claims: table::judged_claims(&judged),
            guests: run.as_ref().and_then(|run| run.record.guests.as_ref()),
            inconsistencies: run.as_ref().map(stored_run::inconsistencies).unwrap_or_default(),
        })?;
    } else {
        let is_named = |(claim, _): &(Claim, Verdict)| args.names.contains(&claim.id);
        let whole = args.all || judged.iter().any(is_named);
        print_plain(&stored_run::origin(run.as_ref(), &args.results.folder))?;
        print(&table::verdicts(&judged, whole, Page::stdout()))?;
        run.as_ref().map_or(Ok(()), stored_run::print_inconsistencies)?;
    }
    let kinds: Vec<_> = judged.iter().map(|(_, verdict)| verdict.kind).collect();
    let is_edited = run.is_some_and(|run| !run.inconsistencies.is_empty());
    let is_doubted = is_edited || judged.iter().any(|(_, verdict)| verdict.doubt.is_some());
    Ok(if args.check { check_status(&kinds, args.require, is_doubted) } else { 0 })
}

/// Returns the exit status of a check: 1 if the journal was edited or another environment speaks against a verdict; 3 if
/// no claim was judged; 1 if a claim is contradicted or lacks the required verdict; else 0.
fn check_status(kinds: &[VerdictKind], required: Option<Requirement>, is_doubted: bool) -> u8 {
    let is_reproduced = |kind: &VerdictKind| *kind == VerdictKind::Reproduced;
    let is_contradicted = |kind: &VerdictKind| *kind == VerdictKind::Contradicted;
    let is_decided = |kind: &VerdictKind| is_reproduced(kind) || is_contradicted(kind);
    let is_met = match required {
        None => true,
        Some(Requirement::Decided) => kinds.iter().all(is_decided),
        Some(Requirement::Reproduced) => kinds.iter().all(is_reproduced),
    };
    if is_doubted {
        1
    } else if !kinds.iter().any(is_decided) {
        3
    } else if !is_met || kinds.iter().any(is_contradicted) {
        1
    } else {
        0
    }
}

/// Judges the claims [about](about) the given experiments.
pub(super) fn judge_run(
    run: &Run,
    experiments: &[String],
    claims: Vec<Claim>,
) -> Vec<(Claim, Verdict)> {
    judge(about(run.record.profile, experiments, claims).0, Some(run))
}

/// Divides claims into those about a run of the given experiments and others. A run of everything is about every claim but
/// those on self-tests, also about one whose experiment its profile lacks: that is not measured. Another run is about those
/// on its experiments and, if there are any, those on the lab itself.
pub(super) fn about(
    profile: Profile,
    experiments: &[String],
    claims: Vec<Claim>,
) -> (Vec<Claim>, Vec<Claim>) {
    let is_on_experiments = |claim: &Claim| experiments.contains(&claim.experiment);
    if is_whole(profile, experiments) {
        let is_about = |claim: &Claim| {
            is_on_experiments(claim) || !select::is_self_test(suite_name(&claim.experiment))
        };
        return claims.into_iter().partition(is_about);
    }
    let (mut claims, others): (Vec<_>, Vec<_>) = claims.into_iter().partition(is_on_experiments);
    if claims.is_empty() {
        return (claims, others);
    }
    let is_on_lab = |claim: &Claim| is_lab_experiment(&claim.experiment);
    let (on_lab, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_on_lab);
    claims.extend(on_lab);
    (claims, others)
}

/// Returns whether a run has every experiment of its profile that `tollgate run` measures.
fn is_whole(profile: Profile, experiments: &[String]) -> bool {
    let declared = select::catalogue(&[]).ok().and_then(|it| it.experiments(profile).ok());
    let is_measured =
        |one: &Experiment| select::is_self_test(&one.suite) || experiments.contains(&one.id());
    declared.is_some_and(|all| all.iter().all(is_measured))
}

/// Returns whether the values of all claims are as precise as requested, or cannot become so.
pub(super) fn are_precise(claims: &[Claim], folder: &Path, target: f64) -> bool {
    let mut are_precise = true;
    let read = with_judges(claims, folder, |judge, claim| {
        are_precise &= judge.judge(claim).is_precise(claim, target);
    });
    read.is_ok() && are_precise
}

/// Returns the rounds that claims lack for a verdict; none if the run cannot be read.
pub(super) fn lacking_rounds(claims: &[Claim], folder: &Path) -> Vec<LackingRounds> {
    let mut lacking = Vec::new();
    let read =
        with_judges(claims, folder, |judge, claim| lacking.extend(judge.lacking_rounds(claim)));
    read.map_or_else(|_| Vec::new(), |()| lacking)
}

/// Passes each claim to `each` with a judge that has the samples of its experiment.
fn with_judges(
    claims: &[Claim],
    folder: &Path,
    mut each: impl FnMut(&claim::Judge, &Claim),
) -> Result<(), JournalError> {
    let mut groups: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        groups.entry(&claim.experiment).or_default().push(claim);
    }
    journal::each_experiment(folder, groups.keys().copied(), |experiment, run| {
        let judge = claim::Judge::new(Some(run), cores_of(Some(run)));
        groups[experiment].iter().for_each(|claim| each(&judge, claim));
    })
}

/// Judges claims by a run, or without one.
pub(super) fn judge(claims: Vec<Claim>, run: Option<&Run>) -> Vec<(Claim, Verdict)> {
    let judge = claim::Judge::new(run, cores_of(run));
    let judged = |claim| {
        let verdict = judge.judge(&claim);
        (claim, verdict)
    };
    claims.into_iter().map(judged).collect()
}

/// Returns the physical cores of the machine that measured the last sample of a run; without one, of this machine.
pub(super) fn cores_of(run: Option<&Run>) -> usize {
    let of_run = run.and_then(|run| {
        let last = run.samples.last()?;
        Some(&run.record.environments.get(&last.environment)?.topology)
    });
    of_run.map_or_else(|| Topology::detect().physical_cores(), Topology::physical_cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use VerdictKind::{
        Contradicted, Incomparable, Inconclusive, NotMeasured, Reproduced, Unmeasurable,
    };

    #[test]
    fn check_status_depends_on_verdicts_and_requirement() {
        let required = [None, Some(Requirement::Decided), Some(Requirement::Reproduced)];
        let cases: [(&[VerdictKind], [u8; 3]); 7] = [
            (&[], [3, 3, 3]),
            (&[Inconclusive, NotMeasured, Incomparable, Unmeasurable], [3, 3, 3]),
            (&[Reproduced], [0, 0, 0]),
            (&[Reproduced, Inconclusive], [0, 1, 1]),
            (&[Reproduced, NotMeasured], [0, 1, 1]),
            (&[Reproduced, Contradicted], [1, 1, 1]),
            (&[Contradicted, Unmeasurable], [1, 1, 1]),
        ];
        for (kinds, statuses) in cases {
            let status = required.map(|required| check_status(kinds, required, false));
            assert_eq!(status, statuses, "{kinds:?}");
            let doubted = required.map(|required| check_status(kinds, required, true));
            assert_eq!(doubted, [1; 3], "{kinds:?}");
        }
    }
}
