//! Selection of experiments, points and claims by the command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::claim::{self, Claim};
use lab::experiment::{Experiment, Profile, suite_name};
use lab::method::AnyMethod;
use lab::point::{Filter, Point};
use lab::run::is_lab_experiment;
use lab::suite::{Purpose, Suite};

use crate::arguments::SelectionArgs;
use crate::error::CliError;
use crate::suites::SUITES;

/// Loads the data of all suites and of a user's files.
pub(crate) fn catalogue(files: &[PathBuf]) -> Result<Catalogue<'static>, CliError> {
    Ok(Catalogue::load(SUITES, files)?)
}

/// Returns whether `names` select an experiment, by its ID or suite. No names select every experiment.
pub(crate) fn is_selected(names: &[String], id: &str) -> bool {
    names.is_empty() || names.iter().any(|name| name == id || name == suite_name(id))
}

/// Experiments with the selected points and the effort of a profile.
pub(crate) struct Selected {
    pub(crate) profile: Profile,
    pub(crate) experiments: Vec<Experiment>,
}

/// Where the points are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On this host.
    Host,
    /// In a guest or on another host: what this host can measure says nothing about it.
    Elsewhere,
}

/// Returns the profile that all claims require.
fn required_profile(claims: &[Claim]) -> Option<Profile> {
    let required = claims.first()?.profile;
    required.filter(|_| claims.iter().all(|claim| claim.profile == required))
}

/// Returns the selected experiments, by default with the profile that all selected claims require, or quick.
pub(crate) fn select_experiments(
    catalogue: &Catalogue,
    selection: &SelectionArgs,
    place: Place,
) -> Result<Selected, CliError> {
    let claims = match selection.claim.as_slice() {
        [] => None,
        names => Some(select_claims(catalogue, names)?),
    };
    let required = claims.as_deref().and_then(required_profile);
    let profile = selection.points.profile.or(required).unwrap_or_default();
    let mut experiments = match &claims {
        None => catalogue.experiments(profile)?,
        Some(claims) => claimed(catalogue, profile, claims)?,
    };
    check_names(&experiments, &selection.names)?;
    let is_explicit = !selection.names.is_empty() || claims.is_some();
    experiments.retain(|one| {
        is_selected(&selection.names, &one.id()) && (is_explicit || !is_self_test(&one.suite))
    });
    keep_levels(&mut experiments, &selection.points.levels)?;
    if let Some(text) = &selection.points.filter {
        experiments.iter_mut().for_each(|experiment| keep_text(experiment, text));
    }
    if selection.points.each_level {
        let quick = catalogue.all_experiments(Profile::Quick)?;
        for experiment in &mut experiments {
            keep_each_level(experiment, place)?;
            // To see that a level works takes no precision.
            let quick = quick.iter().find(|one| one.id() == experiment.id());
            experiment.effort.budget =
                quick.map_or(experiment.effort.budget, |one| one.effort.budget);
        }
    }
    experiments.retain(|experiment| !experiment.points.is_empty());
    if experiments.is_empty() {
        let unmeasurable = |claim: &Claim| Some((claim.id.clone(), claim.unmeasurable.clone()?));
        return Err(match claims.iter().flatten().find_map(unmeasurable) {
            Some((id, why)) => CliError::usage(format!("claim '{id}' cannot be measured: {why}")),
            None => CliError::usage("no point is selected; 'tollgate list' lists all"),
        });
    }
    Ok(Selected { profile, experiments })
}

/// Returns the roles of the first experiment that has some.
pub(crate) fn roles(experiments: &[Experiment]) -> &[String] {
    let with_roles = experiments.iter().find(|one| !one.roles.is_empty());
    with_roles.map(|one| one.roles.as_slice()).unwrap_or_default()
}

