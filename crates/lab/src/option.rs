//! Options: features that a user enables (`--allow NAME`) and values that a user sets (`--set NAME=VALUE`).
//!
//! Each suite declares its options; any other name is a usage error. Probes receive the options as a map, in which
//! `allow-NAME` is `yes` if the feature is enabled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::artefact::Recipe;
use crate::data::MAX_FILE;
use crate::method::AnyMethod;
use crate::point::Point;
use crate::sample::Failure;
use crate::suite::Suite;
use crate::terminal::UsageError;

pub use crate::suite::{OptionValue, SuiteOption};

/// Enables loading machine code that a user's file or an argument names: shared objects, static libraries.
pub const ALLOW_CODE: &str = "allow-code";
/// Names the folder of the files that samples create; each suite that creates some declares it.
pub const FILE_FOLDER: SuiteOption = SuiteOption {
    name: "file-folder",
    enables: "folder of files that samples create [default: the temporary folder]",
    value: OptionValue::Folder,
};
/// The environment variable with the options of a guest's declaration, a map in JSON, for commands inside the guest.
pub const OF_GUEST: &str = "TOLLGATE_GUEST_OPTIONS";
/// The prefix of options that are enabled rather than set.
const ALLOW: &str = "allow-";

impl OptionValue {
    /// Returns what is wrong with a value and how to fix it; `None` if it is valid.
    fn fault(self, text: &str) -> Option<&'static str> {
        match self {
            Self::Text | Self::Folder | Self::Content if text.is_empty() => {
                Some("is empty; give a value or omit the option")
            }
            Self::Number if text.parse::<u64>().is_err() => {
                Some("is not an unsigned integer; give e.g. 7")
            }
            Self::Address if address(text).is_none() => {
                Some("is not an address; give it as in /proc/iomem, e.g. 0x2080000000")
            }
            _ => None,
        }
    }
}

/// Parses a physical address: decimal, or hexadecimal after `0x`.
pub fn address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl SuiteOption {
    /// Returns the arguments that enable or set it: `--allow physical`, `--set dax-device=VALUE`.
    pub fn usage(&self) -> String {
        match self.name.strip_prefix(ALLOW) {
            Some(name) => format!("--allow {name}"),
            None => format!("--set {}=VALUE", self.name),
        }
    }
}

/// The options of the lab, valid for every suite.
pub const OF_LAB: &[SuiteOption] = &[SuiteOption {
    name: ALLOW_CODE,
    enables: "runs code that experiments or arguments name, with your rights: shared objects, static \
              libraries, lists of instructions",
    value: OptionValue::Text,
}];

/// Returns the options of the suites and of the lab, without duplicates, in alphabetical order.
pub fn known(suites: &[&Suite]) -> Vec<SuiteOption> {
    let all = suites.iter().flat_map(|suite| suite.options()).chain(OF_LAB);
    let by_name: BTreeMap<_, _> = all.map(|option| (option.name, *option)).collect();
    by_name.into_values().collect()
}

/// Parses the values of `--allow` and `--set` of a command that measures here. Inside a guest its declaration sets what the
/// user does not.
///
/// # Errors
/// Returns a usage error for an unknown name, a value of the wrong type, and a name that is set twice.
pub fn read(
    suites: &[&Suite],
    allow: &[String],
    set: &[String],
) -> Result<BTreeMap<String, String>, UsageError> {
    let of_guest = std::env::var(OF_GUEST).ok().filter(|_| is_inside_a_guest());
    read_inside(suites, allow, set, of_guest.as_deref())
}

/// Parses the values for a guest that this process starts. Values of a guest in which it runs name the devices of that
/// guest, and allow access to them only.
///
/// # Errors
/// As [`read`].
pub fn read_for_guest(
    suites: &[&Suite],
    allow: &[String],
    set: &[String],
) -> Result<BTreeMap<String, String>, UsageError> {
    read_inside(suites, allow, set, None)
}

/// Parses the values, and adds the missing ones from the options of a guest.
fn read_inside(
    suites: &[&Suite],
    allow: &[String],
    set: &[String],
    of_guest: Option<&str>,
) -> Result<BTreeMap<String, String>, UsageError> {
    let mut options = read_known(&known(suites), allow, set)?;
    if let Some(of_guest) = of_guest {
        add_missing(&mut options, &known(suites), of_guest);
    }
    Ok(options)
}

