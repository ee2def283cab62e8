//! Figures as they are declared in TOML.

use lab::experiment::{DataError, read_toml};
use lab::point::Filter;
use serde::Deserialize;

/// A figure as it is asked for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The name on the command line, and the files' name.
    pub id: String,
    /// What stands above it.
    pub title: String,
    /// Suite and name: `copy/throughput`.
    pub experiment: String,
    /// The metric; the experiment's own where there is none.
    pub metric: Option<String>,
    /// The factor along x. A distribution has none: its x is the metric.
    #[serde(default)]
    pub x: String,
    /// The factor with a curve for each level.
    pub series: Option<String>,
    /// Which points are shown. Factors that are named nowhere stand at the experiment's baseline.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// How x is laid out; by the levels where nothing is said.
    pub x_scale: Option<Axis>,
    /// How y is laid out; linear where nothing is said.
    pub y_scale: Option<Axis>,
    /// What is drawn of the metric.
    #[serde(default)]
    pub y: Y,
    /// Horizontal lines to compare with.
    #[serde(default)]
    pub lines: Vec<Line>,
}

/// How an axis is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Powers of two, for lengths.
    Log2,
    /// Powers of ten.
    Log10,
    /// In proportion.
    Linear,
    /// Side by side, in order.
    Category,
}

/// What is drawn of a metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Y {
    /// The median over rounds with its interval.
    #[default]
    Median,
    /// The cumulative distribution inside rounds, all rounds together.
    Cdf,
}

/// A horizontal line: a value of the run to compare with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it is.
    pub label: String,
    /// Its experiment; the figure's where there is none.
    pub experiment: Option<String>,
    /// Its metric; the figure's where it is of the figure's experiment, else the experiment's own.
    pub metric: Option<String>,
    /// The points of which it is one.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// Which of them.
    #[serde(default)]
    pub of: Of,
}

/// Which of several medians.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// The largest.
    #[default]
    Largest,
    /// The smallest.
    Smallest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    figure: Vec<toml::Spanned<toml::Value>>,
    // Other tables of the same file have readers of their own.
    #[serde(default, rename = "experiment")]
    _experiment: Vec<toml::Value>,
    #[serde(default, rename = "claim")]
    _claim: Vec<toml::Value>,
}

/// Reads the figures of one file.
///
/// # Errors
/// One line with the file, the line and the fault.
pub fn read(file: &str, text: &str) -> Result<Vec<Figure>, DataError> {
    let parsed: File = read_toml(file, text)?;
    let mut figures: Vec<Figure> = Vec::new();
    for figure in parsed.figure {
        let line = text[..figure.span().start.min(text.len())].matches('\n').count() + 1;
        let figure: Figure =
            serde_path_to_error::deserialize(figure.into_inner()).map_err(|e| DataError {
                file: file.into(),
                what: format!("line {line}: {} (at {})", e.inner().message(), e.path()),
            })?;
        let again = figures.iter().any(|known| known.id == figure.id);
        let what = figure.fault().or(again.then(|| "there are two of this id".into()));
        if let Some(what) = what {
            let what = format!("line {line}: figure '{}': {what}", figure.id);
            return Err(DataError { file: file.into(), what });
        }
        figures.push(figure);
    }
    Ok(figures)
}

impl Figure {
    /// A figure as asked for on the command line: the medians of the experiment's own metric.
    pub fn by_hand(experiment: &str, x: &str) -> Self {
        Self {
            id: format!("{}-{x}", experiment.replace('/', "-")),
            title: experiment.into(),
            experiment: experiment.into(),
            metric: None,
            x: x.into(),
            series: None,
            filter: Filter::default(),
            x_scale: None,
            y_scale: None,
            y: Y::Median,
            lines: Vec::new(),
        }
    }

    /// What is wrong with it by itself.
    fn fault(&self) -> Option<String> {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || self.id.starts_with('.') || !self.id.chars().all(safe) {
            return Some("an id names files: use letters, digits and '-'".into());
        }
        match (self.y, self.x.as_str()) {
            (Y::Median, "") => Some("it needs 'x', a factor".into()),
            (Y::Cdf, x) if !x.is_empty() => {
                Some("a cdf takes no 'x': its x is the metric itself".into())
            }
            (Y::Median, _) if self.y_scale == Some(Axis::Category) => {
                Some("y_scale cannot be \"category\": values are numbers".into())
            }
            (Y::Cdf, _) if self.y_scale.is_some_and(|scale| scale != Axis::Linear) => {
                Some("a cdf's y is a share: leave out 'y_scale'".into())
            }
            _ if self.series.as_ref() == Some(&self.x) => {
                Some("'x' and 'series' are the same factor".into())
            }
            _ => None,
        }
    }
}
