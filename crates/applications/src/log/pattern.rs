//! Translation of fail2ban's expressions, which are Python's and apply to one line, to Hyperscan's, which apply to a stream.
//!
//! | fail2ban | here |
//! | --- | --- |
//! | `<HOST>`, `<ADDR>`, `<IP4>`, `<IP6>`, `<DNS>` | an address or a name |
//! | `<F-NAME>...</F-NAME>`, `(?P<name>...)` | a group |
//! | `^` | nothing; see below |
//! | `\[\]` | brackets with any content, because a date was removed from them |
//! | `[^...]`, `\s`, `\W`, `\D` | the same without newline, so that no match extends over lines |
//! | `.*` at the end | nothing, because it would match again at every byte |
//! | `(?i)` at the start | the pattern ignores case |
//! | lookaround, references, conditions, `<SKIPLINES>` | refused: Hyperscan has none |
//!
//! fail2ban removes the date from a line before it matches `^`. A stream has dates, and the length of what precedes the
//! message has no limit, so an anchored pattern would be followed on every line: it takes ten times as long. Without anchor
//! Hyperscan looks for the literals in the patterns first. The price: a line also matches if a user name, for example,
//! imitates a whole message.

use super::hyperscan::Pattern;

const IP4: &str = r"(?:::f{4,6}:)?\d{1,3}(?:\.\d{1,3}){3}";
const IP6: &str = r"[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}";
const DNS: &str = r"[\w.^-]*\w";

/// Why an expression cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A construct that Hyperscan lacks.
    #[error("'{0}' is not supported; rewrite the expression without it")]
    Unsupported(String),
    /// A class of characters or an escape without end.
    #[error("the expression ends within '{0}'; complete it")]
    Unfinished(char),
}

/// Translates an expression.
///
/// # Errors
/// Returns the first construct that cannot be translated. Hyperscan may refuse others.
pub fn translate(expression: &str) -> Result<Pattern, PatternError> {
    let (caseless, expression) = match expression.strip_prefix("(?i)") {
        Some(rest) => (true, rest),
        None => (false, expression),
    };
    let expression = without_end(expression);
    let mut translation = Translation { rest: expression, text: String::new() };
    while translation.step()? {}
    Ok(Pattern { text: translation.text, caseless })
}

/// Removes an end that matches anything.
fn without_end(expression: &str) -> &str {
    let shorter = expression.strip_suffix('$').unwrap_or(expression);
    match shorter.strip_suffix(".*").or(shorter.strip_suffix(".*?")) {
        // An escaped dot is one.
        Some(rest) if !rest.ends_with('\\') => rest,
        _ => expression,
    }
}

struct Translation<'a> {
    rest: &'a str,
    text: String,
}

