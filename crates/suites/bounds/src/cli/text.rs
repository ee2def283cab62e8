//! Values in tables, with footnotes on missing ones.

use lab::table::Document;

/// Content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Value(f64),
    /// The reason why the value is missing.
    Missing(String),
    Empty,
}

impl Cell {
    /// Applies a function to the value.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Value(value) => Self::Value(change(value)),
            other => other,
        }
    }

    /// Returns the reason only.
    pub(crate) fn without_value(self) -> Self {
        match self {
            Self::Value(_) => Self::Empty,
            other => other,
        }
    }

    /// Returns the formatted value, or a dash with the mark of a footnote.
    pub(crate) fn text(&self, document: &mut Document, format: impl Fn(f64) -> String) -> String {
        match self {
            Self::Value(value) => format(*value),
            Self::Empty => "—".into(),
            Self::Missing(reason) => format!("— {}", document.footnote(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_have_footnotes() {
        let mut document = Document::default();
        let mut text = |cell: Cell| cell.text(&mut document, |value| format!("{value:.1}"));
        assert_eq!(text(Cell::Value(2.5)), "2.5");
        assert_eq!(text(Cell::Missing("no counters; expose a PMU".into())), "— [1]");
        assert_eq!(text(Cell::Empty), "—");
        assert_eq!(document.finish(), "\n[1] no counters; expose a PMU\n");
    }
}
