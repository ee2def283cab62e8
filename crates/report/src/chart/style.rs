//! Styles of curves: colours that colour-blind readers can distinguish, dashes and marks that remain
//! distinct in grey.

/// Okabe and Ito's colours without yellow, which is hard to see on white, then Tol's.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#882255",
    "#999933", "#6b6b6b",
];
const DASHES: [&str; 4] = ["", "6 3", "2 2.5", "8 3 2 3"];

/// Radius of a mark.
pub(super) const MARK: f64 = 3.4;
/// Radius of the hollow mark of a published value, which is visible around a mark of ours.
pub(super) const PUBLISHED_MARK: f64 = 4.6;
/// Style of the mark of a source in the legend.
pub(super) const SOURCE: &str = r##"fill="none" stroke="#444444" stroke-width="1.4""##;
/// Stroke of the line of a published value.
pub(super) const PUBLISHED_LINE: &str =
    r##"stroke="#444444" stroke-width="1.3" stroke-dasharray="1.5 3""##;

/// Stroke of a reference line.
pub(super) const REFERENCE_LINE: &str =
    r##"stroke="#444444" stroke-width="1.3" stroke-dasharray="9 3 1.5 3""##;

/// Returns the colours of a cell and of the text on it. `share` runs from 0 for the smallest value to
/// 1 for the largest; one hue keeps the order visible in grey and to colour-blind readers.
pub(super) fn cell_colours(share: f64) -> (String, &'static str) {
    let (lightest, darkest) = ([247.0, 251.0, 255.0], [0.0, 92.0, 150.0]);
    let mixed = |at: usize| (lightest[at] + (darkest[at] - lightest[at]) * share).round() as u8;
    let colour = format!("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
    (colour, if share > 0.73 { "#ffffff" } else { "#222222" })
}

/// Colour of the mark for yes.
pub(super) const YES: &str = COLOURS[0];

/// Style of one curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Style {
    pub(super) colour: &'static str,
    pub(super) dash: &'static str,
    pub(super) mark: Shape,
}

impl Style {
    /// Returns the style of the curve with this index. Beyond six curves, whose colours and marks
    /// differ, dashes differ too.
    pub(super) fn of_curve(index: usize) -> Self {
        Self {
            colour: COLOURS[index % COLOURS.len()],
            dash: DASHES[index / SHAPES.len() % DASHES.len()],
            mark: SHAPES[index % SHAPES.len()],
        }
    }

    /// Returns the SVG attributes of the mark of a published value.
    pub(super) fn hollow(&self) -> String {
        format!(r#"fill="none" stroke="{}" stroke-width="1.4""#, self.colour)
    }

    /// Returns the SVG attributes of the curve's line.
    pub(super) fn stroke(&self) -> String {
        let dash = match self.dash {
            "" => String::new(),
            dash => format!(r#" stroke-dasharray="{dash}""#),
        };
        format!(r#"fill="none" stroke="{}" stroke-width="1.7"{dash}"#, self.colour)
    }
}

/// Shape of a mark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Circle,
    Square,
    Up,
    Diamond,
    Down,
    Cross,
}

const SHAPES: [Shape; 6] =
    [Shape::Circle, Shape::Square, Shape::Up, Shape::Diamond, Shape::Down, Shape::Cross];

impl Shape {
    /// Returns the SVG path of the outline centred at (`x`, `y`).
    pub(super) fn path(self, x: f64, y: f64, r: f64) -> String {
        let p = |dx: f64, dy: f64| format!("{:.2} {:.2}", x + dx * r, y + dy * r);
        let closed = |points: &[(f64, f64)]| {
            let points: Vec<_> = points.iter().map(|(dx, dy)| p(*dx, *dy)).collect();
            format!("M{}Z", points.join("L"))
        };
        match self {
            Self::Circle => {
                let (left, right) = (p(-1.0, 0.0), p(1.0, 0.0));
                format!("M{left}A{r} {r} 0 1 0 {right}A{r} {r} 0 1 0 {left}Z")
            }
            Self::Square => closed(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Self::Up => closed(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Self::Diamond => closed(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Self::Down => closed(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            Self::Cross => {
                let arm = [
                    (-0.35, -1.1),
                    (0.35, -1.1),
                    (0.35, -0.35),
                    (1.1, -0.35),
                    (1.1, 0.35),
                    (0.35, 0.35),
                    (0.35, 1.1),
                    (-0.35, 1.1),
                    (-0.35, 0.35),
                    (-1.1, 0.35),
                    (-1.1, -0.35),
                    (-0.35, -0.35),
                ];
                closed(&arm)
            }
        }
    }
}
