//! Sides of a comparison within one run: two programs, or two settings of this program.
//!
//! Each side has its own workers. In each round every point is measured by both sides, one after the other and in
//! random order, so that the ratio of the sides is paired within rounds like that of any two points. To the plan, the
//! journal and the statistics the side is a factor, which no method has; the workers do not receive it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use machine::child;
use machine::environment::Environment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::link::local_worker;
use crate::message::PROTOCOL;
use crate::point::Point;

/// The name of the factor.
pub const FACTOR: &str = "side";
/// The levels of the factor, in the order of the sides of a run.
pub const LEVELS: [&str; 2] = ["old", "new"];

/// The setting that is the nice value of the workers; others are environment variables.
const NICE: &str = "nice";

/// The program of a side and its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// The absolute path of the program; `None` for this program.
    pub program: Option<PathBuf>,
    /// The nice value of its processes; `None` for that of this process.
    pub nice: Option<i32>,
    /// The environment variables that are set for its processes.
    pub variables: BTreeMap<String, String>,
}

/// A side as a run measured it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SideRecord {
    /// The program and its settings.
    #[serde(flatten)]
    pub side: Side,
    /// The version of the program.
    pub version: String,
    /// The BLAKE3 digest of the program in hexadecimal; `None` if it cannot be read.
    pub digest: Option<String>,
}

impl Side {
    /// Parses a side: the path of a program, settings separated by spaces (`nice=5 MALLOC_ARENA_MAX=1`), or `-` for
    /// this program without settings.
    ///
    /// # Errors
    /// Returns one line if a setting is unknown, or no file has the path.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::default());
        }
        if !text.split('=').next().is_some_and(|name| name != text && is_name(name)) {
            let program = std::fs::canonicalize(text).map_err(|why| {
                format!(
                    "{text}: {why}; name a tollgate program, settings such as '{NICE}=5', or '-' for this program"
                )
            })?;
            return Ok(Self { program: Some(program), ..Self::default() });
        }
        let mut side = Self::default();
        for setting in text.split_whitespace() {
            side.set(setting)?;
        }
        Ok(side)
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let is_variable = is_name(name) && !name.contains(|c: char| c.is_ascii_lowercase());
        let is_new = match value.parse() {
            Ok(nice) if name == NICE && (-20..=19).contains(&nice) => {
                self.nice.replace(nice).is_none()
            }
            _ if name == NICE => return Err(format!("{setting}: use a nice value from -20 to 19")),
            _ if is_variable && setting.contains('=') => {
                self.variables.insert(name.into(), value.into()).is_none()
            }
            _ => {
                return Err(format!(
                    "{setting}: unknown setting; use '{NICE}=N' or an environment variable in capitals, 'NAME=VALUE'"
                ));
            }
        };
        if is_new { Ok(()) } else { Err(format!("{setting}: '{name}' is set twice; set it once")) }
    }

    /// Returns the command of a worker.
    pub(crate) fn worker(&self) -> Command {
        let mut command = local_worker(self.program.as_deref());
        command.envs(&self.variables);
        if let Some(nice) = self.nice {
            child::set_nice(&mut command, nice);
        }
        command
    }

    /// Returns why a worker did not start, with the remedy.
    pub(crate) fn not_started(&self, why: &str) -> String {
        match (&self.program, self.nice) {
            (Some(program), _) => format!(
                "{}: {why}; name a tollgate program whose messages have version {PROTOCOL}",
                program.display()
            ),
            (None, Some(..0)) => {
                format!("{self}: {why}; run as root, or raise the limit with 'prlimit --nice=40'")
            }
            (None, _) => why.into(),
        }
    }

    /// Returns the record of this side in the environment of its workers.
    pub(crate) fn record(&self, environment: &Environment) -> SideRecord {
        let Environment { program_version, program_hash, .. } = environment;
        SideRecord {
            side: self.clone(),
            version: program_version.clone(),
            digest: program_hash.clone(),
        }
    }
}

/// Returns whether a text is the name of an environment variable.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program.iter().map(|program| program.display().to_string());
        let nice = self.nice.iter().map(|nice| format!("{NICE}={nice}"));
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = program.chain(nice).chain(variables).collect();
        match words.as_slice() {
            [] => f.write_str("this program"),
            words => f.write_str(&words.join(" ")),
        }
    }
}

/// Returns how the sides of two sessions of a run differ; `None` if they are equal.
pub(crate) fn difference(before: &[SideRecord], now: &[SideRecord]) -> Option<String> {
    let names = |sides: &[SideRecord]| match sides {
        [] => "no comparison".to_owned(),
        sides => {
            sides.iter().map(|one| format!("'{}'", one.side)).collect::<Vec<_>>().join(" and ")
        }
    };
    let (names_before, names_now) = (names(before), names(now));
    if names_before != names_now {
        return Some(format!("sides: the run has {names_before}, now it is {names_now}"));
    }
    let changed = before.iter().zip(now).find(|(before, now)| before != now);
    changed.map(|(_, now)| format!("{}: the program changed since the run began", now.side))
}

/// Returns the index of the side of a point; 0 without sides.
pub(crate) fn index(point: &Point) -> usize {
    LEVELS.iter().position(|level| *level == point.text(FACTOR)).unwrap_or(0)
}

/// Returns whether an experiment is measured by two sides.
pub(crate) fn is_crossed(experiment: &Experiment) -> bool {
    experiment.baseline.get(FACTOR).is_some()
}

