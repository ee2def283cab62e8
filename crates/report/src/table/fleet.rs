//! Comparison of the nodes of a fleet.

use lab::fleet::{
    Direction, Fleet, MIN_NODES, NodeCounts, Outlier, OutlierPoint, SettingDifference, Unjudged,
};
use lab::format::{self, count, percent};
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};

/// Maximum number of outliers that are listed; JSON has all.
const MAX_OUTLIERS: usize = 20;
/// Maximum number of points of an outlier that are listed.
const MAX_POINTS: usize = 5;
/// Maximum number of settings of an outlier that are listed.
const MAX_SETTINGS: usize = 6;
/// Maximum number of lines of one kind, e.g. of runs that cannot be read.
const MAX_LINES: usize = 5;

/// Range of values without an exponent.
const MIN_PLAIN: f64 = 1e-9;
const MAX_PLAIN: f64 = 1e21;
/// Ratio above which a difference is not stated as a share.
const MAX_RATIO: f64 = 1000.0;

/// Renders a fleet: the experiments, each outlier with its settings and points, and what was not judged.
pub fn fleet(fleet: &Fleet, page: Page) -> String {
    let mut text = page.paragraph(&overview(fleet), 0, Emphasis::Strong);
    if !fleet.experiments.is_empty() {
        text.push('\n');
        text += &experiments(fleet, page);
    }
    text.push('\n');
    text += &page.paragraph(&verdict(fleet), 0, Emphasis::Plain);
    for outlier in fleet.outliers.iter().take(MAX_OUTLIERS) {
        text.push('\n');
        text += &of_outlier(outlier, page);
    }
    let more = fleet.outliers.len().saturating_sub(MAX_OUTLIERS);
    if more > 0 {
        text.push('\n');
        let line = format!("{more} more: --json lists all");
        text += &page.paragraph(&line, 0, Emphasis::Faint);
    }
    let settings = settings(fleet);
    let notes = notes(fleet);
    if !settings.is_empty() {
        text.push('\n');
        text += &page.paragraph("settings that differ between nodes", 0, Emphasis::Plain);
        for line in settings {
            text += &page.item("", Emphasis::Plain, 2, &line);
        }
    }
    if !notes.is_empty() {
        text.push('\n');
        for note in notes {
            text += &page.paragraph(&note, 2, Emphasis::Faint);
        }
    }
    text
}

/// States in one line whether a node is worse than the others: all nodes, or only one. The line starts with `ok`, `worse`
/// or `not judged`, and counts the nodes that were not judged in the end.
pub fn fleet_line(fleet: &Fleet, node: Option<&str>) -> String {
    let is_asked = |one: &&Outlier| node.is_none_or(|node| one.node == node);
    let (better, worse): (Vec<&Outlier>, Vec<&Outlier>) =
        fleet.outliers.iter().filter(is_asked).partition(|one| one.is_better());
    let of = |nodes: Vec<String>| match nodes.split_first() {
        None => String::new(),
        Some((first, [])) => first.clone(),
        Some((first, others)) => format!("{first}; and {} more", count(others.len(), "node")),
    };
    let failed = failed_nodes(fleet);
    let failed_and_asked =
        failed.iter().filter(|one| node.is_none_or(|node| one.node == node)).map(|one| {
            format!("{} has no judged value, {} failed", one.node, count(one.count, "sample"))
        });
    let worse: Vec<String> = worse
        .into_iter()
        .map(summary)
        .chain(failed_and_asked.filter(|_| fleet.judged > 0))
        .collect();
    let mut line = if !worse.is_empty() {
        format!("worse: {}", of(worse))
    } else if let Some(node) =
        node.filter(|node| fleet.nodes_not_judged.iter().any(|one| one == node))
    {
        format!("not judged: {node} has no value that other nodes have too; {}", overview(fleet))
    } else if fleet.judged == 0 {
        format!("not judged: {}", overview(fleet))
    } else if !better.is_empty() {
        let better = better.into_iter().map(summary).collect();
        format!("ok: {}; better: {}", overview(fleet), of(better))
    } else {
        format!("ok: {}", overview(fleet))
    };
    if !fleet.nodes_not_judged.is_empty() {
        let not_judged = count(fleet.nodes_not_judged.len(), "node");
        line += &format!("; {not_judged} not judged, {} failed", failed.len());
    }
    if !fleet.unreadable.is_empty() {
        line += &format!("; {} cannot be read", count(fleet.unreadable.len(), "run"));
    }
    line
}

/// Returns whether a node differs for the worse, or in a metric without a better direction, or whether its samples failed and
/// no value of it is judged, while others are.
pub fn is_worse(fleet: &Fleet, node: Option<&str>) -> bool {
    let is_asked = |name: &str| node.is_none_or(|node| name == node);
    let has_failed = || failed_nodes(fleet).iter().any(|one| is_asked(&one.node));
    fleet.outliers.iter().any(|one| is_asked(&one.node) && !one.is_better())
        || (fleet.judged > 0 && has_failed())
}

