//! `tollgate claims`

use std::collections::BTreeSet;

use lab::catalogue::Catalogue;
use lab::claim::{self, Claim, Verdict, VerdictKind};
use lab::experiment::{Experiment, suite_name};
use lab::journal::{self, JournalError, Run};
use report::table::{self, Page};

use crate::SUITES;
use crate::arguments::{Claims, Requirement};
use crate::fault::Fault;
use crate::output::{print, print_json};
use crate::select;

/// Prints each published value beside ours, and the verdict.
pub(crate) fn run(given: &Claims) -> Result<u8, Fault> {
    // A check that cannot read the run has judged nothing, and 1 would say that a claim is contradicted.
    print_verdicts(given).map_err(|fault| if given.check { fault.no_answer() } else { fault })
}

fn print_verdicts(given: &Claims) -> Result<u8, Fault> {
    let claims = meant(&select::catalogue(&given.files)?, &given.names)?;
    let run = match journal::newest(&given.place.results) {
        Ok(folder) => Some(journal::open(&folder)?),
        Err(JournalError::NoRun(_)) => None,
        Err(other) => return Err(other.into()),
    };
    let judged = judge(claims, run.as_ref());
    if given.json {
        print_json(&table::verdicts_json(&judged))?;
    } else {
        print(&table::verdicts(&judged, Page::stdout()))?;
        run.as_ref().map_or(Ok(()), super::show::print_inconsistencies)?;
    }
    let kinds: Vec<_> = judged.iter().map(|(_, verdict)| verdict.kind).collect();
    Ok(if given.check { checked(&kinds, given.require) } else { 0 })
}

/// The exit status of a check: 3 if nothing was judged, as without a run; 1 if a claim is contradicted
/// or lacks what is required; else 0.
fn checked(kinds: &[VerdictKind], required: Option<Requirement>) -> u8 {
    let reproduced = |kind: &VerdictKind| *kind == VerdictKind::Reproduced;
    let contradicted = |kind: &VerdictKind| *kind == VerdictKind::Contradicted;
    let decided = |kind: &VerdictKind| reproduced(kind) || contradicted(kind);
    let lacking = match required {
        None => false,
        Some(Requirement::Decided) => !kinds.iter().all(decided),
        Some(Requirement::Reproduced) => !kinds.iter().all(reproduced),
    };
    match () {
        () if !kinds.iter().any(decided) => 3,
        () if lacking || kinds.iter().any(contradicted) => 1,
        () => 0,
    }
}

/// The verdicts on what a run was asked to measure, and on what the lab itself cost.
pub(crate) fn on(
    run: &Run,
    experiments: &[Experiment],
    claims: Vec<Claim>,
) -> Vec<(Claim, Verdict)> {
    let ids: Vec<_> = experiments.iter().map(Experiment::id).collect();
    let asked = |claim: &Claim| ids.contains(&claim.experiment);
    let own_cost = |claim: &Claim| claim.experiment.starts_with("lab/");
    let (mut claims, others): (Vec<_>, Vec<_>) = claims.into_iter().partition(asked);
    if !claims.is_empty() {
        claims.extend(others.into_iter().filter(own_cost));
    }
    judge(claims, Some(run))
}

fn judge(claims: Vec<Claim>, run: Option<&Run>) -> Vec<(Claim, Verdict)> {
    let cores = machine::topology::Topology::detect().physical_cores();
    let judged = |claim| {
        let verdict = claim::judge(&claim, run, cores);
        (claim, verdict)
    };
    claims.into_iter().map(judged).collect()
}

/// The claims meant by names: a suite, a source or an id. Those of the suites that test the
/// instrument are meant only by name.
fn meant(catalogue: &Catalogue, names: &[String]) -> Result<Vec<Claim>, Fault> {
    let all = catalogue.claims()?;
    let is = |claim: &Claim, name: &String| {
        let suite = suite_name(&claim.experiment);
        // Our promises are those on boundaries; those on the instrument are asked for by suite.
        let of_instrument = claim.is_promise() && is_self_test(suite);
        let published = claim.source == *name && !of_instrument;
        claim.id == *name || suite == name || published
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|claim| is(claim, name))) {
        let line = format!(
            "there is no claim, source or suite '{name}'; 'tollgate claims' names them all"
        );
        return Err(Fault::usage(line));
    }
    let wanted = |claim: &Claim| match names {
        [] => !is_self_test(suite_name(&claim.experiment)),
        names => names.iter().any(|name| is(claim, name)),
    };
    Ok(all.into_iter().filter(wanted).collect())
}

fn is_self_test(suite: &str) -> bool {
    lab::suite::find(SUITES, suite)
        .is_some_and(|suite| suite.purpose() == lab::suite::Purpose::SelfTest)
}

/// The claims that `run --claim` names.
pub(crate) struct Wanted(Vec<Claim>);

/// The claims that `run --claim` names; nothing where it names none.
pub(crate) fn wanted(catalogue: &Catalogue, names: &[String]) -> Result<Option<Wanted>, Fault> {
    if names.is_empty() {
        return Ok(None);
    }
    Ok(Some(Wanted(meant(catalogue, names)?)))
}

impl Wanted {
    /// Keeps just the points that the claims need.
    pub(crate) fn keep(&self, experiment: &mut Experiment) {
        // What the lab itself costs, any run of a boundary tells.
        if self.0.iter().all(|one| one.experiment.starts_with("lab/")) {
            let boundary = !is_self_test(&experiment.suite);
            return experiment.keep(|_| boundary);
        }
        let points: BTreeSet<_> =
            self.0.iter().flat_map(|one| claim::needs(one, experiment)).collect();
        experiment.keep(|point| points.contains(point));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use VerdictKind::{Contradicted, Incomparable, Inconclusive, Reproduced, Unmeasurable};

    #[test]
    fn a_check_has_a_status_for_each_end() {
        let required = [None, Some(Requirement::Decided), Some(Requirement::Reproduced)];
        let cases: [(&[VerdictKind], [u8; 3]); 6] = [
            (&[], [3, 3, 3]),
            (&[Inconclusive, Incomparable, Unmeasurable], [3, 3, 3]),
            (&[Reproduced], [0, 0, 0]),
            (&[Reproduced, Inconclusive], [0, 1, 1]),
            (&[Reproduced, Contradicted], [1, 1, 1]),
            (&[Contradicted, Unmeasurable], [1, 1, 1]),
        ];
        for (kinds, statuses) in cases {
            assert_eq!(required.map(|required| checked(kinds, required)), statuses, "{kinds:?}");
        }
    }
}
