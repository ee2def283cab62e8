//! `tollgate doctor`: what can be measured on this machine, and how to enable the rest.

use std::collections::BTreeMap;

use lab::claim::{self, Claim};
use lab::experiment::{Experiment, Profile};
use lab::format::count;
use lab::option;
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Purpose;
use machine::capability::Capability;
use machine::topology::Topology;
use report::table::{self, Lack, Page};

use crate::arguments::Doctor;
use crate::error::CliError;
use crate::output::{print, print_json, print_message, restored};
use crate::select;
use crate::suites::SUITES;

/// Prints the capabilities of the machine and the opt-in features of the suites. Before that, restores the settings that a
/// killed run had changed.
pub(crate) fn doctor(args: &Doctor) -> Result<u8, CliError> {
    if let Some(name) = &args.guest.guest {
        return super::guest::doctor(name, &args.guest.how, args.json);
    }
    if let Some(name) = &args.host.host {
        return super::hosts::doctor(name, &args.host.config, args.json);
    }
    let left = machine::setting::restore_left();
    left.restored.iter().for_each(|setting| print_message(&restored(setting)));
    left.failed.iter().for_each(|why| print_message(&why.to_string()));
    let mut groups = vec![("machine".to_string(), Capability::all())];
    let boundaries = SUITES.iter().filter(|suite| suite.purpose() == Purpose::Boundary);
    groups.extend(boundaries.map(|suite| (suite.name().to_string(), suite.capabilities())));
    let options = option::known(SUITES);
    let catalogue = select::catalogue(&[])?;
    let claims = select::select_claims(&catalogue, &[])?;
    let lacks = lacks(&claims, &catalogue.all_experiments(Profile::Full)?)?;
    if args.json {
        print_json(&table::doctor_output(&groups, &lacks, &options))?;
    } else {
        print(&table::doctor(&groups, &lacks, Page::stdout()))?;
        print("")?;
        print(&table::options(&options, Page::stdout()))?;
    }
    Ok(0)
}

/// Returns what this machine lacks for points of claims: that of most claims first. A claim counts once, at the first
/// of its points that is unavailable.
fn lacks(claims: &[Claim], experiments: &[Experiment]) -> Result<Vec<Lack>, CliError> {
    let cores = Topology::detect().physical_cores();
    let mut known: BTreeMap<(String, Point), Option<Failure>> = BTreeMap::new();
    let mut lacks: Vec<Lack> = Vec::new();
    for claim in claims {
        let failure = match experiments.iter().find(|one| one.id() == claim.experiment) {
            _ if claim.cores.is_some_and(|needed| needed > cores) => {
                let why = format!("only {}", count(cores, "physical core"));
                Some(Failure::unavailable(why, "measure on a larger machine"))
            }
            Some(experiment) => {
                let method = select::method_of(experiment)?;
                let failure = |point: Point| {
                    let key = (experiment.id(), point);
                    let point = key.1.clone();
                    known.entry(key).or_insert_with(|| method.available(&point).err()).clone()
                };
                claim::needs(claim, experiment).into_iter().find_map(failure)
            }
            None => None,
        };
        let Some(failure) = failure else { continue };
        match lacks.iter_mut().find(|known| known.cause == failure.cause()) {
            Some(known) => known.claims += 1,
            None => lacks.push(Lack {
                cause: failure.cause().into(),
                remedy: failure.remedy,
                claims: 1,
            }),
        }
    }
    lacks.sort_by_key(|lack| std::cmp::Reverse(lack.claims));
    Ok(lacks)
}