/// Returns the nodes with failed samples and without a judged value.
fn failed_nodes(fleet: &Fleet) -> Vec<&NodeCounts> {
    let is_judged = |node: &String| !fleet.nodes_not_judged.contains(node);
    fleet.failed.iter().filter(|one| !is_judged(&one.node)).collect()
}

fn overview(fleet: &Fleet) -> String {
    let points: usize = fleet.experiments.iter().map(|one| one.points).sum();
    let experiments = fleet.experiments.iter().filter(|one| one.points > 0).count();
    format!(
        "{} with {}: {} of {} compared, {} judged",
        count(fleet.nodes.len(), "node"),
        count(fleet.runs, "run"),
        count(points, "point"),
        count(experiments, "experiment"),
        count(fleet.judged, "value"),
    )
}

fn verdict(fleet: &Fleet) -> String {
    match fleet.outliers.len() {
        0 if fleet.judged == 0 => format!(
            "no node is judged: a point needs a noise floor, 6 rounds, and {MIN_NODES} nodes that measured it"
        ),
        0 => "no node differs from the others".into(),
        outliers => format!(
            "{}; if all nodes were equal, there would be one by chance in at most 5% of fleets",
            match outliers {
                1 => "1 node differs from the others".into(),
                _ => format!("{outliers} nodes differ from the others"),
            }
        ),
    }
}

fn experiments(fleet: &Fleet, page: Page) -> String {
    let headers = [
        ColumnHeader::left("experiment"),
        ColumnHeader::left("metric"),
        ColumnHeader::right("nodes"),
        ColumnHeader::right("points"),
        ColumnHeader::right("spread of nodes"),
        ColumnHeader::right("outliers"),
    ];
    let rows = fleet.experiments.iter().map(|one| {
        let emphasis = if one.outliers > 0 { Emphasis::Bad } else { Emphasis::Plain };
        vec![
            TableCell::from(one.experiment.as_str()),
            one.metric.as_str().into(),
            one.nodes.to_string().into(),
            one.points.to_string().into(),
            one.spread.map_or_else(|| "—".into(), percent).into(),
            TableCell::new(one.outliers.to_string(), emphasis),
        ]
    });
    page.table(&headers, rows.collect())
}

/// Describes an outlier in one line: `n7 is worse at 10 of 14 points, by 10%; governor powersave, others performance`.
fn summary(outlier: &Outlier) -> String {
    let first = outlier.settings.first();
    let setting = first.map(|one| {
        let SettingDifference { setting, value, others, .. } = one;
        format!("; {setting} {value}, others {others}")
    });
    format!("{}{}", phrase(outlier), setting.unwrap_or_default())
}

/// States where an outlier differs, and by how much in the median.
fn phrase(outlier: &Outlier) -> String {
    let directions = [Direction::Worse, Direction::Neither, Direction::Better];
    let counts = directions.map(|direction| (outlier.count(direction), direction));
    let words: Vec<_> = counts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, direction)| format!("{} at {number}", direction.word()))
        .collect();
    format!(
        "{} is {} of {}, {} in the median",
        outlier.node,
        words.join(" and "),
        count(outlier.judged, "point"),
        change(outlier.ratio())
    )
}

/// Formats a ratio as a change: `+10%`, `-5.0%`, `>1000x`.
fn change(ratio: f64) -> String {
    if ratio > MAX_RATIO {
        return format!(">{MAX_RATIO}x");
    }
    let sign = if ratio < 1.0 { "-" } else { "+" };
    format!("{sign}{}", percent((ratio - 1.0).abs()))
}

fn of_outlier(outlier: &Outlier, page: Page) -> String {
    let emphasis = if outlier.is_better() { Emphasis::Good } else { Emphasis::Bad };
    let mut text = page.paragraph(&phrase(outlier), 2, emphasis);
    for one in outlier.settings.iter().take(MAX_SETTINGS) {
        let SettingDifference { setting, value, others, share } = one;
        let rest = match *share > 0.0 {
            true => format!("{} of the others have it, most have {others}", percent(*share)),
            false => format!("others: {others}"),
        };
        text += &page.item("", Emphasis::Plain, 4, &format!("{setting}: {value} ({rest})"));
    }
    let more = outlier.settings.len().saturating_sub(MAX_SETTINGS);
    if outlier.settings.is_empty() {
        text += &page.item("", Emphasis::Plain, 4, "no recorded setting differs");
    } else if more > 0 {
        text +=
            &page.item("", Emphasis::Faint, 4, &format!("and {}", count(more, "other setting")));
    }
    let headers = [
        ColumnHeader::left("experiment"),
        ColumnHeader::left("point"),
        ColumnHeader::right("node"),
        ColumnHeader::right("others"),
        ColumnHeader::right("difference"),
    ];
    let rows = outlier.points.iter().take(MAX_POINTS).map(row);
    text += &page.table(&headers, rows.collect());
    let more = outlier.points.len().saturating_sub(MAX_POINTS);
    if more > 0 {
        text += &page.item("", Emphasis::Faint, 4, &format!("and {}", count(more, "more point")));
    }
    text += &page.item("", Emphasis::Faint, 4, &outlier.folder.to_string());
    text
}