/// Adds the experiments of the suites of claims whose roles have a host each, if nothing but claims was selected: an evaluation on
/// several hosts includes what only they can measure.
pub(crate) fn add_of_roles(
    catalogue: &Catalogue,
    selection: &SelectionArgs,
    (profile, roles): (Profile, &[String]),
    experiments: &mut Vec<Experiment>,
) -> Result<(), CliError> {
    let SelectionArgs { names, points, claim } = selection;
    let has_filter = points.filter.is_some() || !points.levels.is_empty() || points.each_level;
    if claim.is_empty() || !names.is_empty() || has_filter || roles.is_empty() {
        return Ok(());
    }
    let roles: BTreeSet<&String> = roles.iter().collect();
    let is_of_roles = |one: &Experiment| one.roles.iter().collect::<BTreeSet<_>>() == roles;
    let suites: BTreeSet<String> = experiments.iter().map(|one| one.suite.clone()).collect();
    for one in catalogue.experiments(profile)? {
        let is_new = experiments.iter().all(|known| known.id() != one.id());
        if is_of_roles(&one) && is_new && suites.contains(&one.suite) {
            experiments.push(one);
        }
    }
    Ok(())
}

/// Checks that each name is a suite or an experiment.
fn check_names(experiments: &[Experiment], names: &[String]) -> Result<(), CliError> {
    for name in names {
        let selected = std::slice::from_ref(name);
        if !experiments.iter().any(|experiment| is_selected(selected, &experiment.id())) {
            let known = experiments.iter().filter(|one| !is_self_test(&one.suite));
            let known = known.map(Experiment::id).collect::<Vec<_>>().join(", ");
            return Err(CliError::usage(format!(
                "unknown suite or experiment '{name}'; expected one of {known}"
            )));
        }
    }
    Ok(())
}

/// Returns all experiments with the points that claims need, and with the effort of a profile. Experiments and levels
/// that the profile skips are taken from the next one.
fn claimed(
    catalogue: &Catalogue,
    profile: Profile,
    claims: &[Claim],
) -> Result<Vec<Experiment>, CliError> {
    let order = [Profile::Quick, Profile::Standard, Profile::Full];
    let profiles = order.into_iter().skip_while(|one| *one != profile);
    let declared: Result<Vec<_>, _> = profiles.map(|one| catalogue.all_experiments(one)).collect();
    let declared = declared?;
    let Some((experiments, _)) = declared.split_first() else { return Ok(Vec::new()) };
    // Claims on the lab itself can be judged by any run of a boundary.
    if claims.iter().all(|claim| is_lab_experiment(&claim.experiment)) {
        let mut experiments = catalogue.experiments(profile)?;
        experiments.retain(|experiment| !is_self_test(&experiment.suite));
        return Ok(experiments);
    }
    let with_points = |experiment: &Experiment| {
        let of_experiment = |one: &&Experiment| one.id() == experiment.id();
        let profiles: Vec<_> =
            declared.iter().filter_map(|all| all.iter().find(of_experiment)).collect();
        let needed: BTreeSet<_> =
            claims.iter().flat_map(|claim| claim::needs_of_profiles(claim, &profiles)).collect();
        // Each once, in the order of the declaration.
        let kept = |all: &dyn Fn(&Experiment) -> &[Point]| {
            let mut kept: Vec<Point> = Vec::new();
            for point in profiles.iter().flat_map(|one| all(one)) {
                if needed.contains(point) && !kept.contains(point) {
                    kept.push(point.clone());
                }
            }
            kept
        };
        let (points, twins) = (kept(&|one| &one.points), kept(&|one| &one.twins));
        let mut part = experiment.clone();
        part.keep(|point| needed.contains(point));
        Experiment { points, twins, ..part }
    };
    Ok(experiments.iter().map(with_points).collect())
}

/// Returns claims whose commands name the results folder and the files that were given.
pub(crate) fn with_arguments(claims: Vec<Claim>, results: &Path, files: &[PathBuf]) -> Vec<Claim> {
    let arguments = arguments_of(results, files);
    claims.into_iter().map(|claim| Claim { arguments: arguments.clone(), ..claim }).collect()
}

/// Returns the arguments that name a results folder, unless it is the default, and files, each after a space.
pub(crate) fn arguments_of(results: &Path, files: &[PathBuf]) -> String {
    let results = (results != Path::new("results")).then_some(("--results", results));
    let files = files.iter().map(|file| ("-e", file.as_path()));
    let all = results.into_iter().chain(files);
    all.map(|(name, path)| format!(" {name} {}", quoted(&path.to_string_lossy()))).collect()
}

/// Quotes a word for a shell if necessary.
pub(crate) fn quoted(word: &str) -> String {
    // Words with NUL cannot be arguments.
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), Into::into)
}

