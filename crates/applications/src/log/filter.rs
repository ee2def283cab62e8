//! Rule files in fail2ban's format: which lines of a log are failures.
//!
//! Of the format these parts are read: the sections `[INCLUDES]` (`before`), `[DEFAULT]`, `[Definition]` and `[Init]`; values over
//! several lines; references `%(name)s` and `<name>` to other values; `failregex`, one expression a line; and `prefregex`
//! with `<F-CONTENT>`, which precedes each of them. A `failregex` is refused if it needs what Hyperscan lacks, and a file if it
//! has an `ignoreregex`.

use std::collections::HashMap;
use std::path::Path;

use super::hyperscan::Pattern;
use super::pattern::{PatternError, translate};

/// Maximum depth of references and of included files.
const MAX_DEPTH: usize = 16;

/// Why a rule file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A file cannot be read.
    #[error("{file}: {why}; name a readable file")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's reason.
        why: std::io::Error,
    },
    /// A line that is neither section, value nor comment.
    #[error("{file}, line {line}: neither a section nor 'name = value'; correct it")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// A reference to no value, or to itself.
    #[error(
        "{file}: '{reference}' refers to nothing or to itself; define it in [DEFAULT] or [Definition]"
    )]
    Reference {
        /// The file.
        file: String,
        /// The reference.
        reference: String,
    },
    /// Files include each other, or one includes itself.
    #[error("{0}: too many files include each other; remove one 'before'")]
    Includes(String),
    /// No expressions.
    #[error("{0}: no failregex; add one to [Definition]")]
    Empty(String),
    /// A setting that would be ignored.
    #[error("{file}: {setting} is not supported; remove it")]
    Unsupported {
        /// The file.
        file: String,
        /// The setting.
        setting: &'static str,
    },
    /// An expression cannot be translated.
    #[error("{file}, failregex {number}: {why}")]
    Pattern {
        /// The file.
        file: String,
        /// Number of the expression, from 1.
        number: usize,
        /// The reason.
        why: PatternError,
    },
}

/// A rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its name: that of the file without `.conf`.
    pub name: String,
    /// The patterns.
    pub patterns: Vec<Pattern>,
}

impl Filter {
    /// Reads a file, and those that it includes from its folder.
    ///
    /// # Errors
    /// Returns why the file cannot be used.
    pub fn read(path: &Path) -> Result<Self, FilterError> {
        let file = path.display().to_string();
        let unreadable = |file: &str, why| FilterError::Unreadable { file: file.into(), why };
        let text = std::fs::read_to_string(path).map_err(|why| unreadable(&file, why))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&file, &text, &|name| {
            std::fs::read_to_string(folder.join(name)).map_err(|why| unreadable(name, why))
        })
    }

    /// Parses a file's text; `include` returns that of a file it includes.
    ///
    /// # Errors
    /// Returns why the file cannot be used.
    pub fn parse(
        file: &str,
        text: &str,
        include: &dyn Fn(&str) -> Result<String, FilterError>,
    ) -> Result<Self, FilterError> {
        let mut values = Values::default();
        values.add_file(file, text, include, 0)?;
        let get = |name: &str| values.get(file, name).transpose();
        let lines = |value: &str| -> Vec<String> {
            value.lines().map(str::trim).filter(|line| !line.is_empty()).map(Into::into).collect()
        };
        if get("ignoreregex")?.is_some_and(|value| !value.trim().is_empty()) {
            return Err(FilterError::Unsupported { file: file.into(), setting: "ignoreregex" });
        }
        let prefix = get("prefregex")?.filter(|value| !value.trim().is_empty());
        let expressions = lines(&get("failregex")?.unwrap_or_default());
        if expressions.is_empty() {
            return Err(FilterError::Empty(file.into()));
        }
        let patterns = expressions.iter().enumerate().map(|(number, expression)| {
            let whole = match &prefix {
                Some(prefix) => with_prefix(prefix.trim(), expression),
                None => expression.clone(),
            };
            let failed = |why| FilterError::Pattern { file: file.into(), number: number + 1, why };
            translate(&whole).map_err(failed)
        });
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, patterns: patterns.collect::<Result<_, _>>()? })
    }
}

