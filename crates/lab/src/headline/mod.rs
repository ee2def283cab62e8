//! Headlines: results in plain words, as data. A headline has sentences with slots, which a run fills.

mod fill;
mod slot;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

pub use fill::{Filled, fill, rounds};
pub use slot::{Slot, SlotKind};

use crate::data::is_plain_name;
use crate::experiment::{Experiment, suite_name};
use crate::point::Point;
use crate::suite::Suite;

/// A declared headline.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// ID on the command line: `system-call`.
    pub id: String,
    /// ID of the experiment of the slots that name no other: `crossing/round-trips`.
    pub experiment: String,
    /// Sentences, the preferred one first. `{NAME}` stands for the value of a slot. The first
    /// sentence of which every slot has a value is used; if there is none, the headline is omitted.
    pub says: Vec<String>,
    /// Slots by name.
    pub slots: BTreeMap<String, Slot>,
}

/// Part of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    /// Name of a slot.
    Slot(&'a str),
}

impl Headline {
    /// Returns the number of slots of the sentence that has the fewest.
    pub(crate) fn fewest_slots(&self) -> usize {
        let slots = |sentence: &String| {
            let parts = parts(sentence).unwrap_or_default();
            parts.iter().filter(|part| matches!(part, Part::Slot(_))).count()
        };
        self.says.iter().map(slots).min().unwrap_or_default()
    }

    /// Returns the suite of its experiment.
    pub fn suite(&self) -> &str {
        suite_name(&self.experiment)
    }

    /// Returns the experiment of a slot.
    pub fn experiment_of<'a>(&'a self, slot: &'a Slot) -> &'a str {
        slot.experiment.as_deref().unwrap_or(&self.experiment)
    }

    /// Returns the experiments of all slots.
    pub fn experiments(&self) -> BTreeSet<&str> {
        self.slots.values().map(|slot| self.experiment_of(slot)).collect()
    }

    /// Returns the pairs of points of an experiment whose ratio is in a slot.
    pub(crate) fn compared(&self, experiment: &Experiment) -> Vec<[Point; 2]> {
        let id = experiment.id();
        let slots = self.slots.values().filter(|slot| self.experiment_of(slot) == id);
        let pair = |slot: &Slot| match &slot.kind {
            SlotKind::Ratio { of, to } | SlotKind::Share { of, to } => {
                Some([of, to].map(|side| slot::point(side, &experiment.baseline)))
            }
            SlotKind::Value(_) | SlotKind::Every { .. } | SlotKind::Outside { .. } => None,
        };
        slots.filter_map(pair).collect()
    }

    /// Checks what can be checked without the experiments.
    ///
    /// # Errors
    /// Returns the fault in one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.checked().map_err(|what| format!("headline '{}': {what}", self.id))
    }

    fn checked(&self) -> Result<(), String> {
        if !is_plain_name(&self.id) {
            return Err("the ID is a word; use letters, digits and '-'".into());
        }
        if self.says.is_empty() {
            return Err("'says' has no sentence; add one".into());
        }
        let mut used = BTreeSet::new();
        for sentence in &self.says {
            for part in parts(sentence)? {
                if let Part::Slot(name) = part {
                    used.insert(name);
                }
            }
        }
        let known = || self.slots.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if let Some(name) = used.iter().find(|name| !self.slots.contains_key(**name)) {
            return Err(format!("says: unknown slot '{name}'; expected one of {}", known()));
        }
        match self.slots.keys().find(|name| !used.contains(name.as_str())) {
            Some(name) => Err(format!("slot '{name}' is in no sentence; write '{{{name}}}'")),
            None => Ok(()),
        }
    }

    /// Returns the headline with the metrics named and the levels in canonical spelling.
    /// `experiments` are those of all profiles.
    ///
    /// # Errors
    /// Returns one line for an unknown experiment, metric, factor or level, and for a point that no
    /// profile measures.
    pub(crate) fn resolve(
        &self,
        suites: &[&Suite],
        experiments: &[Experiment],
    ) -> Result<Self, String> {
        let mut resolved = self.clone();
        for (name, slot) in &mut resolved.slots {
            slot.resolve(self.experiment_of(&self.slots[name]), suites, experiments)
                .map_err(|what| format!("headline '{}': slot '{name}': {what}", self.id))?;
        }
        Ok(resolved)
    }
}

/// Splits a sentence into text and slots.
fn parts(sentence: &str) -> Result<Vec<Part<'_>>, String> {
    let unbalanced =
        || format!("says: unbalanced braces in '{sentence}'; write slots as '{{name}}'");
    let mut parts = Vec::new();
    for (index, piece) in sentence.split('{').enumerate() {
        let text = match piece.split_once('}') {
            Some((name, text)) if index > 0 => {
                parts.push(Part::Slot(name));
                text
            }
            None if index == 0 => piece,
            _ => return Err(unbalanced()),
        };
        if text.contains('}') {
            return Err(unbalanced());
        }
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_text_and_slots() {
        let split = parts("A call takes {call}, {times} times as long").unwrap();
        let expected = [
            Part::Text("A call takes "),
            Part::Slot("call"),
            Part::Text(", "),
            Part::Slot("times"),
            Part::Text(" times as long"),
        ];
        assert_eq!(split, expected);
        for wrong in ["a {b", "a b}", "{a} b}", "{a{b}}", "}"] {
            assert!(parts(wrong).unwrap_err().contains("unbalanced braces"), "{wrong}");
        }
    }

    #[test]
    fn sentences_and_slots_must_fit() {
        let check = |says: &str, id: &str| {
            let text = format!(
                "id = \"{id}\"\nexperiment = \"toy/copy\"\nsays = [{says}]\n\
                 [slots]\none = {{ value = {{ length = 64 }} }}\n"
            );
            toml::from_str::<Headline>(&text).unwrap().check()
        };
        assert_eq!(check("\"it takes {one}\", \"{one}\"", "a"), Ok(()));
        for (says, id, what) in [
            ("", "a", "'says' has no sentence"),
            ("\"{two}\"", "a", "says: unknown slot 'two'; expected one of one"),
            ("\"it\"", "a", "slot 'one' is in no sentence; write '{one}'"),
            ("\"{one}\"", "a b", "the ID is a word"),
        ] {
            let why = check(says, id).unwrap_err();
            assert!(why.starts_with(&format!("headline '{id}': {what}")), "{why}");
        }
    }
}