impl<'a> Translation<'a> {
    /// Translates the next construct; returns whether there was one.
    fn step(&mut self) -> Result<bool, PatternError> {
        let Some(next) = self.rest.chars().next() else { return Ok(false) };
        match next {
            '\\' => self.escape()?,
            '[' => self.class()?,
            '(' => self.group()?,
            '<' => self.tag()?,
            '^' => {
                self.take(1);
            }
            _ => {
                let character = self.take(next.len_utf8());
                self.text.push_str(character);
            }
        }
        Ok(true)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn escape(&mut self) -> Result<(), PatternError> {
        if self.rest.starts_with(r"\[\]") {
            self.take(4);
            self.text.push_str(r"\[[^\]\n]*\]");
            return Ok(());
        }
        let escaped = self.rest.chars().nth(1).ok_or(PatternError::Unfinished('\\'))?;
        let taken = self.take(1 + escaped.len_utf8());
        match escaped {
            's' => self.text.push_str(r"[ \t\r\f\v]"),
            'W' => self.text.push_str(r"[^\w\n]"),
            'D' => self.text.push_str(r"[^\d\n]"),
            'A' | 'Z' | 'z' | 'G' | '1'..='9' | 'k' | 'g' => {
                return Err(PatternError::Unsupported(taken.into()));
            }
            _ => self.text.push_str(taken),
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), PatternError> {
        let unfinished = PatternError::Unfinished('[');
        self.text.push_str(self.rest.get(..1).unwrap_or_default());
        self.take(1);
        if self.rest.starts_with('^') {
            self.take(1);
            self.text.push_str(r"^\n");
        }
        // A bracket that is the first character is a member.
        let mut is_first = true;
        loop {
            let next = self.rest.chars().next().ok_or(unfinished.clone())?;
            let taken = self.take(next.len_utf8());
            match next {
                ']' if !is_first => {
                    self.text.push(']');
                    return Ok(());
                }
                ']' | '[' => {
                    self.text.push('\\');
                    self.text.push(next);
                }
                '\\' => {
                    let escaped = self.rest.chars().next().ok_or(unfinished.clone())?;
                    self.take(escaped.len_utf8());
                    match escaped {
                        's' => self.text.push_str(r" \t\r\f\v"),
                        'S' | 'W' | 'D' => {
                            return Err(PatternError::Unsupported(format!(
                                r"\{escaped} in a class"
                            )));
                        }
                        _ => self.text.extend(['\\', escaped]),
                    }
                }
                _ => self.text.push_str(taken),
            }
            is_first = false;
        }
    }

    fn group(&mut self) -> Result<(), PatternError> {
        let refused = ["(?=", "(?!", "(?<", "(?P=", "(?P>", "(?(", "(?i", "(?s", "(?m", "(?x"];
        if let Some(construct) = refused.iter().find(|construct| self.rest.starts_with(**construct))
        {
            return Err(PatternError::Unsupported((*construct).into()));
        }
        if let Some(named) = self.rest.strip_prefix("(?P<") {
            let end = named.find('>').ok_or(PatternError::Unfinished('('))?;
            self.rest = &named[end + 1..];
            self.text.push_str("(?:");
            return Ok(());
        }
        self.take(1);
        self.text.push('(');
        Ok(())
    }

    fn tag(&mut self) -> Result<(), PatternError> {
        let tag = self.rest.find('>').map(|end| &self.rest[..=end]).unwrap_or("<");
        let translated = match tag {
            "<HOST>" => format!("(?:{IP4}|{IP6}|{DNS})"),
            "<ADDR>" => format!("(?:{IP4}|{IP6})"),
            "<IP4>" => format!("(?:{IP4})"),
            "<IP6>" => format!("(?:{IP6})"),
            "<DNS>" => format!("(?:{DNS})"),
            "<SKIPLINES>" => return Err(PatternError::Unsupported(tag.into())),
            _ if tag.starts_with("<F-") => "(?:".into(),
            _ if tag.starts_with("</F-") => ")".into(),
            _ => {
                self.take(1);
                self.text.push('<');
                return Ok(());
            }
        };
        self.take(tag.len());
        self.text.push_str(&translated);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(expression: &str) -> String {
        translate(expression).unwrap().text
    }

    #[test]
    fn constructs_are_translated() {
        for (expression, expected) in [
            (r"plain text", r"plain text"),
            (r"^start", r"start"),
            (r"a\s+b\.c", r"a[ \t\r\f\v]+b\.c"),
            (r#"user "[^"]+""#, r#"user "[^\n"]+""#),
            (r"[\s[:-]x", r"[ \t\r\f\v\[:-]x"),
            (r"[]a][^]b]", r"[\]a][^\n\]b]"),
            (r"\W\D\S\w", r"[^\w\n][^\d\n]\S\w"),
            (r"(?P<user>\S+) (?:x|y)", r"(?:\S+) (?:x|y)"),
            (r"<F-USER>\S+|.*?</F-USER>:", r"(?:\S+|.*?):"),
            (r"(?:\[\])? x", r"(?:\[[^\]\n]*\])? x"),
            (r"x<y> <", r"x<y> <"),
            (r"end.*$", r"end"),
            (r"end.*", r"end"),
            (r"end\.*$", r"end\.*$"),
            (r"end\s*$", r"end[ \t\r\f\v]*$"),
            (r"größe", r"größe"),
        ] {
            assert_eq!(text(expression), expected, "{expression}");
        }
        assert!(translate("(?i)Failed").unwrap().caseless);
        assert!(text("<HOST>").contains(IP4) && text("<HOST>").contains(IP6));
    }

    #[test]
    fn unsupported_constructs_are_refused() {
        for expression in [
            r"(?=a)",
            r"(?!a)",
            r"(?<=a)b",
            r"(a)\1",
            r"(?P=x)",
            r"(?(1)a)",
            r"a<SKIPLINES>b",
            r"\Ax",
            r"[\S]",
            r"a(?i)b",
        ] {
            let refused = translate(expression);
            assert!(
                matches!(refused, Err(PatternError::Unsupported(_))),
                "{expression}: {refused:?}"
            );
        }
        for expression in ["[a", "[^", "\\", "[\\", "[]"] {
            assert!(
                matches!(translate(expression), Err(PatternError::Unfinished(_))),
                "{expression}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(expression in r"[\\\[\]()^$.*?<>/FHOSTPia=!:\-sWDé ]{0,40}") {
            if let Ok(pattern) = translate(&expression) {
                prop_assert!(!pattern.text.contains("<HOST>"));
            }
        }
    }
}