/// Leaves out the points that only claims for machines with more cores need.
pub(crate) fn leave_out_larger(experiments: &mut [Experiment], claims: &[Claim], cores: usize) {
    let (larger, others): (Vec<_>, Vec<_>) =
        claims.iter().partition(|claim| claim.cores.is_some_and(|needed| needed > cores));
    for experiment in experiments {
        let needed = |claims: &[&Claim]| -> BTreeSet<Point> {
            claims.iter().flat_map(|claim| claim::needs(claim, experiment)).collect()
        };
        let (larger, others) = (needed(&larger), needed(&others));
        let mut always = experiment.twins.clone();
        always.push(experiment.baseline.clone());
        experiment.keep(|point| {
            !larger.contains(point) || others.contains(point) || always.contains(point)
        });
    }
}

/// Keeps the points with the levels of `--where`. Experiments without such a factor keep none.
fn keep_levels(experiments: &mut [Experiment], texts: &[String]) -> Result<(), CliError> {
    let levels = filter(texts)?;
    if levels.0.is_empty() {
        return Ok(());
    }
    let (mut is_known, mut unknown) = (false, None);
    for experiment in experiments {
        match levels.canonical(method_of(experiment)?.factors()) {
            Ok(filter) => {
                is_known = true;
                experiment.keep_with_floor(|point| filter.matches(point));
            }
            Err(why) => {
                experiment.keep(|_| false);
                unknown.get_or_insert(why);
            }
        }
    }
    match unknown {
        Some(why) if !is_known => Err(CliError::usage(format!("--where: {why}"))),
        _ => Ok(()),
    }
}

/// Keeps few points that together have each level: those with the most new levels, first of the points that this host can
/// measure, then of the others. For a guest, keeps for each level the point that differs least from the baseline: it has as
/// few other levels as possible that the guest may lack.
fn keep_each_level(experiment: &mut Experiment, place: Place) -> Result<(), CliError> {
    if place == Place::Elsewhere {
        let kept = nearest_to_baseline(experiment);
        experiment.keep_with_floor(|point| kept.contains(point));
        return Ok(());
    }
    let method = method_of(experiment)?;
    let (available, others): (Vec<&Point>, Vec<&Point>) =
        experiment.points.iter().partition(|point| method.available(point).is_ok());
    let (mut covered, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for points in [available, others] {
        loop {
            let new = |point: &&&Point| {
                point.levels().filter(|(name, level)| !covered.contains(&(*name, *level))).count()
            };
            let Some(best) = points.iter().max_by_key(new).filter(|best| new(best) > 0) else {
                break;
            };
            covered.extend(best.levels());
            kept.insert((*best).clone());
        }
    }
    experiment.keep_with_floor(|point| kept.contains(point));
    Ok(())
}

/// Returns for each level the point with it that differs from the baseline in the fewest factors.
fn nearest_to_baseline(experiment: &Experiment) -> BTreeSet<Point> {
    let baseline = &experiment.baseline;
    let distance = |point: &&Point| point.differing(baseline);
    let mut nearest: Vec<&Point> = experiment.points.iter().collect();
    nearest.sort_by_key(distance);
    let (mut covered, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for point in nearest {
        let before = covered.len();
        covered.extend(point.levels());
        if covered.len() > before {
            kept.insert(point.clone());
        }
    }
    kept
}

/// Keeps the points whose names contain a text, or all if the experiment's ID does.
fn keep_text(experiment: &mut Experiment, text: &str) {
    let id = experiment.id();
    // Defaults that the experiment does not name would match everywhere.
    let defaults = experiment.defaults.clone();
    let contains = |point: &Point| point.without_levels(&defaults).to_string().contains(text);
    experiment.keep_with_floor(|point| id.contains(text) || contains(point));
}

/// Parses the arguments of `--where`.
pub(crate) fn filter(texts: &[String]) -> Result<Filter, CliError> {
    let mut filter = Filter::default();
    texts.iter().try_for_each(|text| filter.add(text)).map_err(CliError::usage)?;
    Ok(filter)
}

/// Returns the method of an experiment.
pub(crate) fn method_of(experiment: &Experiment) -> Result<&'static dyn AnyMethod, CliError> {
    lab::suite::method(suite_of(experiment)?, &experiment.method).map_err(CliError::failed)
}

/// Returns the suite of an experiment.
pub(crate) fn suite_of(experiment: &Experiment) -> Result<&'static Suite, CliError> {
    lab::suite::find(SUITES, &experiment.suite)
        .ok_or_else(|| CliError::failed(format!("unknown suite '{}'", experiment.suite)))
}

