//! Grids of synthetic runs: cells, ratios, side panels and errors.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod synthetic;

use lab::catalogue::DataFile;
use lab::figure::{Figure, PublishedValue};
use lab::journal::Run;
use report::figure::{Cell, Grid, Picture, Summaries, picture};

const RATIOS: &str = "x = 'length'\ngroups = [['glibc', 'naive', 'rep']]";

fn figure(text: &str) -> Figure {
    let head = "[[figure]]\nid = 'f'\ntitle = 'Throughput'\nexperiment = 'copy/throughput'\n";
    let grid = "kind = 'grid'\nseries = 'function'\n";
    let file = DataFile::read("figures.toml", &format!("{head}{grid}{text}"), None).unwrap();
    file.figures().next().unwrap().clone()
}

fn drawn(text: &str, run: &Run) -> Grid {
    match picture(&figure(text), &Summaries::new(run)).unwrap() {
        Picture::Grid(grid) => grid,
        Picture::Curves(plot) => panic!("curves: {plot:?}"),
    }
}

fn text(cell: &Cell) -> &str {
    match cell {
        Cell::Plain(text) | Cell::Unresolved(text) | Cell::Shaded(text, _) => text,
        other => panic!("{other:?}"),
    }
}

fn names(grid: &Grid) -> Vec<&str> {
    grid.rows.iter().map(|row| row.name.as_str()).collect()
}

/// Returns a run whose values are 1 for 'rep' at 16 B, else 0; in round 0 inverted if asked.
fn booleans(inverted_in_round_0: bool) -> Run {
    let mut run = synthetic::run(6);
    for sample in &mut run.samples {
        let is_true =
            sample.point.text("function") == "rep" && sample.point.text("length") == "16 B";
        let value = is_true != (inverted_in_round_0 && sample.round == 0);
        sample.values.values_mut().for_each(|it| *it = f64::from(u8::from(value)));
    }
    run
}

#[test]
fn published_values_are_columns_next_to_ours() {
    let value = |function: &str, value: f64, base: Option<&str>| PublishedValue {
        claim: "a-claim".into(),
        source: "a paper".into(),
        on: None,
        metric: "throughput".into(),
        series: function.into(),
        x: "4 KiB".into(),
        value,
        relative_to: base.map(|base| (base.into(), "4 KiB".into())),
    };
    let run = synthetic::run(12);
    let grid = |text: &str, published: Vec<PublishedValue>| {
        let figure = Figure { published, ..figure(text) };
        match picture(&figure, &Summaries::new(&run)).unwrap() {
            Picture::Grid(grid) => grid,
            Picture::Curves(plot) => panic!("curves: {plot:?}"),
        }
    };
    // A ratio is shown in grids of ratios only.
    let absolute =
        grid("x = 'length'", vec![value("naive", 5e9, None), value("naive", 2.0, Some("glibc"))]);
    assert_eq!(names(&absolute), synthetic::FUNCTIONS);
    let published = &absolute.panels[1];
    assert_eq!(
        (published.label.as_str(), published.columns.as_slice()),
        ("published", &["4 KiB".to_owned()][..])
    );
    assert_eq!((&published.cells[0][0], text(&published.cells[1][0])), (&Cell::Blank, "5"));
    assert_eq!(published.details[1][0], "published: 5; a paper; a-claim");
    assert!(absolute.notes.contains(&"published: a paper".to_owned()), "{:?}", absolute.notes);
    let unshown = grid("x = 'length'", vec![value("naive", 2.0, Some("glibc"))]);
    assert!(unshown.panels.len() == 1 && unshown.notes.iter().all(|it| !it.contains("published")));
    // A row that the run lacks is shown for its published value.
    let ratios = grid(
        "x = 'length'\ngroups = [['glibc', 'naive', 'mpx']]",
        vec![
            value("naive", 5e9, None),
            value("naive", 2.0, Some("glibc")),
            value("mpx", 1.44, Some("glibc")),
        ],
    );
    assert_eq!(names(&ratios), ["glibc", "naive", "mpx", "rep"]);
    let texts: Vec<&str> = ratios.panels[1].cells[1..3].iter().map(|row| text(&row[0])).collect();
    assert_eq!(texts, ["2×", "1.44×"]);
    assert_eq!(ratios.panels[0].cells[2], [Cell::Blank, Cell::Blank, Cell::Blank, Cell::Blank]);
}