/// Puts an expression in the place of `<F-CONTENT>`. An expression that is not anchored may start anywhere in it.
fn with_prefix(prefix: &str, expression: &str) -> String {
    let before = prefix.split("<F-CONTENT>").next().unwrap_or_default();
    match expression.strip_prefix('^') {
        Some(anchored) => format!("{before}{anchored}"),
        None => format!("{before}.*{expression}"),
    }
}

/// Values of a file and those it includes, by name. Values of `[Definition]` precede others.
#[derive(Debug, Default)]
struct Values {
    of_definition: HashMap<String, String>,
    others: HashMap<String, String>,
}

impl Values {
    fn add_file(
        &mut self,
        file: &str,
        text: &str,
        include: &dyn Fn(&str) -> Result<String, FilterError>,
        depth: usize,
    ) -> Result<(), FilterError> {
        if depth >= MAX_DEPTH {
            return Err(FilterError::Includes(file.into()));
        }
        let (mut includes, mut own) = (Vec::new(), Self::default());
        let mut section = String::new();
        let mut last: Option<String> = None;
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            if line.starts_with([' ', '\t'])
                && let Some(name) = &last
            {
                let value = own.section(&section).entry(name.clone()).or_default();
                value.push('\n');
                value.push_str(trimmed);
            } else if let Some(name) =
                trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
            {
                section = name.into();
                last = None;
            } else if let Some((name, value)) = trimmed.split_once('=') {
                let (name, value) = (name.trim().to_string(), value.trim().to_string());
                if section == "INCLUDES" && name == "before" {
                    includes.push(value.clone());
                }
                own.section(&section).insert(name.clone(), value);
                last = Some(name);
            } else {
                return Err(FilterError::Syntax { file: file.into(), line: number + 1 });
            }
        }
        for name in includes {
            self.add_file(&name, &include(&name)?, include, depth + 1)?;
        }
        // Values of the file itself replace those that it includes.
        self.of_definition.extend(own.of_definition);
        self.others.extend(own.others);
        Ok(())
    }

    fn section(&mut self, section: &str) -> &mut HashMap<String, String> {
        if section == "Definition" { &mut self.of_definition } else { &mut self.others }
    }

    fn raw(&self, name: &str) -> Option<&str> {
        self.of_definition.get(name).or(self.others.get(name)).map(String::as_str)
    }

    /// Returns a value with all references resolved; `None` if it is not defined.
    fn get(&self, file: &str, name: &str) -> Option<Result<String, FilterError>> {
        self.raw(name).map(|value| self.resolve(file, value, 0))
    }

    fn resolve(&self, file: &str, value: &str, depth: usize) -> Result<String, FilterError> {
        let mut resolved = String::new();
        let mut rest = value;
        while let Some(at) = rest.find(['%', '<']) {
            let (before, from) = rest.split_at(at);
            resolved.push_str(before);
            if let Some(after) = from.strip_prefix("%%") {
                resolved.push('%');
                rest = after;
                continue;
            }
            let (reference, after) = reference(from);
            let refused =
                || FilterError::Reference { file: file.into(), reference: reference.into() };
            let required = reference.strip_prefix("%(").and_then(|rest| rest.strip_suffix(")s"));
            let name = required.unwrap_or(reference.trim_matches(['<', '>']));
            match self.raw(name) {
                Some(_) if depth >= MAX_DEPTH => return Err(refused()),
                Some(value) => resolved.push_str(&self.resolve(file, value, depth + 1)?),
                None if required.is_some() => return Err(refused()),
                // A tag, or no reference.
                None => resolved.push_str(reference),
            }
            rest = after;
        }
        resolved.push_str(rest);
        // References that double a value at each level would need memory without end.
        if resolved.len() > 1 << 20 {
            return Err(FilterError::Reference {
                file: file.into(),
                reference: value.chars().take(40).collect(),
            });
        }
        Ok(resolved)
    }
}

