//! Figures of synthetic runs: positions of values, notes, and errors of figures that cannot be drawn.

#![allow(clippy::unwrap_used)]

mod synthetic;

use lab::catalogue::DataFile;
use lab::figure::{Axis, Figure, PublishedValue, Y};
use lab::journal::Run;
use lab::measure::LIMITED;
use lab::metric::Metric;
use lab::sample::Sample;
use report::chart::{ImageFormat, write};
use report::figure::{Picture, Plot, Summaries, picture};

fn figure(text: &str) -> Figure {
    let head = "[[figure]]\nid = 'f'\ntitle = 'Throughput'\nexperiment = 'copy/throughput'\n";
    let file = DataFile::read("figures.toml", &format!("{head}{text}"), None).unwrap();
    file.figures().next().unwrap().clone()
}

fn curves(figure: &Figure, run: &Run) -> Plot {
    match picture(figure, &Summaries::new(run)).unwrap() {
        Picture::Curves(plot) => plot,
        Picture::Grid(grid) => panic!("a grid: {grid:?}"),
    }
}

fn drawn(text: &str) -> Plot {
    curves(&figure(text), &synthetic::run(12))
}

fn error_of(text: &str) -> String {
    let line =
        picture(&figure(text), &Summaries::new(&synthetic::run(12))).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

fn near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.01
}

#[test]
fn limited_values_are_named_below_the_figure() {
    let mut run = synthetic::run(12);
    let is_naive = |sample: &&mut Sample| sample.point.text("function") == "naive";
    for sample in run.samples.iter_mut().filter(is_naive) {
        sample.covariates.insert(LIMITED.into(), "throughput".into());
    }
    let plot = curves(&figure("x = 'length'\nseries = 'function'"), &run);
    let note = "at least, limited by the instrument or the search: function=naive length=16 B, \
                function=naive length=16 MiB, function=naive length=4 KiB";
    assert!(plot.notes.iter().any(|line| line.starts_with(note)), "{:?}", plot.notes);
    let limited = plot.curves.iter().find(|curve| curve.name == "naive").unwrap();
    for mark in &limited.marks {
        let (low, high) = mark.interval.unwrap();
        assert!(low < mark.y && high == mark.y, "{mark:?}");
    }
}

#[test]
fn each_level_of_the_series_has_a_curve_of_medians() {
    let picture = drawn("x = 'length'\nseries = 'function'");
    let names: Vec<_> = picture.curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(names, synthetic::FUNCTIONS);
    assert_eq!(picture.x_scale, Axis::Log2);
    assert_eq!(picture.y_label, "throughput in GB/s");
    let baseline = synthetic::experiment().baseline;
    for curve in &picture.curves {
        let positions: Vec<_> = curve.marks.iter().map(|mark| mark.x).collect();
        assert_eq!(positions, [16.0, 4096.0, 65536.0, 16_777_216.0]);
        for (mark, length) in curve.marks.iter().zip(synthetic::LENGTHS) {
            let point = baseline.with("length", length).with("function", curve.name.as_str());
            assert!(near(mark.y, synthetic::truth(&point) / 1e9), "{point}: {}", mark.y);
            let (low, high) = mark.interval.unwrap();
            assert!(low <= mark.y && mark.y <= high);
        }
    }
}

#[test]
fn further_metrics_have_their_own_curves() {
    let mut run = synthetic::run(12);
    let metrics = run.record.metrics.get_mut("copy").unwrap();
    metrics.insert("half".into(), metrics["throughput"].clone());
    for sample in &mut run.samples {
        if let Some(value) = sample.values.get("throughput").copied() {
            sample.values.insert("half".into(), value / 2.0);
        }
    }
    let plot = curves(&figure("x = 'length'\nseries = 'function'\nmore_metrics = ['half']"), &run);
    assert_eq!(plot.y_label, "throughput, half in GB/s");
    let (first, further) = plot.curves.split_at(synthetic::FUNCTIONS.len());
    assert_eq!(further.len(), first.len());
    for (one, half) in first.iter().zip(further) {
        assert_eq!(one.name, format!("{}, throughput", one.level));
        assert_eq!(half.name, format!("{}, half", one.level));
        assert_eq!(half.marks.len(), one.marks.len());
        for (one, half) in one.marks.iter().zip(&half.marks) {
            assert!(half.x == one.x && near(half.y, one.y / 2.0), "{half:?} {one:?}");
        }
    }
    let plot = curves(&figure("x = 'length'\nmore_metrics = ['half']"), &run);
    let names: Vec<_> = plot.curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(names, ["throughput", "half"]);
}