#[test]
fn cells_have_values_and_linear_shades() {
    let grid = drawn("x = 'length'", &synthetic::run(12));
    assert_eq!(names(&grid), synthetic::FUNCTIONS);
    let [panel] = grid.panels.as_slice() else { panic!("{:?}", grid.panels) };
    assert_eq!(panel.columns, synthetic::LENGTHS);
    assert_eq!((panel.label.as_str(), panel.factor.as_str()), ("throughput in GB/s", "length"));
    let rows: Vec<Vec<&str>> =
        panel.cells.iter().map(|row| row.iter().map(text).collect()).collect();
    for (text, length) in rows[1].iter().zip(synthetic::LENGTHS) {
        let point =
            synthetic::experiment().baseline.with("length", length).with("function", "naive");
        let error = text.parse::<f64>().unwrap() / (synthetic::truth(&point) / 1e9) - 1.0;
        assert!(error.abs() < 0.01, "{point}: {text}");
    }
    let shade = |row: usize, column: usize| match &panel.cells[row][column] {
        Cell::Shaded(_, share) => *share,
        other => panic!("{other:?}"),
    };
    // Linear from zero to the largest, 210 GB/s, in steps of a thousandth of it.
    assert_eq!(rows[2][0], "2.5");
    assert_eq!(shade(2, 1), 1.0);
    assert!((shade(0, 1) - 150.0 / 210.0).abs() < 0.01);
}

#[test]
fn ratios_are_to_the_first_row_of_their_group() {
    let grid = drawn(RATIOS, &synthetic::run(12));
    assert_eq!(
        grid.rows.iter().map(|row| row.starts_group).collect::<Vec<_>>(),
        [true, false, false]
    );
    let cells = &grid.panels[0].cells;
    assert!(
        matches!(&cells[0][1], Cell::Plain(text) if text.starts_with("15") && text.ends_with(" GB/s"))
    );
    assert!(cells[1].iter().all(|cell| text(cell).starts_with("0.6") && text(cell).ends_with('×')));
    // Half a per cent is below the noise floor.
    assert!(matches!(&cells[2][2], Cell::Unresolved(_)), "{:?}", cells[2][2]);
    assert!(
        matches!(&cells[2][3], Cell::Shaded(text, share) if text.starts_with("1.") && *share > 0.9)
    );
    assert!(grid.notes.iter().any(|note| note.contains("grey: unresolved")), "{:?}", grid.notes);
}

#[test]
fn a_ratio_to_a_missing_value_is_absent() {
    let mut run = synthetic::run(3);
    run.samples.retain(|sample| sample.point.text("function") != "glibc");
    let grid = drawn(RATIOS, &run);
    assert_eq!(names(&grid), ["naive", "rep"]);
    assert!(grid.panels[0].cells.iter().flatten().all(|cell| *cell == Cell::Absent));
    assert!(grid.notes.contains(&"no value: naive, rep (no round has both it and glibc)".into()));
}

#[test]
fn panels_share_their_rows() {
    let side_panels =
        "side_panels = [{ x = 'threads' }, { metric = 'latency' }, { experiment = 'copy/limit' }]";
    let rows = "where = { function = ['glibc', 'naive'] }";
    let grid = drawn(&format!("x = 'length'\n{rows}\n{side_panels}"), &synthetic::run(12));
    assert_eq!(names(&grid), ["glibc", "naive"]);
    let [_, threads] = grid.panels.as_slice() else { panic!("{:?}", grid.panels) };
    assert_eq!(threads.columns, synthetic::THREADS);
    // Threads were varied for glibc only.
    assert_eq!(threads.cells[1][1..], [Cell::Blank, Cell::Blank]);
    let noted = |start: &str| grid.notes.iter().any(|note| note.starts_with(start));
    assert!(noted("no latency: the samples have no such metric"), "{:?}", grid.notes);
    assert!(
        noted("throughput: 11 to 12 rounds, direction=write, length=64 KiB, memory=heap"),
        "{:?}",
        grid.notes
    );
    assert!(noted("testbed-quick-1: no samples of 'copy/limit'"), "{:?}", grid.notes);
}

