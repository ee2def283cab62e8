//! Terms of the method and of the screens, from `terms.toml`.

use lab::data::{DataError, read_toml};
use serde::Deserialize;

/// A term with its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Term {
    /// The term in the singular, in lower case.
    pub(crate) name: String,
    /// Its meaning in a few sentences.
    pub(crate) means: String,
    /// Related terms.
    #[serde(default)]
    pub(crate) see: Vec<String>,
    /// Whether the page of results explains it.
    #[serde(default)]
    on_page: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    term: Vec<Term>,
}

/// Returns all terms.
///
/// # Errors
/// Returns an error if the embedded file is damaged, which a test excludes.
pub(crate) fn terms() -> Result<Vec<Term>, DataError> {
    let terms: Terms = read_toml("terms.toml", include_str!("../terms.toml"))?;
    Ok(terms.term)
}

/// Returns the terms that the page of results explains.
///
/// # Errors
/// As [`terms`].
pub(crate) fn on_page() -> Result<Vec<report::page::Term>, DataError> {
    let shown = terms()?.into_iter().filter(|term| term.on_page);
    Ok(shown.map(|Term { name, means, .. }| report::page::Term { name, means }).collect())
}

/// Finds a term by its name in any case, in the singular or plural, or by its first words if no other begins with them.
pub(crate) fn find<'t>(terms: &'t [Term], name: &str) -> Option<&'t Term> {
    let name = name.to_lowercase();
    let singular = |ending| name.strip_suffix(ending).unwrap_or(&name);
    let names = [name.as_str(), singular("s"), singular("es")];
    let whole = terms.iter().find(|term| names.contains(&term.name.as_str()));
    let begins = |term: &&Term| {
        let rest = term.name.strip_prefix(name.as_str());
        !name.is_empty() && rest.is_some_and(|rest| rest.starts_with(' '))
    };
    whole.or_else(|| {
        let mut beginning = terms.iter().filter(begins);
        beginning.next().filter(|_| beginning.next().is_none())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn terms_are_distinct_and_refer_to_terms() {
        let terms = terms().unwrap();
        let names: BTreeSet<_> = terms.iter().map(|term| &term.name).collect();
        assert_eq!(names.len(), terms.len());
        for term in &terms {
            assert!(term.means.ends_with('.'), "{}", term.name);
            let other = term.see.iter().find(|name| !names.contains(name) || **name == term.name);
            assert_eq!(other, None, "{}", term.name);
        }
    }

    #[test]
    fn the_page_explains_every_verdict() {
        let shown = on_page().unwrap();
        let verdicts = terms().unwrap().into_iter().find(|term| term.name == "verdict").unwrap();
        for name in verdicts.see.iter().map(String::as_str).chain(["noise floor", "void", "near"]) {
            assert!(shown.iter().any(|term| term.name == name), "{name}");
        }
        assert!(shown.len() < 25, "{}", shown.len());
    }

    /// Returns the words in italics, `*twin*`, outside of code.
    fn italics(document: &str) -> Vec<String> {
        let prose: String = document.split('`').step_by(2).collect();
        let is_term = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ' || c == '-')
        };
        let prose = prose.split_whitespace().collect::<Vec<_>>().join(" ");
        let (mut found, mut rest) = (Vec::new(), prose.as_str());
        while let Some((_, after)) = rest.split_once('*') {
            rest = match after.split_once('*') {
                Some((term, next)) if is_term(term) => {
                    found.push(term.to_owned());
                    next
                }
                _ => after,
            };
        }
        found
    }

    #[test]
    fn names_are_singular_and_in_lower_case() {
        for term in terms().unwrap() {
            let name = term.name.as_str();
            assert_eq!(name, name.to_lowercase());
            // `leans` is a verb, and `with voids` the title of a column.
            let is_plural = name.ends_with('s') && !name.ends_with("ss");
            assert!(!is_plural || ["leans", "with voids"].contains(&name), "{name}");
        }
    }

    #[test]
    fn the_vocabulary_and_the_words_of_the_screens_are_explained() {
        let terms = terms().unwrap();
        let vocabulary = "suite method experiment factor level covariate point round session sample trial order link worker \
            probe role artefact journal search capability claim promise verdict figure headline catalogue";
        let screens =
            "bundle drift environment fleet host lab MAD median noise pass profile run seed stall";
        for name in vocabulary.split_whitespace().chain(screens.split_whitespace()) {
            assert!(find(&terms, name).is_some(), "'{name}' is not in terms.toml");
        }
        for plural in ["curves", "Alternatives", "classes", "suites"] {
            assert!(find(&terms, plural).is_some(), "{plural}");
        }
    }

    #[test]
    fn each_term_of_the_method_is_explained() {
        let pages =
            [include_str!("../../../docs/method.md"), include_str!("../../../docs/claims.md")];
        let italics = italics(&pages.join("\n\n"));
        for late in ["noise floor", "lag-1 correlation", "blocking"] {
            assert!(italics.iter().any(|name| name == late), "{late}: {italics:?}");
        }
        let terms = terms().unwrap();
        for name in italics.iter().filter(|name| *name != "italics") {
            assert!(find(&terms, name).is_some(), "'{name}' is not in terms.toml");
        }
    }

    #[test]
    fn code_is_not_in_italics() {
        let text = "a *twin* and `clock.issue_*` and a *noise\nfloor*, 2 * 3 * 4";
        assert_eq!(italics(text), ["twin", "noise floor"]);
    }
}