fn row(one: &OutlierPoint) -> Vec<TableCell> {
    let levels = one.point.levels().map(|(factor, level)| super::section::phrase(factor, level));
    let class = one.class.map(|class| format!("{} cores", class.name()));
    let words: Vec<_> = levels.chain(class).collect();
    let emphasis = match one.direction {
        Direction::Worse => Emphasis::Bad,
        Direction::Neither => Emphasis::Plain,
        Direction::Better => Emphasis::Good,
    };
    let word = format!("{} {}", change(one.ratio), one.direction.word());
    vec![
        one.experiment.as_str().into(),
        words.join(", ").into(),
        value(one.value, &one.unit).into(),
        value(one.others, &one.unit).into(),
        TableCell::new(word, emphasis),
    ]
}

/// Formats a value; one that no unit shortens has an exponent.
fn value(value: f64, unit: &str) -> String {
    match value.abs() {
        size if size != 0.0 && !(MIN_PLAIN..MAX_PLAIN).contains(&size) => {
            format!("{value:.2e} {unit}")
        }
        _ => format::value(value, None, unit),
    }
}

/// Lists the settings that differ, with the number of nodes of each value.
fn settings(fleet: &Fleet) -> Vec<String> {
    let line = |one: &lab::fleet::SettingValues| {
        let mut values: Vec<_> =
            one.values.iter().map(|it| format!("{} on {}", it.value, it.nodes)).collect();
        if one.others > 0 {
            values.push(format!("others on {}", one.others));
        }
        format!("{}: {}", one.setting, values.join(", "))
    };
    fleet.settings.iter().map(line).collect()
}

