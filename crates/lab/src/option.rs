//! Options: what a user allows (`--allow NAME`) or sets (`--set NAME=VALUE`) by name.
//!
//! Each suite declares the options that it knows as data; any other name is a usage error. Probes get
//! them as a map, with `allow-NAME` = `yes` for what is allowed.

use std::collections::{BTreeMap, BTreeSet};

use crate::method::AnyMethod;
use crate::point::Point;
use crate::sample::Failure;
use crate::suite::{Suite, UsageError};

/// Allows to load machine code that a user file or an argument names: shared objects, static libraries.
pub const ALLOW_CODE: &str = "allow-code";
/// What is allowed rather than set starts with this.
const ALLOW: &str = "allow-";

/// An option that a suite knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuiteOption {
    /// The key in the map of options: `allow-physical` for `--allow physical`, `dax-device` for
    /// `--set dax-device=VALUE`.
    pub name: &'static str,
    /// What it enables or sets, in one line.
    pub enables: &'static str,
    /// What is set; of what is allowed, nothing is.
    pub value: OptionValue,
}

/// What the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionValue {
    /// Any text but an empty one: a name or a path.
    Text,
    /// A whole number.
    Number,
    /// A physical address; see [`address`].
    Address,
}

impl OptionValue {
    /// What is wrong with a text that is no such value, and what to give instead.
    fn fault(self, text: &str) -> Option<&'static str> {
        match self {
            Self::Text if text.is_empty() => Some("is empty; name it, or leave the option out"),
            Self::Number if text.parse::<u64>().is_err() => Some("is no whole number; give e.g. 7"),
            Self::Address if address(text).is_none() => {
                Some("is no address; give it as /proc/iomem lists it, e.g. 0x2080000000")
            }
            _ => None,
        }
    }
}

/// A physical address: decimal, or hexadecimal after `0x`.
pub fn address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl SuiteOption {
    /// How a user gives it: `--allow physical`, `--set dax-device=VALUE`.
    pub fn usage(&self) -> String {
        match self.name.strip_prefix(ALLOW) {
            Some(name) => format!("--allow {name}"),
            None => format!("--set {}=VALUE", self.name),
        }
    }
}

/// The options of the lab itself, for every suite.
pub const OF_LAB: &[SuiteOption] = &[SuiteOption {
    name: ALLOW_CODE,
    enables: "runs code that experiments or arguments name, with your rights: shared objects, static \
              libraries, lists of instructions",
    value: OptionValue::Text,
}];

/// All options of some suites and of the lab, each name once, in alphabetical order.
pub fn known(suites: &[&dyn Suite]) -> Vec<SuiteOption> {
    let all = suites.iter().flat_map(|suite| suite.options()).chain(OF_LAB);
    let by_name: BTreeMap<_, _> = all.map(|option| (option.name, *option)).collect();
    by_name.into_values().collect()
}

/// Reads the words of `--allow` and `--set`.
///
/// # Errors
/// A name that no suite knows, with those that there are, a word that is no `NAME=VALUE`, a value of another kind
/// than the option's, or a name that is set twice.
pub fn read(
    suites: &[&dyn Suite],
    allow: &[String],
    set: &[String],
) -> Result<BTreeMap<String, String>, UsageError> {
    read_known(&known(suites), allow, set)
}

fn read_known(
    known: &[SuiteOption],
    allow: &[String],
    set: &[String],
) -> Result<BTreeMap<String, String>, UsageError> {
    let names = || known.iter().map(|option| option.name);
    let allowed: Vec<_> = names().filter_map(|name| name.strip_prefix(ALLOW)).collect();
    let settable: Vec<_> = names().filter(|name| !name.starts_with(ALLOW)).collect();
    let mut options = BTreeMap::new();
    for name in allow {
        if !allowed.contains(&name.as_str()) {
            return Err(unknown("--allow", name, &allowed));
        }
        options.insert(format!("{ALLOW}{name}"), "yes".to_owned());
    }
    for text in set {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            UsageError::new(format!(
                "--set: '{text}' is not NAME=VALUE; NAME is one of {}",
                settable.join(", ")
            ))
        })?;
        let option = known.iter().find(|option| option.name == name && settable.contains(&name));
        let option = option.ok_or_else(|| unknown("--set", name, &settable))?;
        if let Some(fault) = option.value.fault(value) {
            return Err(UsageError::new(format!("--set {name}: '{value}' {fault}")));
        }
        if options.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(UsageError::new(format!("--set {name}: it is set twice; give one value")));
        }
    }
    Ok(options)
}

fn unknown(option: &str, name: &str, known: &[&str]) -> UsageError {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    UsageError::new(format!("{option}: unknown name '{name}'; there are: {known}"))
}