/// Returns the claims selected by names: a suite, a source, the short name of a source, or an ID. No names select all claims but
/// those on the self-test suites.
pub(crate) fn select_claims(
    catalogue: &Catalogue,
    names: &[String],
) -> Result<Vec<Claim>, CliError> {
    let all = catalogue.claims()?;
    let matches = |claim: &Claim, name: &String| {
        let suite = suite_name(&claim.experiment);
        // The source 'tollgate' selects the promises on boundaries only.
        let is_on_instrument = claim.is_promise() && is_self_test(suite);
        let is_source = claim.source == *name && !is_on_instrument;
        // The IDs of a published source begin with its short name.
        let is_short = !claim.is_promise() && claim.id.split('-').next() == Some(name.as_str());
        claim.id == *name || suite == name || is_source || is_short
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|claim| matches(claim, name))) {
        let line = format!(
            "unknown claim, source or suite '{name}'; 'tollgate claims --all' lists all claims"
        );
        return Err(CliError::usage(line));
    }
    let is_selected = |claim: &Claim| match names {
        [] => !is_self_test(suite_name(&claim.experiment)),
        names => names.iter().any(|name| matches(claim, name)),
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

/// Returns `similar: ...` with the names that may be meant for an unknown one; `None` without any.
pub(crate) fn similar<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    /// Maximum number of names.
    const MAX: usize = 5;
    /// Minimum length of a name that is sought within others, in bytes.
    const MIN_SOUGHT: usize = 3;
    /// Minimum similarity (Jaro and Winkler), from 0 to 1.
    const MIN_SIMILARITY: f64 = 0.85;
    let sought = name.to_lowercase();
    let similarity = |known: &str| match known.contains(&sought) {
        true if sought.len() >= MIN_SOUGHT => 1.0,
        _ => strsim::jaro_winkler(known, &sought),
    };
    let mut similar: Vec<(f64, &str)> = known.map(|known| (similarity(known), known)).collect();
    similar.retain(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    similar.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.len().cmp(&other.len())));
    let names: Vec<_> = similar.into_iter().take(MAX).map(|(_, known)| known).collect();
    (!names.is_empty()).then(|| format!("similar: {}", names.join(", ")))
}

