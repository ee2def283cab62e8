//! What clap says of the words on the command line, in one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::fault::Fault;
use crate::output::print;

/// The command that is run, as its help is asked for: `tollgate run`. Clap names it in few of its errors.
pub(crate) fn program() -> String {
    let word = std::env::args().nth(1).unwrap_or_default();
    let command = crate::arguments::command(crate::COMMANDS);
    let known = command.get_subcommands().any(|one| one.get_name() == word && !one.is_hide_set());
    if known { format!("tollgate {word}") } else { "tollgate".into() }
}

/// Prints the help or version that was asked for, or gives what is wrong.
pub(crate) fn told(program: &str, told: &clap::Error) -> Result<u8, Fault> {
    if told.use_stderr() {
        return Err(fault(program, told));
    }
    print(&told.render().ansi().to_string())?;
    Ok(0)
}

/// What is wrong, with what clap suggests, in one line.
pub(crate) fn fault(program: &str, told: &clap::Error) -> Fault {
    let program = program_of(program, told);
    let what = match told.kind() {
        // Clap prints the whole help instead.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("{program}: a command is missing")
        }
        _ => in_one_line(&told.to_string()),
    };
    Fault::usage(format!("{what}; see {program} --help"))
}

/// The command whose help tells more: clap's usage names subcommands too.
fn program_of(program: &str, told: &clap::Error) -> String {
    let usage = match told.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words = usage.split_whitespace().skip_while(|word| *word != "tollgate").take_while(is_name);
    let named = words.collect::<Vec<_>>().join(" ");
    if named.starts_with(program) { named } else { program.to_owned() }
}

/// Clap's paragraphs up to the usage, joined.
fn in_one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end =
        ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let said = &text[..end.unwrap_or(text.len())];
    let paragraphs = said.split("\n\n").map(|paragraph| {
        let lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line)).collect::<Vec<_>>().join(" ")
    });
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clap_says_is_one_line() {
        let line = |words: &[&str]| {
            let command = crate::arguments::command(crate::COMMANDS);
            let told = command.try_get_matches_from(words).unwrap_err();
            let line = fault("tollgate", &told).to_string();
            assert!(!line.contains('\n'), "{line}");
            line
        };
        assert_eq!(line(&["tollgate"]), "tollgate: a command is missing; see tollgate --help");
        let unknown = line(&["tollgate", "run", "--round", "3"]);
        assert!(unknown.starts_with("unexpected argument '--round' found; "), "{unknown}");
        assert!(
            unknown.contains("'--rounds'") && unknown.ends_with("; see tollgate run --help"),
            "{unknown}"
        );
        let value = line(&["tollgate", "run", "--profile", "quik"]);
        assert!(value.contains("quick, standard, full"), "{value}");
        let missing = line(&["tollgate", "export"]);
        assert!(missing.contains("<FORM>"), "{missing}");
        let priority = line(&["tollgate", "run", "--priority", "99"]);
        assert!(priority.contains("99 is not in -20..=19"), "{priority}");
    }
}
