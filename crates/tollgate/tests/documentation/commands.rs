//! Commands that the documentation names: they and their options exist, and runs select points.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::Bench;
use crate::page::{self, Page};

/// Words of a command line up to a pipe, a redirection or a comment, without quotes.
fn words(line: &str) -> Vec<&str> {
    let ends = |word: &&str| !["|", ">", "&&", "&", "#"].contains(word) && !word.ends_with(';');
    let of_line = line.split_whitespace().take_while(ends);
    of_line.map(|word| word.trim_matches(['"', '\''])).collect()
}

/// Returns the command lines of this program in a text.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("tollgate "))
}

/// The help of each command, by its words.
struct Helps {
    bench: Bench,
    known: BTreeMap<Vec<String>, Option<String>>,
}

impl Helps {
    /// Returns the help of a command; `None` if there is no such command.
    fn of(&mut self, command: &[&str]) -> Option<String> {
        let key: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let help = || {
            let output = self.bench.run(&[command, &["--help"]].concat());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success().then_some(text)
        };
        self.known.entry(key).or_insert_with(help).clone()
    }

    /// Returns the help of the command of a line, which may be a subcommand.
    fn of_line(&mut self, words: &[&str]) -> Option<String> {
        let names = words.iter().take_while(|word| {
            word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
        });
        let names: Vec<_> = names.copied().collect();
        let first = self.of(&names[..1.min(names.len())])?;
        let has_subcommands = first.contains("\nCommands:");
        // A command with subcommands may also take names, e.g. `copy 2 3`, which are no words.
        if has_subcommands && names.len() > 1 { self.of(&names[..2]) } else { Some(first) }
    }
}

/// Returns the texts of a page that may contain commands: blocks of code, and code within a line.
fn code(page: &Page) -> Vec<String> {
    let blocks = page.blocks().into_iter().map(|block| block.text);
    // A shell continues a line that ends in a backslash.
    let blocks = blocks.map(|text| text.replace("\\\n", " "));
    blocks.chain(page.inline_code()).collect()
}

/// The part of a command line of `tollgate run` that selects points.
struct Selection {
    names: Vec<String>,
    /// Options of `tollgate list`.
    options: Vec<String>,
}

impl Selection {
    /// Parses the words of a command line by the help of `tollgate run`. Returns `None` if it is no such line, or selects by
    /// placeholders, by a file or by no name.
    fn parse(line: &str, help: &str) -> Option<Self> {
        let words = shlex::split(line)?;
        let is_part = |word: &&String| !["|", ">", "&&", "&"].contains(&word.as_str());
        let mut words = words.iter().take_while(is_part).map(String::as_str);
        let mut selection = Self { names: Vec::new(), options: Vec::new() };
        if words.next() != Some("run") {
            return None;
        }
        while let Some(word) = words.next() {
            let takes_value = || help.contains(&format!("{word} <"));
            match word {
                "-e" | "--claim" => return None,
                "--profile" | "--where" | "-f" => {
                    selection.options.extend([word, words.next()?].map(str::to_owned));
                }
                "--each-level" => selection.options.push(word.to_owned()),
                // Of no effect on the selection.
                _ if word.starts_with("--") => drop(takes_value().then(|| words.next())),
                // Stands for such options.
                _ if word.starts_with('$') => {}
                name if name.starts_with(|c: char| c.is_ascii_lowercase()) => {
                    selection.names.push(name.to_owned());
                }
                _ => return None,
            }
        }
        (!selection.names.is_empty()).then_some(selection)
    }

    /// Checks that each name selects a point.
    ///
    /// # Errors
    /// Returns the name that selects none, or the error of the program.
    fn check(&self, bench: &Bench) -> Result<(), String> {
        let words = ["list", "--json"].into_iter().map(str::to_owned);
        let words: Vec<_> = words.chain(self.names.clone()).chain(self.options.clone()).collect();
        let output = bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        let suites = list["suites"].as_array().unwrap().iter();
        let experiments = suites.flat_map(|suite| suite["experiments"].as_array().unwrap());
        let ids: Vec<_> = experiments.map(|one| one["id"].as_str().unwrap()).collect();
        let is_selected =
            |name: &str| ids.iter().any(|id| *id == name || id.split('/').next() == Some(name));
        match self.names.iter().find(|name| !is_selected(name)) {
            None => Ok(()),
            Some(name) => Err(format!("no point of {name}")),
        }
    }
}

/// The suite that a page tells its reader to write.
const OF_THE_READER: &str = "toy";

