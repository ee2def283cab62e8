//! What this machine can measure, and what it cannot.

use lab::option::SuiteOption;
use lab::suite::{Capability, State};
use serde_json::{Value, json};

use super::page::{Entry, Head, Page, Tone};
use crate::format;

/// Capabilities by who needs them (`machine`, then suites), as tables: what is there with what was
/// found, what is not with the reason and the remedy.
pub fn doctor(groups: &[(String, Vec<Capability>)], page: Page) -> String {
    let mut text = String::new();
    for (name, capabilities) in groups.iter().filter(|(_, all)| !all.is_empty()) {
        let present = capabilities.iter().filter(|c| c.state.is_present()).count();
        let line = format!("{name}: {present} of {} present", capabilities.len());
        text += &page.paragraph(&line, 2, Tone::Strong);
        let heads = [Head::left("capability"), Head::left("here"), Head::left("what was found")];
        text += &page.table(&heads, capabilities.iter().map(row).collect());
        text.push('\n');
    }
    let all: Vec<&Capability> = groups.iter().flat_map(|(_, all)| all).collect();
    let absent = all.iter().filter(|c| !c.state.is_present()).count();
    let verdict = if absent == 0 {
        "everything can be measured here".to_string()
    } else {
        let are = format::count(absent, "capability").replace("capabilitys", "capabilities");
        format!("{are} absent: points that need them are said to be unavailable, with the reason")
    };
    text + &page.paragraph(&verdict, 2, Tone::Plain)
}

/// What is off until a user asks for it by name, as a table.
pub fn options(known: &[SuiteOption], page: Page) -> String {
    let row = |option: &SuiteOption| vec![option.usage().into(), option.enables.into()];
    let heads = [Head::left("option of run"), Head::left("what it enables or sets")];
    let title = "off until asked for by name";
    page.paragraph(title, 2, Tone::Strong) + &page.table(&heads, known.iter().map(row).collect())
}

/// Both as data.
pub fn doctor_json(groups: &[(String, Vec<Capability>)], known: &[SuiteOption]) -> Value {
    let groups = groups.iter().map(|(name, all)| json!({"of": name, "capabilities": all}));
    let option = |option: &SuiteOption| json!({"usage": option.usage(), "enables": option.enables});
    let options: Value = known.iter().map(option).collect();
    groups.chain([json!({"of": "options", "options": options})]).collect()
}

fn row(capability: &Capability) -> Vec<Entry> {
    let (here, tone, found) = match &capability.state {
        State::Present { detail } => ("yes", Tone::Good, format!("{}: {detail}", capability.about)),
        State::Absent { reason, remedy } => {
            ("no", Tone::Doubtful, format!("{}: {reason}; {remedy}", capability.about))
        }
    };
    vec![capability.name.as_str().into(), Entry::new(here, tone), found.into()]
}
