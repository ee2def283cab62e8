//! `tollgate doctor`

use lab::option;
use lab::suite::Purpose;
use machine::capability::Capability;
use report::table::Page;

use crate::SUITES;
use crate::arguments::Doctor;
use crate::fault::Fault;
use crate::output::{print, print_json, restored, tell};

/// Prints what this machine can measure, and how to enable what it cannot.
pub(crate) fn run(given: &Doctor) -> Result<u8, Fault> {
    let left = machine::setting::restore_left();
    left.restored.iter().for_each(|setting| tell(&restored(setting)));
    left.failed.iter().for_each(|why| tell(&why.to_string()));
    let mut groups = vec![("machine".to_string(), Capability::all())];
    let boundaries = SUITES.iter().filter(|suite| suite.purpose() == Purpose::Boundary);
    groups.extend(boundaries.map(|suite| (suite.name().to_string(), suite.capabilities())));
    let options = option::known(SUITES);
    if given.json {
        print_json(&report::table::doctor_json(&groups, &options))?;
    } else {
        print(&report::table::options(&options, Page::stdout()))?;
        print("")?;
        print(&report::table::doctor(&groups, Page::stdout()))?;
    }
    Ok(0)
}