/// Returns whether this process descends from a guest's init, which sets [`OF_GUEST`]. Elsewhere the variable must not
/// enable anything.
fn is_inside_a_guest() -> bool {
    std::fs::read_link("/proc/1/exe").is_ok_and(|init| init == Path::new("/init"))
}

/// Adds the options of a guest's declaration that the user did not give and these suites know.
fn add_missing(options: &mut BTreeMap<String, String>, known: &[SuiteOption], of_guest: &str) {
    let of_guest: BTreeMap<String, String> = serde_json::from_str(of_guest).unwrap_or_default();
    for (name, value) in of_guest {
        if known.iter().any(|option| option.name == name) {
            options.entry(name).or_insert(value);
        }
    }
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
        let value = match option.value {
            OptionValue::Content => content(value)
                .map_err(|why| UsageError::new(format!("--set {name}: {value}: {why}")))?,
            _ => value.to_owned(),
        };
        if options.insert(name.to_owned(), value).is_some() {
            return Err(UsageError::new(format!("--set {name}: set twice; give one value")));
        }
    }
    Ok(options)
}

/// Returns the content of a text file.
fn content(path: &str) -> Result<String, String> {
    let bytes = machine::file::read_input(Path::new(path), MAX_FILE)
        .map_err(|why| format!("{why}; name a readable file"))?;
    String::from_utf8(bytes).map_err(|_| "not UTF-8; name a text file".to_owned())
}

fn unknown(option: &str, name: &str, known: &[&str]) -> UsageError {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    UsageError::new(format!("{option}: unknown name '{name}'; available: {known}"))
}

/// Adds the defaults of options that have one and are not set, so that a run records them.
pub(crate) fn with_defaults(
    suites: &[&Suite],
    options: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let folders = known(suites).into_iter().filter(|one| one.value == OptionValue::Folder);
    let defaults = folders.map(|one| (one.name.to_owned(), folder(options, one.name)));
    // A path that is not UTF-8 cannot be recorded; samples still use it.
    let mut complete: BTreeMap<_, _> =
        defaults.filter_map(|(name, path)| Some((name, path.to_str()?.to_owned()))).collect();
    complete.extend(options.clone());
    complete
}

