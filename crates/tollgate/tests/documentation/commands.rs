//! Commands that the documentation names: they and their options exist.

use std::collections::BTreeMap;

use crate::harness::Bench;
use crate::page;

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

#[test]
fn every_command_and_option_in_the_documentation_exists() {
    let mut helps = Helps { bench: Bench::new(), known: BTreeMap::new() };
    let (mut checked, mut unknown) = (0, Vec::new());
    for page in page::all() {
        let blocks: Vec<_> = page.blocks().into_iter().map(|block| block.text).collect();
        let code = page.inline_code();
        for line in blocks.iter().chain(&code).flat_map(|text| lines(text)) {
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
            // What follows -- belongs to another command.
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
