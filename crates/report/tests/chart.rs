//! Drawn pictures: no overlaps, complete legends, readable files in every format.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use lab::figure::Axis;
use proptest::prelude::*;
use report::chart::{ImageFormat, render};
use report::figure::{
    Cell, Curve, FigureError, Grid, GridRow, Mark, Panel, Picture, Plot, Published, PublishedCurve,
    PublishedMark,
};

fn draw(plot: &Plot) -> Result<String, FigureError> {
    report::chart::draw(&Picture::Curves(plot.clone()))
}

fn mark(x: f64, y: f64) -> Mark {
    Mark { x, y, interval: Some((y * 0.93, y * 1.06)), point: None }
}

/// Returns a plot of throughput against length by function, as in the copy suite.
fn lengths(curves: usize) -> Plot {
    let names = ["glibc", "naive", "rep-movsb", "tollgate", "avx2", "avx512", "non-temporal"];
    let lengths = [16, 256, 1024, 4096, 65536, 524288, 1 << 20, 4 << 20, 16 << 20, 256 << 20];
    let rate = |curve: usize, length: f64| {
        let short = length / (1.0 + curve as f64 * 0.4 + length / 90.0);
        if length > 3e6 { short * 0.2 + curve as f64 } else { short }
    };
    Plot {
        id: "copy-c".into(),
        title: "Throughput against length, by function".into(),
        x_label: "length".into(),
        x_scale: Axis::Log2,
        x_levels: lengths.map(|n: u64| lab::quantity::format_bytes(n).into()).to_vec(),
        y_label: "throughput (GB/s)".into(),
        y_scale: Axis::Log10,
        series: "function".into(),
        curves: (0..curves)
            .map(|curve| Curve {
                level: String::new(),
                name: names[curve % names.len()].into(),
                metric: "throughput".into(),
                marks: lengths.map(|n| mark(n as f64, rate(curve, n as f64))).to_vec(),
            })
            .collect(),
        scale: lab::format::Scale::of(23.46e9, "B/s"),
        lines: vec![("memory limit".into(), 23.46)],
        published: Published::default(),
        notes: vec!["bars: 95% intervals over 20 rounds; noise floor ±1.2%; host here".into()],
    }
}

fn threads() -> Plot {
    let levels = ["0", "1", "2", "4", "8", "16", "32", "64"];
    Plot {
        id: "copy-a".into(),
        title: "Throughput against threads, by length".into(),
        x_label: "threads".into(),
        x_scale: Axis::Category,
        x_levels: levels.map(Into::into).to_vec(),
        curves: (0..9)
            .map(|curve| Curve {
                level: String::new(),
                name: format!("{} KiB", 1 << curve),
                metric: "throughput".into(),
                marks: (0..8)
                    .map(|x| mark(f64::from(x), 2f64.powi(curve) * (1.0 + f64::from(x))))
                    .collect(),
            })
            .collect(),
        series: "length".into(),
        ..lengths(0)
    }
}

/// Returns published values of a curve that the plot has, and of one that it lacks, the last one far above ours.
fn published() -> Published {
    let mark = |x: f64, y: f64| PublishedMark {
        x,
        level: format!("{x} B"),
        y,
        text: format!("{y} GB/s"),
        source: 0,
        claim: "a-claim".into(),
    };
    let curve =
        |name: &str, style: usize, is_measured: bool, marks: Vec<PublishedMark>| PublishedCurve {
            name: name.into(),
            level: name.into(),
            metric: "throughput".into(),
            style,
            is_measured,
            marks,
        };
    Published {
        sources: vec!["ESCAPE benchmarking, on the host of the example run".into()],
        curves: vec![
            curve("glibc", 0, true, vec![mark(16.0, 5.785), mark(256.0, 49.09)]),
            curve("apex", 2, false, vec![mark(16.0, 5.4), mark(256.0, 1e6)]),
        ],
        lines: vec![("memory limit, ESCAPE benchmarking".into(), 12.0)],
        ratios: Vec::new(),
    }
}

/// Returns a grid of overheads and marks, as in the bounds suite.
fn cells(columns: usize) -> Grid {
    let names = ["gcc", "gcc-asan", "libstdc++-assertions", "valgrind"];
    let ratio = |row: usize| match row {
        0 => Cell::Plain("0.271 ns".into()),
        1 => Cell::Unresolved("1.00×".into()),
        2 => Cell::Absent,
        row => Cell::Shaded("13.1×".into(), 0.25 * row as f64),
    };
    let mark = |row: usize| [Cell::Yes, Cell::No, Cell::Blank][row % 3].clone();
    let panel = |label: &str, columns: usize, cell: &dyn Fn(usize) -> Cell| Panel {
        label: label.into(),
        factor: "kernel".into(),
        columns: (0..columns).map(|at| format!("column-{at}")).collect(),
        cells: (0..names.len()).map(|row| vec![cell(row); columns]).collect(),
        details: vec![vec![String::new(); columns]; names.len()],
    };
    Grid {
        id: "bounds".into(),
        title: "What each mechanism costs, and what it catches".into(),
        factor: "mechanism".into(),
        rows: names.map(|name| GridRow { name: name.into(), starts_group: name == "gcc" }).to_vec(),
        panels: vec![panel("per_operation", columns, &ratio), panel("caught", 6, &mark)],
        notes: vec!["6 rounds; noise floor ±1.2%; host here".into()],
    }
}