/// Returns the folder that an option names, or the temporary folder.
pub fn folder(options: &BTreeMap<String, String>, name: &str) -> PathBuf {
    options.get(name).map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Returns the options that differ between two runs: name, first value, second value.
pub(crate) fn differences(
    a: &BTreeMap<String, String>,
    b: &BTreeMap<String, String>,
) -> Vec<(String, String, String)> {
    let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let different = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    let value = |value: Option<&String>| value.map_or("not set", String::as_str).to_owned();
    different.map(|name| (name.clone(), value(a.get(name)), value(b.get(name)))).collect()
}

/// Returns the options that have a value, without those that are enabled: samples depend on the former only.
pub fn values(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_set = |(name, _): &(&String, &String)| !name.starts_with(ALLOW);
    options.iter().filter(is_set).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns whether the user enabled a feature.
pub fn is_allowed(options: &BTreeMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| value == "yes")
}

/// Checks that the code file of a point, if it has one, may be loaded.
///
/// # Errors
/// Returns `unavailable` unless the user gave `--allow code`.
pub fn check_point(
    method: &dyn AnyMethod,
    point: &Point,
    options: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    method.code(point, options).map_or(Ok(()), |file| check_code(options, &file))
}

/// Returns the recipes of what a point and its guest need; none if its code may not be loaded.
pub(crate) fn recipes(
    method: &dyn AnyMethod,
    point: &Point,
    options: &BTreeMap<String, String>,
) -> Vec<Recipe> {
    if check_point(method, point, options).is_err() {
        return Vec::new();
    }
    let of_guest = method.guest(point).map_or_else(Vec::new, |guest| guest.artefacts);
    method.artefacts(point).into_iter().chain(of_guest).collect()
}

/// Checks that a code file may be loaded. Must be called before a loader or linker reads the file.
///
/// # Errors
/// Returns `unavailable` unless the user gave `--allow code`.
pub fn check_code(options: &BTreeMap<String, String>, file: &str) -> Result<(), Failure> {
    if is_allowed(options, ALLOW_CODE) {
        return Ok(());
    }
    let why = format!("{file} is code that would run with your rights, which is not allowed");
    Err(Failure::unavailable(why, "--allow code, if you trust it"))
}

/// Checks that a code file named by a command-line argument may be loaded.
///
/// # Errors
/// Returns a usage error unless the user gave `--allow code`.
pub fn check_code_argument(
    options: &BTreeMap<String, String>,
    argument: &str,
    file: &str,
) -> Result<(), UsageError> {
    check_code(options, file).map_err(|failure| {
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
    fn an_unknown_name_is_refused_with_the_available_names() {
        let given = read(&[], &words(&["code"]), &[]).unwrap();
        assert_eq!(given, BTreeMap::from([("allow-code".to_owned(), "yes".to_owned())]));
        let refused = |allow: &[&str], set: &[&str]| {
            read(&[], &words(allow), &words(set)).unwrap_err().to_string()
        };
        let line = refused(&["everything"], &[]);
        assert_eq!(line, "--allow: unknown name 'everything'; available: code");
        assert!(refused(&[], &["allow-code=yes"]).contains("unknown name 'allow-code'"));
        assert!(refused(&[], &["x"]).contains("not NAME=VALUE"));
    }

    #[test]
    fn a_value_must_have_its_type_and_be_set_once() {
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
            (&["folder="][..], "--set folder: '' is empty; give a value or omit the option"),
            (&["offset="], "--set offset: '' is not an unsigned integer; give e.g. 7"),
            (&["offset=-1"], "--set offset: '-1' is not an unsigned integer"),
            (&["at="], "--set at: '' is not an address; give it as in /proc/iomem"),
            (&["at=here"], "--set at: 'here' is not an address"),
            (&["at=0x"], "--set at: '0x' is not an address"),
            (&["folder=/a", "folder=/a"], "--set folder: set twice; give one value"),
        ] {
            let refused = read(set).unwrap_err().to_string();
            assert!(refused.starts_with(line), "{refused}");
        }
    }

    #[test]
    fn the_value_of_a_file_is_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let known = [SuiteOption { name: "rules", enables: "rules", value: OptionValue::Content }];
        let path = folder.path().join("rules.toml");
        let set = vec![format!("rules={}", path.display())];
        let line = read_known(&known, &[], &set).unwrap_err().to_string();
        assert!(line.contains("rules.toml") && line.contains("name a readable file"), "{line}");
        std::fs::write(&path, [0xff]).unwrap();
        let line = read_known(&known, &[], &set).unwrap_err().to_string();
        assert!(line.ends_with("not UTF-8; name a text file"), "{line}");
        std::fs::write(&path, "a = 1").unwrap();
        assert_eq!(read_known(&known, &[], &set).unwrap()["rules"], "a = 1");
    }

    #[test]
    fn an_option_that_is_not_set_has_its_default() {
        use crate::suite::Data;
        const OPTIONS: &[SuiteOption] = &[
            SuiteOption { name: "folder", enables: "a folder", value: OptionValue::Folder },
            SuiteOption { name: "offset", enables: "a number", value: OptionValue::Number },
        ];
        static TOY: Suite =
            Suite::new("toy", "Has options", Data::EMPTY, &[]).with_options(OPTIONS);
        let temporary = std::env::temp_dir().to_string_lossy().into_owned();
        let default = BTreeMap::from([("folder".to_owned(), temporary)]);
        assert_eq!(with_defaults(&[&TOY], &BTreeMap::new()), default);
        let set = BTreeMap::from([("folder".to_owned(), "/mnt".to_owned())]);
        assert_eq!(with_defaults(&[&TOY], &set), set);
        assert_eq!(folder(&set, "folder"), PathBuf::from("/mnt"));
    }

    #[test]
    fn only_a_command_that_measures_inside_a_guest_has_the_options_of_the_guest() {
        let outer = r#"{"allow-code": "yes", "unknown": "1"}"#;
        let inside = read_inside(&[], &[], &[], Some(outer)).unwrap();
        assert_eq!(inside, BTreeMap::from([(ALLOW_CODE.to_owned(), "yes".to_owned())]));
        assert_eq!(read_for_guest(&[], &[], &[]).unwrap(), BTreeMap::new());
        let given = read_for_guest(&[], &words(&["code"]), &[]).unwrap();
        assert_eq!(given, inside);
    }

    #[test]
    fn code_is_loaded_only_if_it_is_allowed() {
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
