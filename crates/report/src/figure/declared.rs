//! Figures as they are declared in TOML.

use lab::experiment::{DataError, MAX_TABLES, read_toml};
use lab::point::{Filter, Level};
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
    /// What it is drawn as.
    #[serde(default)]
    pub kind: Kind,
    /// The metric; the experiment's own where there is none.
    pub metric: Option<String>,
    /// The factor along x: of a grid, that of its columns. A distribution has none: its x is the
    /// metric. A grid without one has a single column.
    #[serde(default)]
    pub x: String,
    /// The factor with a curve for each level; of a grid, that of its rows.
    pub series: Option<String>,
    /// Which points are shown. Factors that are named nowhere stand at the experiment's baseline.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// How x is laid out; by the levels where nothing is said.
    pub x_scale: Option<Axis>,
    /// How y is laid out, and the shades of a grid; linear where nothing is said.
    pub y_scale: Option<Axis>,
    /// What is drawn of the metric.
    #[serde(default)]
    pub y: Y,
    /// Horizontal lines to compare with.
    #[serde(default)]
    pub lines: Vec<Line>,
    /// Rows of a grid that stand together, the first for itself and the others as ratios to it.
    #[serde(default)]
    pub groups: Vec<Vec<Level>>,
    /// Further panels of a grid, with the same rows.
    #[serde(default)]
    pub beside: Vec<Beside>,
}

/// What a figure is drawn as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Marks over x, joined where x is a quantity.
    #[default]
    Curves,
    /// A cell for each level of two factors: a shaded number, or a mark for yes and for no.
    Grid,
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

/// A further panel of a grid: another metric or experiment over the same rows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// Its experiment; the figure's where there is none.
    pub experiment: Option<String>,
    /// Its metric; the experiment's own where there is none.
    pub metric: Option<String>,
    /// The factor of its columns; a single column where there is none.
    #[serde(default)]
    pub x: String,
    /// Which points are shown; what the figure says of its rows holds here too.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// How its shades are laid out; linear where nothing is said.
    pub y_scale: Option<Axis>,
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
    if parsed.figure.len() > MAX_TABLES {
        let what = format!("it has more than {MAX_TABLES} figures; split it into several files");
        return Err(DataError { file: file.into(), what });
    }
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
            kind: Kind::Curves,
            metric: None,
            x: x.into(),
            series: None,
            filter: Filter::default(),
            x_scale: None,
            y_scale: None,
            y: Y::Median,
            lines: Vec::new(),
            groups: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// A panel as a figure of its own.
    pub(super) fn panel(&self, beside: &Beside) -> Self {
        let mut filter = beside.filter.clone();
        let rows = self.filter.0.iter().filter(|(factor, _)| self.series.as_ref() == Some(*factor));
        filter.0.extend(rows.map(|(factor, levels)| (factor.clone(), levels.clone())));
        Self {
            experiment: beside.experiment.clone().unwrap_or_else(|| self.experiment.clone()),
            metric: beside.metric.clone(),
            x: beside.x.clone(),
            filter,
            y_scale: beside.y_scale,
            groups: Vec::new(),
            beside: Vec::new(),
            ..self.clone()
        }
    }

    /// What is wrong with it by itself, whether a file declares it or a command line asks for it.
    pub fn fault(&self) -> Option<String> {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || self.id.starts_with('.') || !self.id.chars().all(safe) {
            return Some("an id names files: use letters, digits and '-'".into());
        }
        if self.kind == Kind::Grid {
            return self.grid_fault();
        }
        if !self.groups.is_empty() || !self.beside.is_empty() {
            return Some("'groups' and 'beside' are for kind = \"grid\"".into());
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

    /// What is wrong with a grid by itself.
    fn grid_fault(&self) -> Option<String> {
        let Some(rows) = &self.series else {
            return Some("a grid needs 'series', the factor of its rows".into());
        };
        let mut columns = std::iter::once(&self.x).chain(self.beside.iter().map(|it| &it.x));
        let mut scales =
            std::iter::once(self.y_scale).chain(self.beside.iter().map(|it| it.y_scale));
        if self.y == Y::Cdf || self.x_scale.is_some() || !self.lines.is_empty() {
            return Some("a grid takes no 'y', 'x_scale' or 'lines'".into());
        }
        if columns.any(|factor| factor == rows) {
            return Some("'x' and 'series' are the same factor".into());
        }
        if scales.any(|scale| scale == Some(Axis::Category)) {
            return Some("y_scale cannot be \"category\": values are numbers".into());
        }
        self.groups.iter().any(Vec::is_empty).then(|| "a group without rows".into())
    }
}
