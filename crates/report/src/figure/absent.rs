//! What has no value, by its reason.

use lab::point::Level;
use lab::summary::Row;

use super::select::Selection;

/// Reasons, each with the names of what it keeps from having a value.
#[derive(Default)]
pub(super) struct Absent(Vec<(String, Vec<String>)>);

impl Absent {
    /// Adds the points of a selection that have no value: by their series where it has none at all,
    /// by their place on x where no series has one there, and else by both.
    pub(super) fn add(&mut self, selection: &Selection<'_>, metric: &str) {
        let rows = &selection.rows;
        for ((series, x), row) in rows.iter().filter(|(_, row)| row.estimate.is_none()) {
            let none = |is_there: &dyn Fn(&(Level, Level)) -> bool| {
                rows.iter().all(|(at, row)| !is_there(at) || row.estimate.is_none())
            };
            let name = match series.as_str() {
                "" => x.to_string(),
                series if none(&|at| at.0.as_str() == series) => series.into(),
                _ if none(&|at| at.1 == *x) => x.to_string(),
                series => format!("{series} {x}"),
            };
            self.say(reason(row, metric), &name);
        }
    }

    /// Adds one name under its reason.
    pub(super) fn say(&mut self, why: String, name: &str) {
        let at = self.0.iter().position(|(known, _)| *known == why).unwrap_or_else(|| {
            self.0.push((why, Vec::new()));
            self.0.len() - 1
        });
        let names = &mut self.0[at].1;
        if !names.iter().any(|known| known == name) {
            names.push(name.into());
        }
    }

    /// A line for each reason.
    pub(super) fn told(self) -> impl Iterator<Item = String> {
        let text =
            |(why, names): (String, Vec<String>)| format!("no value: {} ({why})", names.join(", "));
        self.0.into_iter().map(text)
    }
}

fn reason(row: &Row, metric: &str) -> String {
    match (row.errors.iter().next(), row.void_rounds) {
        (Some((kind, fault)), _) => format!("{}: {}", kind.name(), fault.why),
        (None, 0) => format!("it has no {metric}"),
        (None, _) => "all rounds void".into(),
    }
}