/// Returns the bounding boxes of the texts of an SVG: left, top, right, bottom.
fn texts(svg: &str) -> Vec<(f32, f32, f32, f32)> {
    use resvg::usvg::{Node, Options, Tree, fontdb};
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    let options = Options { fontdb: fonts.into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).unwrap();
    let (mut found, mut open) = (Vec::new(), vec![tree.root()]);
    while let Some(group) = open.pop() {
        for node in group.children() {
            match node {
                Node::Group(group) => open.push(group),
                Node::Text(text) => {
                    let area = text.abs_bounding_box();
                    found.push((area.left(), area.top(), area.right(), area.bottom()));
                }
                _ => {}
            }
        }
    }
    found
}

fn overlap(a: &(f32, f32, f32, f32), b: &(f32, f32, f32, f32)) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

#[test]
fn texts_neither_overlap_nor_exceed_the_page() {
    for picture in [lengths(7), threads(), lengths(1)] {
        let svg = draw(&picture).unwrap();
        let texts = texts(&svg);
        assert!(texts.len() > 10, "{} texts", texts.len());
        // The file is 175 mm wide, at 96 units per inch.
        let width = 175.0 / 25.4 * 96.0;
        for (at, text) in texts.iter().enumerate() {
            assert!(text.0 >= 0.0 && text.2 <= width, "{text:?}");
            for other in &texts[at + 1..] {
                assert!(!overlap(text, other), "{}: {text:?} over {other:?}", picture.id);
            }
        }
    }
}

#[test]
fn numbers_fit_their_cells() {
    let svg = report::chart::draw(&Picture::Grid(cells(4))).unwrap();
    // Bounding boxes of slanted titles overlap although the titles do not.
    let upright: String = svg.lines().filter(|line| !line.contains("rotate(-35")).collect();
    let boxes = texts(&upright);
    assert!(boxes.len() > 20, "{} texts", boxes.len());
    for (at, text) in boxes.iter().enumerate() {
        assert!(text.0 >= 0.0 && text.2 <= 175.0 / 25.4 * 96.0, "{text:?}");
        assert!(!boxes[at + 1..].iter().any(|other| overlap(text, other)), "{text:?}");
    }
    let right = texts(&svg).iter().map(|text| text.2).fold(0.0, f32::max);
    assert!(right <= 175.0 / 25.4 * 96.0, "a title ends at {right}");
    assert!(svg.contains(">yes</text>") && svg.contains(">no</text>"), "the legend of the marks");
}

#[test]
fn a_legend_of_marks_does_not_reach_the_next_panel() {
    let mut grid = cells(4);
    grid.panels[0] = Panel {
        columns: vec!["file".into()],
        cells: vec![vec![Cell::No]; 4],
        details: vec![vec![String::new()]; 4],
        label: "missing in B".into(),
        ..grid.panels[0].clone()
    };
    let svg = report::chart::draw(&Picture::Grid(grid)).unwrap();
    let upright: String = svg.lines().filter(|line| !line.contains("rotate(-35")).collect();
    let boxes = texts(&upright);
    for (at, text) in boxes.iter().enumerate() {
        assert!(!boxes[at + 1..].iter().any(|other| overlap(text, other)), "{text:?}");
    }
}

#[test]
fn too_many_columns_are_an_error() {
    let line = report::chart::draw(&Picture::Grid(cells(14))).unwrap_err().to_string();
    assert!(line.contains("20 columns do not fit the page"), "{line}");
    let empty = Grid { rows: Vec::new(), ..cells(4) };
    let drawn = report::chart::draw(&Picture::Grid(empty));
    assert!(matches!(drawn, Err(FigureError::Drawing { .. })));
}

#[test]
fn every_curve_and_line_is_in_the_legend() {
    let svg = draw(&lengths(7)).unwrap();
    for name in ["glibc", "naive", "rep-movsb", "tollgate", "avx2", "avx512", "non-temporal"] {
        assert!(svg.contains(&format!(">{name}</text>")), "{name}");
    }
    assert!(svg.contains(">memory limit: 23.5 GB/s</text>"));
    assert!(svg.contains("@font-face"), "the font is embedded");
}