/// States what was not judged, and why.
fn notes(fleet: &Fleet) -> Vec<String> {
    let Unjudged {
        points_of_few_nodes,
        values_without_floor,
        points_without_value,
        other_definitions,
        older_runs,
        copies,
        runs_of_sides,
        runs_in_guests,
        runs_on_several_hosts,
    } = &fleet.unjudged;
    let counts = [
        (
            *points_of_few_nodes,
            "point",
            format!("measured by fewer than {MIN_NODES} nodes, not judged"),
        ),
        (
            *values_without_floor,
            "value",
            "without a noise floor, not judged: measure more rounds".into(),
        ),
        (
            *points_without_value,
            "point of a node",
            "without an interval, not compared: measure more rounds".into(),
        ),
        (*older_runs, "older run", "of an experiment, replaced by the newest of the node".into()),
        (*copies, "copy", "of a run, counted once".into()),
        (*runs_of_sides, "run", "of 'compare --run', not compared".into()),
        (*runs_in_guests, "run", "in guests, not compared".into()),
        (*runs_on_several_hosts, "run", "with roles on several hosts, not compared".into()),
    ];
    let of_counts = counts.into_iter().filter(|(number, ..)| *number > 0);
    let mut notes: Vec<String> = of_counts
        .map(|(number, thing, why)| match (number, thing) {
            (_, "copy") if number > 1 => format!("{number} copies {why}"),
            (_, "point of a node") if number > 1 => format!("{number} points of nodes {why}"),
            _ => format!("{} {why}", count(number, thing)),
        })
        .collect();
    let mut list = |lines: Vec<String>, what: &str| {
        let more = lines.len().saturating_sub(MAX_LINES);
        notes.extend(lines.into_iter().take(MAX_LINES).map(|line| format!("{what}: {line}")));
        if more > 0 {
            notes.push(format!("{what}: {more} more"));
        }
    };
    list(other_definitions.clone(), "measured in another way, not compared");
    let failed = fleet.failed.iter();
    let failed = failed.map(|one| format!("{}: {}", one.node, count(one.count, "sample")));
    list(failed.collect(), "failed");
    list(fleet.unreadable.clone(), "not read");
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::fleet::FleetExperiment;
    use lab::point::Point;

    fn outlier(node: &str, direction: Direction) -> Outlier {
        let ratio = if direction == Direction::Worse { 0.9 } else { 1.1 };
        Outlier {
            node: node.into(),
            folder: format!("all/{node}/{node}-quick-1"),
            points: vec![OutlierPoint {
                experiment: "copy/throughput".into(),
                point: Point::from([("length", "4 KiB")]),
                class: None,
                metric: "throughput".into(),
                unit: "B/s".into(),
                value: 9e10,
                others: 1e11,
                ratio,
                direction,
                p_value: 1e-9,
            }],
            judged: 2,
            settings: vec![SettingDifference {
                setting: "governor".into(),
                value: "powersave\n".into(),
                others: "performance".into(),
                share: 0.0,
            }],
        }
    }

    fn example(outliers: Vec<Outlier>) -> Fleet {
        Fleet {
            nodes: (0..12).map(|node| format!("n{node}")).collect(),
            runs: 13,
            experiments: vec![FleetExperiment {
                experiment: "copy/throughput".into(),
                metric: "throughput".into(),
                nodes: 12,
                points: 2,
                spread: Some(0.011),
                outliers: outliers.len(),
            }],
            judged: 24,
            outliers,
            settings: Vec::new(),
            unjudged: Unjudged { copies: 2, ..Unjudged::default() },
            nodes_not_judged: Vec::new(),
            failed: Vec::new(),
            unreadable: Vec::new(),
            last_samples: Vec::new(),
        }
    }

    #[test]
    fn an_outlier_is_named_with_its_setting() {
        let text = fleet(&example(vec![outlier("n7", Direction::Worse)]), Page::default());
        for part in [
            "12 nodes with 13 runs: 2 points of 1 experiment compared, 24 values judged",
            "1 node differs from the others",
            "n7 is worse at 1 of 2 points, -10% in the median",
            "    governor: powersave",
            "(others: performance)",
            "90.0 GB/s",
            "2 copies of a run, counted once",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let none = fleet(&example(Vec::new()), Page::default());
        assert!(none.contains("no node differs from the others"), "{none}");
    }

    #[test]
    fn extreme_values_are_short() {
        let mut far = outlier("n7", Direction::Worse);
        far.points[0] = OutlierPoint {
            ratio: f64::MAX,
            value: 1.7e308,
            others: 1e-300,
            ..far.points[0].clone()
        };
        let text = fleet(&example(vec![far.clone()]), Page::default());
        assert!(text.contains(">1000x") && text.contains("1.70e308 B/s"), "{text}");
        assert!(text.contains("1.00e-300 B/s") && !text.contains("inf"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(fleet_line(&example(vec![far]), None).contains(">1000x in the median"));
        assert_eq!([change(0.0), change(2.0)], ["-100%", "+100%"].map(str::to_owned));
    }

    #[test]
    fn the_line_states_the_verdict_first() {
        let worse = example(vec![outlier("n7", Direction::Worse), outlier("n8", Direction::Worse)]);
        let line = fleet_line(&worse, None);
        assert!(line.starts_with("worse: n7 is worse at 1 of 2 points, -10%"), "{line}");
        assert!(
            line.ends_with("governor powersave\n, others performance; and 1 node more"),
            "{line}"
        );
        assert!(is_worse(&worse, None) && is_worse(&worse, Some("n8")));
        assert!(
            !is_worse(&worse, Some("n1")) && fleet_line(&worse, Some("n1")).starts_with("ok: ")
        );
        let better = example(vec![outlier("n7", Direction::Better)]);
        assert!(!is_worse(&better, None));
        assert!(fleet_line(&better, None).contains("; better: n7 is better at 1"));
        let crashed = Fleet {
            nodes_not_judged: vec!["n3".into()],
            failed: ["n3", "n4"].map(|node| NodeCounts { node: node.into(), count: 24 }).into(),
            ..example(Vec::new())
        };
        let worse = "worse: n3 has no judged value, 24 samples failed; 1 node not judged, 1 failed";
        for node in [None, Some("n3")] {
            assert!(is_worse(&crashed, node));
            assert_eq!(fleet_line(&crashed, node), worse);
        }
        assert!(!is_worse(&crashed, Some("n4")), "it has judged values");
        let line = fleet_line(&crashed, Some("n4"));
        assert!(
            line.starts_with("ok: ") && line.ends_with("; 1 node not judged, 1 failed"),
            "{line}"
        );
        let silent = Fleet { failed: Vec::new(), ..crashed.clone() };
        assert!(!is_worse(&silent, None));
        assert!(fleet_line(&silent, None).ends_with("; 1 node not judged, 0 failed"));
        let alone = Fleet { judged: 0, ..crashed };
        assert!(!is_worse(&alone, None), "too few nodes for a verdict on any");
        assert!(fleet_line(&alone, None).starts_with("not judged: "));
        let few = Fleet { judged: 0, ..example(Vec::new()) };
        assert!(fleet_line(&few, None).starts_with("not judged: 12 nodes"));
        let damaged = Fleet { unreadable: vec!["x".into()], ..example(Vec::new()) };
        assert!(fleet_line(&damaged, None).ends_with("; 1 run cannot be read"));
    }
}
