//! What tells curves apart: colours that colour-blind eyes keep apart, dashes and marks that
//! survive a grey printer.

/// Okabe and Ito's colours without the yellow that vanishes on white, then Tol's.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#882255",
    "#999933", "#6b6b6b",
];
const DASHES: [&str; 4] = ["", "6 3", "2 2.5", "8 3 2 3"];

/// How a line to compare with is drawn.
pub(super) const LIMIT: &str =
    r##"stroke="#444444" stroke-width="1.3" stroke-dasharray="9 3 1.5 3""##;

/// The colour of a cell, by a share of the way from the least to the most: one hue, so that grey
/// printers and all eyes see which is more. And the colour of letters on it.
pub(super) fn shade(share: f64) -> (String, &'static str) {
    let (least, most) = ([247.0, 251.0, 255.0], [0.0, 92.0, 150.0]);
    let mixed = |at: usize| (least[at] + (most[at] - least[at]) * share).round() as u8;
    let colour = format!("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
    (colour, if share > 0.73 { "#ffffff" } else { "#222222" })
}

/// The colour of a mark that says yes.
pub(super) const YES: &str = COLOURS[0];

/// How one curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Style {
    pub(super) colour: &'static str,
    pub(super) dash: &'static str,
    pub(super) mark: Shape,
}

impl Style {
    /// The line of a curve, as SVG attributes.
    pub(super) fn stroke(&self) -> String {
        let dash = match self.dash {
            "" => String::new(),
            dash => format!(r#" stroke-dasharray="{dash}""#),
        };
        format!(r#"fill="none" stroke="{}" stroke-width="1.7"{dash}"#, self.colour)
    }
}

/// The shape of a mark.
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

/// The style of the curve with this number.
pub(super) fn of(number: usize) -> Style {
    Style {
        colour: COLOURS[number % COLOURS.len()],
        // Colours and shapes alone tell six apart; then the lines differ too.
        dash: DASHES[number / SHAPES.len() % DASHES.len()],
        mark: SHAPES[number % SHAPES.len()],
    }
}

impl Shape {
    /// The outline around a place, as SVG path data.
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