#[test]
fn published_values_are_hollow_and_name_their_source() {
    let plot = Plot { published: published(), ..lengths(2) };
    let svg = draw(&plot).unwrap();
    let all: String =
        svg.lines().filter_map(|line| line.split_once('>')?.1.strip_suffix("</text>")).collect();
    for text in [
        "published: ESCAPE",
        "benchmarking, on the host",
        "apex (published only)",
        "published: memory limit,",
        "benchmarking: 12",
        "published values beyond the axis (arrows): apex 256 B 1000000 GB/s",
    ] {
        assert!(all.contains(text), "{text}: {all}");
    }
    // Marks of each curve, the arrow, and the entries of the legend.
    let hollow = |colour: &str| {
        let style = format!(r#"fill="none" stroke="{colour}" stroke-width="1.4""#);
        svg.matches(&style).count()
    };
    assert_eq!((hollow("#0072b2"), hollow("#009e73"), hollow("#444444")), (2, 4, 1));
    let boxes = texts(&svg);
    for (at, text) in boxes.iter().enumerate() {
        assert!(text.2 <= 175.0 / 25.4 * 96.0, "{text:?}");
        assert!(!boxes[at + 1..].iter().any(|other| overlap(text, other)), "{text:?}");
    }
}

#[test]
fn published_values_leave_half_of_the_axis_to_ours() {
    /// Returns the height between the lowest and the highest filled mark.
    fn height(plot: &Plot) -> f32 {
        let svg = draw(plot).unwrap();
        let filled = svg.lines().filter(|line| line.contains("stroke=\"#ffffff\""));
        let y = |line: &str| -> f32 {
            line.split_once("d=\"M")
                .unwrap()
                .1
                .split([' ', 'A', 'L'])
                .nth(1)
                .unwrap()
                .parse()
                .unwrap()
        };
        let ys: Vec<f32> = filled.map(y).collect();
        let ends = |of: fn(f32, f32) -> f32| ys.iter().copied().reduce(of).unwrap();
        ends(f32::max) - ends(f32::min)
    }
    let ours = lengths(1);
    for (above, scale) in
        [(1.5, Axis::Log10), (1e3, Axis::Log10), (1.5, Axis::Linear), (1e9, Axis::Linear)]
    {
        let mut published = published();
        published.curves[0].marks[1].y = 600.0 * above;
        let alone = Plot { y_scale: scale, lines: Vec::new(), ..ours.clone() };
        let with = Plot { published, ..alone.clone() };
        let (alone, with) = (height(&alone), height(&with));
        assert!(with >= alone * 0.45, "{above} {scale:?}: {with} of {alone}");
    }
}

#[test]
fn long_titles_are_wrapped_within_the_page() {
    let title = "Median and 99th percentile of the round-trip time by load: reactive notifications, one per packet";
    let width = 175.0 / 25.4 * 96.0;
    let plot = Plot { title: title.into(), ..lengths(7) };
    let grid = Grid { title: format!("{title}, by mechanism"), ..cells(4) };
    for picture in [Picture::Curves(plot), Picture::Grid(grid)] {
        let svg = report::chart::draw(&picture).unwrap();
        assert!(svg.lines().filter(|line| line.contains("font-size=\"14\"")).count() > 1, "{svg}");
        let upright: String = svg.lines().filter(|line| !line.contains("rotate(-35")).collect();
        let boxes = texts(&upright);
        for (at, text) in boxes.iter().enumerate() {
            assert!(text.2 <= width, "{text:?} ends beyond {width}");
            assert!(!boxes[at + 1..].iter().any(|other| overlap(text, other)), "{text:?}");
        }
    }
}

#[test]
fn every_format_is_rendered_with_the_font() {
    let svg = draw(&lengths(7)).unwrap();
    let png = render(&svg, ImageFormat::Png).unwrap();
    let pixels = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
    // 175 mm at 300 pixels per inch.
    assert!((2066..=2068).contains(&pixels.width()), "{}", pixels.width());
    assert!(pixels.pixels().iter().any(|it| it.red() == 0 && it.blue() > 150), "a blue curve");
    let pdf = render(&svg, ImageFormat::Pdf).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    let contains = |word: &[u8]| pdf.windows(word.len()).any(|window| window == word);
    assert!(contains(b"/FontFile2") || contains(b"/FontFile3"), "the font is embedded");
}

#[test]
fn values_without_a_position_are_an_error() {
    let mut picture = lengths(2);
    picture.curves[0].marks[0].y = 0.0;
    picture.curves[0].marks[0].interval = None;
    let line = draw(&picture).unwrap_err().to_string();
    assert!(line.contains("copy-c") && line.contains("vertical"), "{line}");
    picture.curves.clear();
    assert!(matches!(draw(&picture), Err(FigureError::Drawing { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(6)))]
    #[test]
    fn any_values_are_drawn_or_an_error(
        values in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..12),
        name in ".{0,40}",
        log: bool,
    ) {
        let mut picture = lengths(0);
        picture.x_scale = if log { Axis::Log2 } else { Axis::Linear };
        picture.y_scale = if log { Axis::Log10 } else { Axis::Linear };
        let marks = values.iter().map(|(x, y)| Mark { x: *x, y: *y, interval: None, point: None }).collect();
        picture.curves = vec![Curve { name: name.clone(), level: name.clone(), metric: String::new(), marks }];
        picture.title = name;
        if let Ok(svg) = draw(&picture) {
            prop_assert!(resvg::usvg::Tree::from_str(&svg, &resvg::usvg::Options::default()).is_ok());
        }
    }
}