#[test]
fn a_panel_without_columns_is_named_by_its_metric() {
    let grid = drawn("", &synthetic::run(12));
    assert_eq!(grid.panels[0].columns, ["throughput in GB/s"]);
    assert_eq!(
        grid.panels[0].cells.concat().iter().map(text).collect::<Vec<_>>(),
        ["100", "60.0", "100"]
    );
}

#[test]
fn missing_values_are_absent_cells() {
    let mut figure = figure("x = 'memory'");
    figure.series = Some("direction".into());
    let Picture::Grid(grid) = picture(&figure, &Summaries::new(&synthetic::run(12))).unwrap()
    else {
        panic!()
    };
    assert_eq!(grid.panels[0].columns, ["heap", "shared", "device"]);
    assert!(grid.panels[0].cells.iter().all(|row| row[2] == Cell::Absent));
    let why = "no value: memory=device (unavailable: there is no /dev/mem)";
    assert!(grid.notes.iter().any(|note| note == why), "{:?}", grid.notes);
}

#[test]
fn booleans_are_marks_if_every_round_agrees() {
    let grid = drawn("x = 'length'", &booleans(false));
    let cells = &grid.panels[0].cells;
    assert!(cells[..2].iter().flatten().all(|cell| *cell == Cell::No), "{cells:?}");
    assert_eq!(cells[2], [Cell::Yes, Cell::No, Cell::No, Cell::No]);
    let grid = drawn("x = 'length'", &booleans(true));
    assert!(grid.panels[0].cells.iter().flatten().all(|cell| matches!(cell, Cell::Shaded(..))));
}

#[test]
fn logarithmic_shades_require_positive_values() {
    let error =
        picture(&figure("x = 'length'\ny_scale = 'log10'"), &Summaries::new(&booleans(false)))
            .unwrap_err();
    insta::assert_snapshot!(error, @"figure 'f': throughput = 0 has no logarithm; use y_scale = \"linear\"");
    let grid = drawn("x = 'length'\ny_scale = 'log10'", &synthetic::run(12));
    let smallest = Cell::Shaded("2.50".into(), 0.0);
    assert!(grid.panels[0].cells[2][0] == smallest, "{:?}", grid.panels[0].cells);
}

#[test]
fn an_invalid_declaration_is_reported_with_its_line() {
    let error = |text: &str| {
        let head = "[[figure]]\nid = 'f'\ntitle = 't'\nexperiment = 'copy/throughput'\n";
        DataFile::read("figures.toml", &format!("{head}{text}"), None).unwrap_err().to_string()
    };
    insta::assert_snapshot!(error("kind = 'grid'\nx = 'a'"), @"figures.toml:1: figure 'f': a grid requires 'series', the factor of its rows");
    insta::assert_snapshot!(error("kind = 'grid'\nx = 'a'\nseries = 'b'\nside_panels = [{ x = 'b' }]"), @"figures.toml:1: figure 'f': 'x' and 'series' are the same factor");
    insta::assert_snapshot!(error("kind = 'grid'\nseries = 'b'\nx_scale = 'log2'"), @"figures.toml:1: figure 'f': a grid takes no 'y', 'x_scale' or 'lines'");
    insta::assert_snapshot!(error("kind = 'grid'\nseries = 'b'\ngroups = [[]]"), @"figures.toml:1: figure 'f': a group has no rows");
    insta::assert_snapshot!(error("kind = 'grid'\nseries = 'b'\nside_panels = [{ y_scale = 'category' }]"), @"figures.toml:1: figure 'f': y_scale cannot be \"category\": values are numbers");
    insta::assert_snapshot!(error("x = 'a'\ngroups = [['b']]"), @"figures.toml:1: figure 'f': 'groups' and 'side_panels' require kind = \"grid\"");
}
