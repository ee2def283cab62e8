//! What this machine can measure, and what it cannot.

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

/// The same as data.
pub fn doctor_json(groups: &[(String, Vec<Capability>)]) -> Value {
    let groups = groups.iter().map(|(name, all)| json!({"of": name, "capabilities": all}));
    groups.collect()
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
