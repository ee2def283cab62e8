//! Errors and help of clap as one line or printed text.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::CliError;
use crate::output::print;

/// Returns the command that is run, e.g. `tollgate run`; few of clap's errors name it.
pub(crate) fn program() -> String {
    let word = std::env::args_os().nth(1).unwrap_or_default();
    let word = word.to_string_lossy();
    let command = crate::arguments::command();
    let is_command = |one: &clap::Command| one.get_name() == word && !one.is_hide_set();
    match command.get_subcommands().any(is_command) {
        true => format!("tollgate {word}"),
        false => "tollgate".into(),
    }
}

/// Prints the requested help or version, or returns the error.
pub(crate) fn print_or_fail(program: &str, message: &clap::Error) -> Result<u8, CliError> {
    if message.use_stderr() {
        return Err(error(program, message));
    }
    print(&message.render().ansi().to_string())?;
    Ok(0)
}

/// Converts a clap error with its suggestions to one line.
pub(crate) fn error(program: &str, message: &clap::Error) -> CliError {
    let program = command_of(program, message);
    let what = match message.kind() {
        // Clap prints the whole help instead.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("{program}: missing command")
        }
        _ => in_one_line(&message.to_string()),
    };
    CliError::usage(format!("{what}; see {program} --help"))
}

/// Returns the command whose help applies: clap's usage names subcommands too.
fn command_of(program: &str, message: &clap::Error) -> String {
    let usage = match message.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words = usage.split_whitespace().skip_while(|word| *word != "tollgate").take_while(is_name);
    let named = words.collect::<Vec<_>>().join(" ");
    if named.starts_with(program) { named } else { program.to_owned() }
}

/// Joins clap's paragraphs before the usage.
fn in_one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end =
        ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let message = &text[..end.unwrap_or(text.len())];
    let paragraphs = message.split("\n\n").map(|paragraph| {
        let lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line)).collect::<Vec<_>>().join(" ")
    });
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_errors_become_one_line() {
        let line = |words: &[&str]| {
            let command = crate::arguments::command();
            let message = command.try_get_matches_from(words).unwrap_err();
            let line = error("tollgate", &message).to_string();
            assert!(!line.contains('\n'), "{line}");
            line
        };
        assert_eq!(line(&["tollgate"]), "tollgate: missing command; see tollgate --help");
        let unknown = line(&["tollgate", "run", "--round", "3"]);
        assert!(unknown.starts_with("unexpected argument '--round' found; "), "{unknown}");
        assert!(
            unknown.contains("'--rounds'") && unknown.ends_with("; see tollgate run --help"),
            "{unknown}"
        );
        let value = line(&["tollgate", "run", "--profile", "quik"]);
        assert!(value.contains("quick, standard, full"), "{value}");
        let missing = line(&["tollgate", "export"]);
        assert!(missing.contains("<FORMAT>"), "{missing}");
        let priority = line(&["tollgate", "run", "--priority", "99"]);
        assert!(priority.contains("99 is not in -20..=19"), "{priority}");
    }
}