/// Returns whether a suite tests the instrument.
pub(crate) fn is_self_test(suite: &str) -> bool {
    lab::suite::find(SUITES, suite).is_some_and(|suite| suite.purpose() == Purpose::SelfTest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use lab::experiment::Profile;

    use super::*;
    use crate::arguments::PointArgs;

    #[test]
    fn the_profile_is_the_one_that_all_claims_require_unless_it_is_chosen() {
        let catalogue = catalogue(&[]).unwrap();
        let selected = |profile: Option<Profile>, claims: &[&str]| {
            let points = PointArgs {
                profile,
                filter: None,
                levels: Vec::new(),
                each_level: false,
                files: Vec::new(),
            };
            let claim = claims.iter().copied().map(String::from).collect();
            let selection = SelectionArgs { names: Vec::new(), points, claim };
            select_experiments(&catalogue, &selection, Place::Host).unwrap().profile
        };
        let (standard, quick) =
            ("mpx-tables-kept-kernel-instructions", "mpx-tables-kept-user-instructions");
        assert_eq!(selected(None, &[]), Profile::Quick);
        assert_eq!(selected(None, &[quick]), Profile::Quick);
        assert_eq!(selected(None, &[standard]), Profile::Standard);
        assert_eq!(selected(None, &[standard, quick]), Profile::Quick);
        assert_eq!(selected(Some(Profile::Full), &[standard]), Profile::Full);
    }

    #[test]
    fn the_short_name_of_a_source_selects_its_published_claims() {
        let catalogue = catalogue(&[]).unwrap();
        let ids = |name: &str| -> Vec<String> {
            let claims = select_claims(&catalogue, &[name.to_owned()]).unwrap();
            claims.into_iter().map(|claim| claim.id).collect()
        };
        let enso = ids("enso");
        assert!(enso.len() > 10 && enso.iter().all(|id| id.starts_with("enso-")), "{enso:?}");
        assert!(ids("Ensō evaluation").iter().all(|id| enso.contains(id)));
        assert!(select_claims(&catalogue, &["enso-".to_owned()]).is_err());
        assert!(select_claims(&catalogue, &["pipes".to_owned()]).is_err(), "promises have none");
    }

    #[test]
    fn an_evaluation_on_two_hosts_includes_the_experiments_of_their_roles() {
        let catalogue = catalogue(&[]).unwrap();
        let added = |claim: &[&str], names: &[&str], roles: &[&str]| {
            let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
            let points = PointArgs {
                profile: None,
                filter: None,
                levels: Vec::new(),
                each_level: false,
                files: Vec::new(),
            };
            let selection = SelectionArgs { names: words(names), points, claim: words(claim) };
            let Selected { profile, mut experiments } =
                select_experiments(&catalogue, &selection, Place::Elsewhere).unwrap();
            let (before, roles): (usize, Vec<String>) = (experiments.len(), words(roles));
            add_of_roles(&catalogue, &selection, (profile, &roles), &mut experiments).unwrap();
            assert_eq!(super::roles(&experiments).is_empty(), before == experiments.len());
            experiments[before..].iter().map(Experiment::id).collect::<Vec<_>>()
        };
        let of_two = ["stream/two-host-rate", "stream/two-host-rtt"];
        assert_eq!(added(&["enso"], &[], &["generator", "dut"]), of_two);
        assert!(added(&["enso"], &[], &[]).is_empty());
        assert!(added(&["enso"], &[], &["dut"]).is_empty(), "one of them has no host");
        assert!(added(&["enso"], &["stream/rtt-vs-load"], &["generator", "dut"]).is_empty());
        assert!(added(&["mpx"], &[], &["generator", "dut"]).is_empty(), "another suite");
    }

    #[test]
    fn for_a_guest_each_level_has_the_point_nearest_to_the_baseline_whatever_this_host_has() {
        let catalogue = catalogue(&[]).unwrap();
        let all = catalogue.experiments(Profile::Full).unwrap();
        let throughput = all.into_iter().find(|one| one.id() == "copy/throughput").unwrap();
        let distance = |point: &Point| {
            let differs =
                |it: &(&str, &lab::point::Level)| throughput.baseline.get(it.0) != Some(it.1);
            point.levels().filter(differs).count()
        };
        let mut kept = throughput.clone();
        keep_each_level(&mut kept, Place::Elsewhere).unwrap();
        assert!(kept.points.len() < throughput.points.len() / 4);
        for (factor, level) in throughput.points.iter().flat_map(|point| point.levels()) {
            let least = |one: &Experiment| {
                let points = one.points.iter().filter(|point| point.get(factor) == Some(level));
                points.map(distance).min()
            };
            assert_eq!(least(&kept), least(&throughput), "{factor}={level}");
        }
    }

    #[test]
    fn only_points_of_claims_for_larger_machines_are_left_out() {
        let catalogue = catalogue(&[]).unwrap();
        let claims = catalogue.claims().unwrap();
        let all = catalogue.experiments(Profile::Quick).unwrap();
        let mut kept = all.clone();
        leave_out_larger(&mut kept, &claims, 1024);
        assert_eq!(kept, all);
        leave_out_larger(&mut kept, &claims, 2);
        let threads = |experiments: &[Experiment]| -> BTreeSet<String> {
            let one = experiments.iter().find(|one| one.id() == "enclave/allocation").unwrap();
            one.points.iter().map(|point| point.text("threads").into()).collect()
        };
        assert_eq!(threads(&all).len(), 8);
        assert_eq!(threads(&kept), ["1", "2"].map(String::from).into());
        for claim in claims.iter().filter(|claim| claim.cores.is_none_or(|cores| cores <= 2)) {
            for (before, after) in all.iter().zip(&kept) {
                assert_eq!(claim::needs(claim, after), claim::needs(claim, before), "{}", claim.id);
            }
        }
    }
}
