//! `tollgate list`

use lab::suite::Purpose;
use report::table::Page;

use crate::SUITES;
use crate::arguments::List;
use crate::fault::Fault;
use crate::output::{print, print_json};
use crate::select;

/// Prints what can be measured; the factors and levels too, where experiments are named.
pub(crate) fn run(given: &List) -> Result<u8, Fault> {
    let catalogue = select::catalogue(&given.choice.files)?;
    let experiments = if given.all {
        catalogue.experiments(given.choice.profile.into())?
    } else {
        select::chosen(&catalogue, &given.choice)?
    };
    if given.json {
        print_json(&report::table::list_json(SUITES, &experiments))?;
        return Ok(0);
    }
    print(&report::table::list(SUITES, &experiments, Page::stdout()))?;
    if !given.choice.names.is_empty() {
        for experiment in &experiments {
            print("")?;
            print(&report::table::describe(SUITES, experiment, Page::stdout()))?;
        }
    } else if !given.all {
        let hidden = SUITES.iter().filter(|suite| suite.purpose() == Purpose::SelfTest);
        let names: Vec<_> = hidden.map(|suite| suite.name()).collect();
        print(&format!("also, to test the instrument itself: {}", names.join(", ")))?;
    }
    Ok(0)
}
