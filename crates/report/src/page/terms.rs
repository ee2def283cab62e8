//! Terms that a page uses, with their meanings as `tollgate explain` prints them.

use maud::{Markup, html};

use super::slug;

/// A term with its meaning.
#[derive(Debug, Clone)]
pub struct Term {
    /// The term in the singular.
    pub name: String,
    /// Its meaning in a few sentences.
    pub means: String,
}

/// Renders the terms in closed details, which a link to them opens.
pub(super) fn section(terms: &[Term]) -> Markup {
    html! {
        @if !terms.is_empty() {
            section.reading aria-labelledby="reading" {
                details {
                    summary { h2 #reading { "How to read this page" } }
                    dl.terms {
                        @for term in terms {
                            dt id={ "term-" (slug(&term.name)) } { (term.name) }
                            dd { (term.means) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the meaning of a term; empty if it has none.
pub(super) fn meaning<'t>(terms: &'t [Term], name: &str) -> &'t str {
    terms.iter().find(|term| term.name == name).map_or("", |term| term.means.as_str())
}