/// The options that two runs do not share: name, value in one, value in the other.
pub(crate) fn differences(
    a: &BTreeMap<String, String>,
    b: &BTreeMap<String, String>,
) -> Vec<(String, String, String)> {
    let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let different = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    let told = |value: Option<&String>| value.map_or("not set", String::as_str).to_owned();
    different.map(|name| (name.clone(), told(a.get(name)), told(b.get(name)))).collect()
}

/// What the user set, without what was allowed: samples depend on the one and not on the other.
pub fn values(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_set = |(name, _): &(&String, &String)| !name.starts_with(ALLOW);
    options.iter().filter(is_set).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the user allowed what an option enables.
pub fn is_allowed(options: &BTreeMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| value == "yes")
}

/// Whether a point may be made and measured: the code that it names is loaded only if that is allowed.
///
/// # Errors
/// Unavailable unless the user gave `--allow code`.
pub fn check_point(
    method: &dyn AnyMethod,
    point: &Point,
    options: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    method.code(point).map_or(Ok(()), |what| check_code(options, &what))
}

/// Whether code from outside may be loaded; `what` is the file. Asked before any loader or linker
/// reads it, only where something is measured.
///
/// # Errors
/// Unavailable unless the user gave `--allow code`.
pub fn check_code(options: &BTreeMap<String, String>, what: &str) -> Result<(), Failure> {
    if is_allowed(options, ALLOW_CODE) {
        return Ok(());
    }
    let why = format!("{what} is code, which runs with your rights and was not allowed");
    Err(Failure::unavailable(why, "--allow code, if you trust it"))
}

/// The same for code that an argument of a command line names.
///
/// # Errors
/// Names the argument and the code, unless the user gave `--allow code`.
pub fn check_code_argument(
    options: &BTreeMap<String, String>,
    argument: &str,
    what: &str,
) -> Result<(), UsageError> {
    check_code(options, what).map_err(|failure| {
        UsageError::new(format!("{argument}: {}; add --allow code if you trust it", failure.why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_there_are() {
        let given = read(&[], &words(&["code"]), &[]).unwrap();
        assert_eq!(given, BTreeMap::from([("allow-code".to_owned(), "yes".to_owned())]));
        let refused = |allow: &[&str], set: &[&str]| {
            read(&[], &words(allow), &words(set)).unwrap_err().to_string()
        };
        let line = refused(&["everything"], &[]);
        assert_eq!(line, "--allow: unknown name 'everything'; there are: code");
        assert!(refused(&[], &["allow-code=yes"]).contains("unknown name 'allow-code'"));
        assert!(refused(&[], &["x"]).contains("not NAME=VALUE"));
    }

    #[test]
    fn a_value_is_of_its_options_kind_and_given_once() {
        let option = |name, value| SuiteOption { name, enables: "something", value };
        let known = [
            option("at", OptionValue::Address),
            option("folder", OptionValue::Text),
            option("offset", OptionValue::Number),
        ];
        let read = |set: &[&str]| read_known(&known, &[], &words(set));
        let given = read(&["at=0x2080000000", "folder=/mnt/a=b", "offset=7"]).unwrap();
        assert_eq!(given["folder"], "/mnt/a=b");
        assert_eq!(read(&["at=4096"]).unwrap()["at"], "4096");
        for (set, line) in [
            (&["folder="][..], "--set folder: '' is empty; name it, or leave the option out"),
            (&["offset="], "--set offset: '' is no whole number; give e.g. 7"),
            (&["offset=-1"], "--set offset: '-1' is no whole number"),
            (&["at="], "--set at: '' is no address; give it as /proc/iomem lists it"),
            (&["at=here"], "--set at: 'here' is no address"),
            (&["at=0x"], "--set at: '0x' is no address"),
            (&["folder=/a", "folder=/a"], "--set folder: it is set twice; give one value"),
        ] {
            let refused = read(set).unwrap_err().to_string();
            assert!(refused.starts_with(line), "{refused}");
        }
    }

    #[test]
    fn code_is_loaded_only_where_it_is_allowed() {
        let options = |value: &str| BTreeMap::from([(ALLOW_CODE.to_owned(), value.to_owned())]);
        assert!(check_code(&options("yes"), "./mine.so").is_ok());
        for refused in [BTreeMap::new(), options("no")] {
            let failure = check_code(&refused, "./mine.so").unwrap_err();
            assert!(failure.to_string().contains("--allow code"), "{failure}");
            let fault = check_code_argument(&refused, "--list", "./mine.so").unwrap_err();
            let line = fault.to_string();
            assert!(
                line.starts_with("--list: ./mine.so") && line.contains("--allow code"),
                "{line}"
            );
        }
    }
}