/// Splits text that starts with `%` or `<` after the reference at its start, or after that character if there is none.
fn reference(text: &str) -> (&str, &str) {
    let end = if text.starts_with("%(") { text.find(")s").map(|at| at + 2) } else { None };
    let end = if text.starts_with('<') { text.find('>').map(|at| at + 1) } else { end };
    text.split_at(end.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn none(name: &str) -> Result<String, FilterError> {
        Err(FilterError::Unreadable { file: name.into(), why: std::io::ErrorKind::NotFound.into() })
    }

    fn texts(text: &str) -> Vec<String> {
        let filter = Filter::parse("x.conf", text, &none).unwrap();
        filter.patterns.into_iter().map(|pattern| pattern.text).collect()
    }

    #[test]
    fn values_and_references_are_resolved() {
        let text = "# comment\n[DEFAULT]\n_daemon = none\npid = (?:\\[\\d+\\])\n\n[Definition]\n_daemon = sshd\n\
                    prefix = <_daemon>%(pid)s?:\nfailregex = %(prefix)s first 100%%\n            %(prefix)s second\n\n\
                    ignoreregex =\n";
        let expected = [r"sshd(?:\[\d+\])?: first 100%", r"sshd(?:\[\d+\])?: second"];
        assert_eq!(texts(text), expected);
    }

    #[test]
    fn a_prefix_precedes_each_expression() {
        let text =
            "[Definition]\nprefregex = ^host <F-CONTENT>.+</F-CONTENT>$\nfailregex = ^one$\n two\n";
        let found = texts(text);
        assert_eq!(found, ["host one$", "host .*two"]);
    }

    #[test]
    fn included_values_come_first() {
        let text = "[INCLUDES]\nbefore = common.conf\n[Definition]\n_daemon = mine\nfailregex = <_daemon> <other>\n";
        let include = |name: &str| {
            assert_eq!(name, "common.conf");
            Ok("[DEFAULT]\n_daemon = theirs\nother = common\n".to_string())
        };
        let filter = Filter::parse("a/b.conf", text, &include).unwrap();
        assert_eq!((filter.name.as_str(), filter.patterns[0].text.as_str()), ("b", "mine common"));
        let endless = |_: &str| Ok(text.to_string());
        assert!(matches!(Filter::parse("b", text, &endless), Err(FilterError::Includes(_))));
    }

    #[test]
    fn errors_name_the_place() {
        for (text, expected) in [
            ("[Definition]\nwhat\n", "x.conf, line 2: neither a section nor 'name = value'"),
            ("[Definition]\nfailregex = %(none)s\n", "x.conf: '%(none)s' refers to nothing"),
            (
                "[Definition]\na = <a>\nfailregex = <a>\n",
                "x.conf: '<a>' refers to nothing or to itself",
            ),
            ("[Definition]\n", "x.conf: no failregex"),
            (
                "[Definition]\nfailregex = a\n (?=b)\n",
                "x.conf, failregex 2: '(?=' is not supported",
            ),
            (
                "[Definition]\nfailregex = a\nignoreregex = b\n",
                "x.conf: ignoreregex is not supported",
            ),
            ("[INCLUDES]\nbefore = c.conf\n", "c.conf: "),
        ] {
            let error = Filter::parse("x.conf", text, &none).unwrap_err().to_string();
            assert!(error.starts_with(expected) && error.contains(';'), "{error}");
        }
        let bomb: String =
            (0..15).map(|n| format!("a{n} = {}\n", format!("<a{}>", n + 1).repeat(20))).collect();
        let text = format!("[Definition]\nfailregex = <a0>\n{bomb}a15 = x\n");
        assert!(matches!(Filter::parse("x", &text, &none), Err(FilterError::Reference { .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec(r"(\[Definition\]|failregex = |[ a%()<>s=#\[\]-]{0,12}){0,3}", 0..12)) {
            let _ = Filter::parse("x.conf", &lines.join("\n"), &none);
        }
    }
}