#[test]
fn figures_call_metrics_by_their_labels() {
    let mut run = synthetic::run(12);
    let metrics = run.record.metrics.get_mut("copy").unwrap();
    metrics.insert("half_p99".into(), metrics["throughput"].clone());
    for sample in &mut run.samples {
        if let Some(value) = sample.values.get("throughput").copied() {
            sample.values.insert("half_p99".into(), value / 2.0);
        }
    }
    let names = |plot: &Plot| plot.curves.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    let mut figure = figure("x = 'length'\nmore_metrics = ['half_p99']");
    let unresolved = curves(&figure, &run);
    assert_eq!(unresolved.y_label, "throughput, half p99 in GB/s");
    // Statistics of one quantity.
    for (metric, statistic) in [("throughput", "p50"), ("half_p99", "p99")] {
        let label = Metric::time("any", "").called("rate of copies").statistic(statistic).label();
        figure.labels.insert((figure.experiment.clone(), metric.into()), label);
    }
    let plot = curves(&figure, &run);
    assert_eq!(
        (plot.y_label.as_str(), names(&plot)),
        ("rate of copies in GB/s", vec!["p50".into(), "p99".into()])
    );
    figure.series = Some("function".into());
    let plot = curves(&figure, &run);
    assert_eq!(names(&plot)[0], format!("{} p50", synthetic::FUNCTIONS[0]));
    assert_eq!(plot.curves[0].level, synthetic::FUNCTIONS[0]);
    figure.more_metrics.clear();
    let plot = curves(&figure, &run);
    assert_eq!(plot.y_label, "rate of copies, p50 in GB/s");
    assert_eq!(names(&plot), synthetic::FUNCTIONS);
}

#[test]
fn unnamed_factors_have_their_baseline_level() {
    let picture = drawn("x = 'threads'");
    assert_eq!(picture.curves.len(), 1);
    assert_eq!(picture.curves[0].marks.len(), 3);
    assert_eq!(picture.x_scale, Axis::Linear);
    assert!(
        picture.notes.iter().any(
            |note| note.contains("direction=write, function=glibc, length=64 KiB, memory=heap")
        )
    );
}

#[test]
fn noise_floors_that_look_alike_are_stated_once() {
    let mut run = synthetic::run(12);
    let (_, experiment) = run.record.experiments.iter_mut().next().unwrap();
    let baseline = experiment.baseline.clone();
    let other = baseline.with("length", "4 KiB");
    experiment.twins.push(other.clone());
    let like_baseline = |sample: &Sample| {
        let mut one = Sample { point: other.clone(), ..sample.clone() };
        if one.twin {
            one.values.values_mut().for_each(|value| *value *= 1.000_001);
        }
        one
    };
    let of_baseline = run.samples.iter().filter(|sample| sample.point == baseline);
    let added: Vec<Sample> = of_baseline.map(like_baseline).collect();
    run.samples.retain(|sample| sample.point != other);
    run.samples.extend(added);
    let summary = Summaries::new(&run).of("copy/throughput", None).unwrap();
    let (low, high) = summary.floors.span().unwrap();
    assert!(low.floor < high.floor, "{low:?}");
    let plot = curves(&figure("x = 'length'\nseries = 'function'"), &run);
    assert!(plot.notes[0].contains("; noise floor ±1.0% (twins)"), "{}", plot.notes[0]);
}

