//! The frame of a page: head, policy, contents, scripts and data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

/// Style sheets: screen, then print.
const STYLES: [&str; 2] = [include_str!("style/screen.css"), include_str!("style/print.css")];

/// Scripts, in the order of their use of each other. They share one scope.
const SCRIPTS: [&str; 13] = [
    include_str!("scripts/elements.js"),
    include_str!("scripts/format.js"),
    include_str!("scripts/axis.js"),
    include_str!("scripts/data.js"),
    include_str!("scripts/samples.js"),
    include_str!("scripts/tooltip.js"),
    include_str!("scripts/chart.js"),
    include_str!("scripts/figure.js"),
    include_str!("scripts/grid.js"),
    include_str!("scripts/tables.js"),
    include_str!("scripts/list.js"),
    include_str!("scripts/claims.js"),
    include_str!("scripts/start.js"),
];

/// A page.
pub(super) struct Document {
    pub(super) title: String,
    pub(super) header: Markup,
    pub(super) contents: Vec<Entry>,
    pub(super) body: Markup,
    /// Elements with data for the scripts.
    pub(super) data: Markup,
}

/// Entry of the contents.
pub(super) struct Entry {
    text: String,
    /// ID of the element.
    target: String,
    parts: Vec<Entry>,
}

impl Entry {
    pub(super) fn new(text: &str, target: &str) -> Self {
        Self { text: text.into(), target: target.into(), parts: Vec::new() }
    }

    /// Adds entries below it.
    pub(super) fn with(self, parts: Vec<Self>) -> Self {
        Self { parts, ..self }
    }

    fn html(&self) -> Markup {
        html! {
            li {
                a href={ "#" (self.target) } { (self.text) }
                @if !self.parts.is_empty() {
                    ul { @for part in &self.parts { (part.html()) } }
                }
            }
        }
    }
}

impl Document {
    /// Renders the page.
    pub(super) fn html(&self) -> String {
        let style = STYLES.concat();
        let script = format!("(async () => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat());
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(policy(&style, &script));
                    meta name="color-scheme" content="light dark";
                    link rel="icon" href="data:,";
                    title { (self.title) }
                    style { (PreEscaped(&style)) }
                }
                body {
                    a.skip href="#main" { "Skip to the results" }
                    (self.header)
                    div.columns {
                        nav #contents aria-label="Contents" {
                            details open {
                                summary { "Contents" }
                                ul { @for entry in &self.contents { (entry.html()) } }
                            }
                        }
                        main #main tabindex="-1" { (self.body) }
                    }
                    div #tooltip role="status" aria-live="polite" hidden {}
                    (self.data)
                    script { (PreEscaped(&script)) }
                }
            }
        };
        page.into_string()
    }
}

/// Returns the policy of the page: its own style and script, known by their digests, and no request.
fn policy(style: &str, script: &str) -> String {
    let digest = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; img-src data:; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        digest(style),
        digest(script)
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_styles_cannot_end_their_element() {
        for text in SCRIPTS.iter().chain(&STYLES) {
            let text = text.to_lowercase();
            assert!(!text.contains("</") && !text.contains("<!--"), "{text}");
        }
    }
}