#[test]
fn every_run_in_the_documentation_selects_points() {
    let bench = Bench::new();
    let help = bench.ok(&["run", "--help"]);
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in page::all().into_iter().chain([page::kernel()]) {
        for text in code(&page) {
            for line in lines(&text) {
                let Some(selection) = Selection::parse(line, &help) else { continue };
                if selection.names == [OF_THE_READER] {
                    continue;
                }
                checked += 1;
                if let Err(why) = selection.check(&bench) {
                    wrong.push(format!("{}: tollgate {line}: {why}", page.path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 25, "only {checked} runs");
}

#[test]
fn a_run_without_points_is_found() {
    let bench = Bench::new();
    let help = bench.ok(&["run", "--help"]);
    let check = |line: &str| Selection::parse(line, &help).unwrap().check(&bench);
    let pci_bar = "run copy/throughput --rounds 1 $P --where memory=pci-bar";
    assert!(check(pci_bar).unwrap_err().contains("no point is selected"));
    assert_eq!(check(&format!("{pci_bar} --profile standard # why")), Ok(()));
    let both = "run copy/throughput copy/functions --profile standard --where memory=pci-bar";
    assert_eq!(check(both), Err("no point of copy/functions".into()));
    assert!(check("run copy/throughput --where memory=numa-node-N").is_err());
    for none in ["show copy", "run", "run NAME", "run copy -e mine.toml", "run --claim ID"] {
        assert!(Selection::parse(none, &help).is_none(), "{none}");
    }
}

#[test]
fn every_command_and_option_in_the_documentation_exists() {
    let mut helps = Helps { bench: Bench::new(), known: BTreeMap::new() };
    let (mut checked, mut unknown) = (0, Vec::new());
    for page in page::all() {
        for line in code(&page).iter().flat_map(|text| lines(text)) {
            let words = words(line);
            let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
            if !words.first().is_some_and(is_name) {
                continue;
            }
            checked += 1;
            let place = format!("{}: tollgate {line}", page.path.display());
            let Some(help) = helps.of_line(&words) else {
                unknown.push(place);
                continue;
            };
            // Words after -- belong to another command.
            let options = words.iter().take_while(|word| **word != "--");
            for option in options.filter(|word| word.starts_with("--")) {
                let name = option.split(['=', '|', ',', ')']).next().unwrap();
                let is_known = |word: &str| word.trim_end_matches([',', ']']) == name;
                if !help.split(|c: char| c.is_whitespace() || "=[".contains(c)).any(is_known) {
                    unknown.push(format!("{place}: {name}"));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(checked > 100, "only {checked} commands");
}

/// Returns the commands that a help lists.
fn subcommands(help: &str) -> Vec<&str> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let rows = list.lines().take_while(|line| !line.is_empty());
    // Further lines of a description are indented by more.
    let names = rows.filter_map(|row| row.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").collect()
}

#[test]
fn no_help_has_a_link_of_the_source() {
    let mut helps = Helps { bench: Bench::new(), known: BTreeMap::new() };
    let (mut pending, mut checked) = (vec![Vec::new()], 0);
    while let Some(command) = pending.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let help = helps.of(&words).unwrap();
        assert!(!help.contains("[`") && !help.contains("`]"), "tollgate {words:?}:\n{help}");
        let further = subcommands(&help).into_iter().map(str::to_owned);
        pending.extend(further.map(|name| [&command[..], &[name]].concat()));
        checked += 1;
    }
    assert!(checked > 40, "only {checked} commands");
}

#[test]
fn one_list_states_what_explain_describes() {
    let help = Bench::new().ok(&["explain", "--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = help.strip_prefix("Describe a ").unwrap().split(" Usage:").next().unwrap();
    assert!(list.ends_with(" or term"), "{list}");
    assert!(help.contains(&format!("Name of a {list}")), "{help}");
    let pages = page::all();
    let commands = pages.iter().find(|page| page.path.ends_with("commands.md")).unwrap();
    assert!(commands.text.contains(&format!("describe a {list}")), "{list}");
}

/// Returns the command of a line and the version of its output that the line expects, if it compares them, e.g.
/// `claims --json | jq -e '.schema_version == 2'`.
fn expected_version(line: &str) -> Option<(&str, u32)> {
    let (command, filter) = line.split_once('|')?;
    let (_, version) = filter.split_once("schema_version == ")?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((command.trim(), digits.parse().ok()?))
}

#[test]
fn expected_schema_versions_are_those_of_the_program() {
    let listed = Bench::new().ok(&["schema"]);
    // A row is a name, `version N` and the command.
    let version_of = |command: &str| -> Option<u32> {
        let full = format!("tollgate {command}");
        let mut rows = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|words| words.len() > 3 && words[3..].join(" ") == full)?;
        row[2].parse().ok()
    };
    let mut checked = 0;
    for page in page::all() {
        let mut of_page = 0;
        for text in code(&page) {
            for (command, expected) in lines(&text).filter_map(expected_version) {
                let place = page.path.display();
                assert_eq!(version_of(command), Some(expected), "{place}: tollgate {command}");
                of_page += 1;
            }
        }
        let stated = page.text.matches("schema_version ==").count();
        assert_eq!(of_page, stated, "{}: a version of no known command", page.path.display());
        checked += of_page;
    }
    assert!(checked > 0, "no page shows how to check a version");
}