#[test]
fn notes_state_host_method_and_missing_values() {
    let picture = drawn("x = 'length'\nseries = 'memory'");
    insta::assert_snapshot!(picture.notes.join("\n"), @"
    testbed, Test CPU; profile quick; 12 rounds; noise floor ±1.0% (twins)
    direction=write, function=glibc, threads=0
    bars: 95% interval of the median
    no value: memory=device (unavailable: there is no /dev/mem)
    ");
    let few = picture_of(3);
    assert!(few.notes.contains(&"bars: range (too few rounds)".to_string()), "{:?}", few.notes);
    assert!(picture_of(1).curves[0].marks[0].interval.is_none());
}

fn picture_of(rounds: u32) -> Plot {
    curves(&figure("x = 'length'"), &synthetic::run(rounds))
}

#[test]
fn categories_are_evenly_spaced() {
    let picture = drawn("x = 'function'\nwhere = { length = ['4 KiB'] }");
    assert_eq!(picture.x_scale, Axis::Category);
    let positions: Vec<_> = picture.curves[0].marks.iter().map(|mark| mark.x).collect();
    assert_eq!(positions, [0.0, 1.0, 2.0]);
    assert!(near(picture.curves[0].marks[2].y, 210.0));
}

#[test]
fn reference_lines_are_values_of_the_run() {
    let line = "lines = [{ label = 'limit', where = { length = '16 MiB', function = 'rep' } }]";
    let picture = drawn(&format!("x = 'length'\n{line}"));
    assert_eq!(picture.lines.len(), 1);
    assert_eq!(picture.lines[0].0, "limit");
    assert!(near(picture.lines[0].1, 28.0));
    let line = "lines = [{ label = 'limit', experiment = 'copy/limit', metric = 'throughput' }]";
    let without = drawn(&format!("x = 'length'\n{line}"));
    assert!(without.lines.is_empty());
    assert!(without.notes.iter().any(|note| note.starts_with("no line 'limit': ")));
}

/// Returns a published value of a function at a length, or a ratio to another function.
fn published(function: &str, length: &str, value: f64, base: Option<&str>) -> PublishedValue {
    PublishedValue {
        claim: format!("{function}-{length}"),
        source: "a paper".into(),
        on: Some("a Xeon".into()),
        metric: "throughput".into(),
        series: function.into(),
        x: length.into(),
        value,
        relative_to: base.map(|base| (base.into(), length.into())),
    }
}

#[test]
fn published_values_are_drawn_without_any_of_ours() {
    let text = "x = 'length'\nseries = 'function'\nwhere = { memory = 'device' }";
    let mut figure = figure(text);
    figure.published = vec![published("glibc", "4 KiB", 5e9, None)];
    let plot = curves(&figure, &synthetic::run(12));
    assert!(plot.curves.is_empty());
    let [glibc] = plot.published.curves.as_slice() else { panic!("{:?}", plot.published) };
    assert_eq!((glibc.is_measured, glibc.marks[0].text.as_str()), (false, "5 GB/s"));
    let why = "published values only: unavailable: there is no /dev/mem";
    assert!(plot.notes.iter().any(|note| note.starts_with(why)), "{:?}", plot.notes);
    let svg = report::chart::draw(&Picture::Curves(plot)).unwrap();
    assert!(svg.contains("glibc (published only)"), "{svg}");
    // A ratio has no position without ours.
    figure.published = vec![published("glibc", "4 KiB", 2.0, Some("naive"))];
    assert!(picture(&figure, &Summaries::new(&synthetic::run(12))).is_err());
}

#[test]
fn published_values_are_at_their_points() {
    let mut figure = figure("x = 'length'\nseries = 'function'\nx_scale = 'category'");
    figure.published = vec![
        published("naive", "4 KiB", 5e9, None),
        // A length and a function that the run lacks.
        published("naive", "1 KiB", 6e9, None),
        published("apex", "16 B", 7e9, None),
        published("rep", "16 B", 2.0, Some("glibc")),
    ];
    let plot = curves(&figure, &synthetic::run(12));
    let levels: Vec<&str> = plot.x_levels.iter().map(|level| level.as_str()).collect();
    assert_eq!(levels, ["16 B", "1 KiB", "4 KiB", "64 KiB", "16 MiB"]);
    let names: Vec<_> = plot.curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(names, synthetic::FUNCTIONS);
    let [naive, apex] = plot.published.curves.as_slice() else { panic!("{:?}", plot.published) };
    assert_eq!((naive.style, naive.is_measured), (1, true));
    assert_eq!((apex.style, apex.is_measured), (3, false));
    let marks: Vec<_> = naive.marks.iter().map(|it| (it.x, it.y, it.text.as_str())).collect();
    assert_eq!(marks, [(1.0, 6.0, "6 GB/s"), (2.0, 5.0, "5 GB/s")]);
    let [ratio] = plot.published.ratios.as_slice() else { panic!("{:?}", plot.published) };
    assert_eq!((ratio.x, &ratio.base, ratio.ratio), (0.0, &("glibc".to_owned(), 0.0), 2.0));
    assert_eq!(plot.published.sources, ["a paper, on a Xeon"]);
    // The unit of the axis is that of our values.
    figure.published = vec![published("naive", "4 KiB", 5e3, None)];
    assert_eq!(curves(&figure, &synthetic::run(12)).y_label, plot.y_label);
}

#[test]
fn values_are_in_the_unit_of_the_figure() {
    let text = "x = 'distance'\nwhere = {}\nunit = 'ticks'";
    let mut in_ticks = figure(text);
    in_ticks.experiment = "copy/latency".into();
    in_ticks.x_unit = "m";
    let run = synthetic::latencies(10);
    let in_ns = Figure { unit: None, ..in_ticks.clone() };
    let (ticks, ns) = (curves(&in_ticks, &run), curves(&in_ns, &run));
    assert_eq!(
        (ticks.y_label.as_str(), ticks.x_label.as_str()),
        ("latency in ticks", "distance in m")
    );
    let hertz = run.samples[0].clock.unwrap().tsc_hertz;
    for (ticks, ns) in ticks.curves[0].marks.iter().zip(&ns.curves[0].marks) {
        assert!(near(ticks.y, ns.y * hertz / 1e9), "{ticks:?} {ns:?}");
    }
}

#[test]
fn a_distribution_merges_the_rounds() {
    let mut figure = Figure::adhoc("copy/latency", "");
    figure.y = Y::Ccdf;
    figure.series = Some("distance".into());
    let picture = curves(&figure, &synthetic::latencies(10));
    assert_eq!(picture.x_label, "latency in ns");
    assert_eq!(picture.curves.len(), 2);
    let near_curve = &picture.curves[0];
    assert_eq!(near_curve.name, "near");
    // Values 100 to 199 in round 0, one more in each following round.
    let (first, last) = (&near_curve.marks[0], near_curve.marks.last().unwrap());
    assert!(first.x == 100.0 && first.y > 0.99, "{first:?}");
    // The last share that five values exceed.
    assert!((204.0..208.0).contains(&last.x) && last.y >= 0.005, "{last:?}");
    let middle = near_curve.marks.iter().find(|mark| mark.y <= 0.5).unwrap();
    assert!((153.0..=155.0).contains(&middle.x), "{middle:?}");
    assert!(near_curve.marks.windows(2).all(|pair| pair[0].x < pair[1].x && pair[0].y > pair[1].y));
}

#[test]
fn void_rounds_and_twins_are_not_in_a_distribution() {
    let mut run = synthetic::latencies(2);
    for sample in run.samples.iter_mut().filter(|sample| sample.round == 1) {
        sample.void = Some("the core clock moved".into());
    }
    let mut twin = run.samples[0].clone();
    twin.twin = true;
    twin.histograms = run.samples.last().unwrap().histograms.clone();
    run.samples.push(twin);
    let mut figure = Figure::adhoc("copy/latency", "");
    figure.y = Y::Ccdf;
    let picture = curves(&figure, &run);
    let marks = &picture.curves[0].marks;
    assert_eq!((marks[0].x, marks.last().unwrap().x), (100.0, 194.0));
}

#[test]
fn files_have_the_format_of_their_extension() {
    let folder = tempfile::tempdir().unwrap();
    let picture = Picture::Curves(drawn("x = 'length'\nseries = 'function'\ny_scale = 'log10'"));
    let paths =
        write(&picture, &folder.path().join("figures"), "--output", machine::file::write).unwrap();
    let magic: [&[u8]; 3] = [b"<", b"%PDF-", b"\x89PNG"];
    for ((path, (extension, _)), magic) in paths.iter().zip(ImageFormat::ALL).zip(magic) {
        assert!(path.ends_with(format!("f.{extension}")), "{}", path.display());
        assert!(std::fs::read(path).unwrap().starts_with(magic), "{}", path.display());
    }
    let svg = std::fs::read_to_string(&paths[0]).unwrap();
    assert!(svg.contains("Test CPU") && svg.contains("glibc"));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let line = write(&picture, &file, "--results", machine::file::write).unwrap_err().to_string();
    assert!(
        line.contains("file") && line.contains("(folder: --results)") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn errors_are_one_line_with_cause_and_fix() {
    insta::assert_snapshot!(error_of("x = 'speed'"), @"figure 'f': copy/throughput has no factor 'speed'; expected one of direction, function, length, memory, threads");
    insta::assert_snapshot!(error_of("x = 'length'\nwhere = { memory = ['heap', 'shared'] }"), @"figure 'f': several levels of memory (heap, shared); fix them with 'where' or choose one as series");
    insta::assert_snapshot!(error_of("x = 'length'\nwhere = { memory = 'device' }"), @"figure 'f': no value to draw at direction=write function=glibc threads=0 memory=device: unavailable: there is no /dev/mem; boot a kernel with CONFIG_DEVMEM");
    insta::assert_snapshot!(error_of("x = 'threads'\nwhere = { memory = 'shared', function = 'rep' }"), @"figure 'f': no value to draw at direction=write length=64 KiB function=rep memory=shared: no such point was measured; more points: tollgate run copy/throughput --profile standard");
    insta::assert_snapshot!(error_of("x = 'threads'\nx_scale = 'log2'"), @"figure 'f': threads = 0 has no logarithm; use x_scale = \"linear\"");
    insta::assert_snapshot!(error_of("x = 'function'\nx_scale = 'linear'"), @"figure 'f': function = glibc is not a number; use x_scale = \"category\"");
    insta::assert_snapshot!(error_of("x = 'length'\nmetric = 'speed'"), @"figure 'f': testbed-quick-1: 'copy/throughput' has no metric 'speed'; expected one of latency, throughput");
    insta::assert_snapshot!(error_of("y = 'ccdf'"), @"figure 'f': no value to draw at copy/throughput: no sample has a histogram of 'throughput'; omit 'y'");
}

#[test]
fn an_invalid_declaration_is_reported_with_its_line() {
    let error = |text: &str| DataFile::read("figures.toml", text, None).unwrap_err().to_string();
    let head = "[[figure]]\nid = 'f'\ntitle = 't'\nexperiment = 'copy/throughput'\n";
    insta::assert_snapshot!(error(head), @"figures.toml:1: figure 'f': 'x' is missing; name a factor");
    insta::assert_snapshot!(error(&format!("{head}x = 'a'\nseries = 'a'")), @"figures.toml:1: figure 'f': 'x' and 'series' are the same factor");
    insta::assert_snapshot!(error(&format!("{head}x = 'a'\ny_scale = 'category'")), @"figures.toml:1: figure 'f': y_scale cannot be \"category\": values are numbers");
    insta::assert_snapshot!(error(&format!("{head}y = 'ccdf'\nmore_metrics = ['a']")), @"figures.toml:1: figure 'f': a ccdf takes no 'more_metrics'");
    insta::assert_snapshot!(error(&format!("{head}x = 'a'\nx_scale = 'log3'")), @"figures.toml:6: unknown variant `log3`, expected one of `log2`, `log10`, `linear`, `category` in `figure.x_scale`");
    insta::assert_snapshot!(error(&head.replace("'f'", "'../f'")), @"figures.toml:1: figure '../f': the ID is a file name; use letters, digits and '-'");
}