/// Makes both sides measure each item of an experiment. If it has no twins, one point becomes one, because a difference
/// is resolved only above a noise floor.
pub fn cross(experiment: &mut Experiment) {
    if experiment.twins.is_empty() {
        let is_measured = experiment.points.contains(&experiment.baseline);
        let baseline = is_measured.then_some(&experiment.baseline);
        experiment.twins.extend(baseline.or(experiment.points.first()).cloned());
    }
    for points in [&mut experiment.points, &mut experiment.twins] {
        *points =
            points.iter().flat_map(|point| LEVELS.map(|level| point.with(FACTOR, level))).collect();
    }
    experiment.compared = experiment.points.chunks(LEVELS.len()).map(<[Point]>::to_vec).collect();
    experiment.baseline = experiment.baseline.with(FACTOR, LEVELS[0]);
    experiment.sweeps.iter_mut().for_each(|sweep| sweep.push(FACTOR.into()));
    // Consecutive points of an order share a process, and those of different sides cannot.
    experiment.batch = 1;
    // Both sides measure in the same boot, and no claim is judged on a comparison.
    experiment.blocking.clear();
    experiment.skipped.clear();
}

/// Returns the folder of the runs with sides in a results folder.
pub fn results(folder: &Path) -> PathBuf {
    folder.join("compare")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Profile;
    use crate::plan::{self, RoundOrder};

    #[test]
    fn a_side_is_a_program_or_settings() {
        assert_eq!(Side::parse("-"), Ok(Side::default()));
        let side =
            Side::parse("GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=4096 nice=5").unwrap();
        assert_eq!(side.nice, Some(5));
        assert_eq!(side.variables["GLIBC_TUNABLES"], "glibc.cpu.x86_rep_movsb_threshold=4096");
        assert_eq!(side.program, None);
        let text = "nice=5 GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=4096";
        assert_eq!(side.to_string(), text);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("A=1 b");
        std::fs::write(&file, "").unwrap();
        let program = Side::parse(file.to_str().unwrap()).unwrap().program.unwrap();
        assert_eq!(program.file_name(), file.file_name());
    }

    #[test]
    fn a_side_that_is_neither_is_refused_in_one_line() {
        for (text, expected) in [
            ("", "name a tollgate program, settings"),
            ("nowhere/tollgate", "nowhere/tollgate: No such file"),
            ("nice=20", "nice=20: use a nice value from -20 to 19"),
            ("nice=", "use a nice value"),
            ("nise=5", "nise=5: unknown setting"),
            ("A=1 b", "b: unknown setting"),
            ("A=1 B", "B: unknown setting"),
            ("A=1 A=2", "A=2: 'A' is set twice"),
        ] {
            let why = Side::parse(text).unwrap_err();
            assert!(why.contains(expected) && why.lines().count() == 1, "{text}: {why}");
        }
    }

    fn crossed() -> Experiment {
        let at = |length| Point::from([("length", length)]);
        let mut experiment = Experiment {
            suite: "toy".into(),
            name: "one".into(),
            method: "loop".into(),
            about: String::new(),
            metric: "time".into(),
            baseline: at("2 B"),
            defaults: Point::default(),
            sweeps: vec![vec!["length".into()]],
            points: vec![at("1 B"), at("2 B"), at("3 B")],
            twins: Vec::new(),
            skipped: Vec::new(),
            roles: Vec::new(),
            blocking: vec!["length".into()],
            alternatives: None,
            compared: Vec::new(),
            batch: 8,
            limit: None,
            effort: Profile::Quick.effort(),
        };
        cross(&mut experiment);
        experiment
    }

    #[test]
    fn both_sides_measure_each_item_and_a_twin() {
        let experiment = crossed();
        assert_eq!((experiment.points.len(), experiment.batch), (6, 1));
        let twins = LEVELS.map(|level| Point::from([("length", "2 B"), (FACTOR, level)]));
        assert_eq!(experiment.twins, twins);
        assert_eq!(experiment.sweeps, [["length", FACTOR]]);
        assert!(is_crossed(&experiment) && experiment.blocking.is_empty());
    }

    #[test]
    fn the_items_of_a_point_are_adjacent_and_each_side_is_first_in_half_of_the_rounds() {
        let experiment = crossed();
        let (items, order) = (plan::items(&experiment), RoundOrder::new(&experiment));
        let mut first = [0; LEVELS.len()];
        for round in 0..20 {
            let order = order.of_round(round, 7);
            let mut seen = order.clone();
            seen.sort_unstable();
            assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
            let of_point = |a: &usize, b: &usize| {
                let [a, b] = [a, b].map(|item| items[*item].point.without([FACTOR]));
                a == b
            };
            let points: Vec<&[usize]> = order.chunk_by(of_point).collect();
            assert_eq!(points.len(), 3, "the items of a point are adjacent");
            // The first of a point without twins.
            let pairs = points.iter().filter(|items| items.len() == 2);
            pairs.for_each(|pair| first[index(&items[pair[0]].point)] += 1);
        }
        assert_eq!(first, [20, 20]);
    }

    #[test]
    fn other_sides_or_another_program_are_a_difference() {
        let record = |text: &str, digest: &str| SideRecord {
            side: Side::parse(text).unwrap(),
            version: "1".into(),
            digest: Some(digest.into()),
        };
        let before = [record("-", "a"), record("nice=5", "a")];
        assert_eq!(difference(&before, &before), None);
        assert_eq!(
            difference(&before, &[record("-", "a"), record("nice=6", "a")]).unwrap(),
            "sides: the run has 'this program' and 'nice=5', now it is 'this program' and 'nice=6'"
        );
        let line = difference(&[], &before).unwrap();
        assert!(line.starts_with("sides: the run has no comparison, now it is 'this"), "{line}");
        assert_eq!(
            difference(&before, &[record("-", "a"), record("nice=5", "b")]).unwrap(),
            "nice=5: the program changed since the run began"
        );
    }
}
