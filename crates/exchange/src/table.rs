//! Comparisons as text and as CSV.

use lab::format::{self, Scale};
use lab::spreadsheet;
use lab::statistics::Estimate;
use lab::table::{ColumnHeader, Emphasis, Footnotes, Page, TableCell};

use crate::agreement::{Agreement, RULE};
use crate::error::ExchangeError;
use crate::output::{ComparedValue, Counterpart, ImportOutput};
use crate::source::Stated;

/// Column in which facts start.
const INDENT: usize = 15;
/// Levels that are not named because most points have them.
const COMMON: [(&str, &str); 7] = [
    ("by", "tollgate"),
    ("direction", "write"),
    ("memory", "heap"),
    ("mode", "jobs"),
    ("threads", "0"),
    ("cpus", "one"),
    ("sibling", "idle"),
];

/// Renders a comparison; of instructions only the differences, unless `all` is requested.
pub fn text(output: &ImportOutput, all: bool, page: Page) -> String {
    let mut text = heading(output, page);
    let mut notes = Footnotes::default();
    if output.source.format.is_of_instructions() {
        text += &agreement(output, page);
        text += &forms(output, all, &mut notes, page);
    } else {
        text += &values(output, &mut notes, page);
    }
    let notes = notes.text(page);
    if notes.is_empty() { text } else { text + "\n" + &notes }
}

/// Renders the source, its conditions and the run.
fn heading(output: &ImportOutput, page: Page) -> String {
    let source = &output.source;
    let title = format!("{} next to {}", source.program, output.run.name);
    let mut text = page.paragraph(&title, 0, Emphasis::Strong);
    let mut item = |label: &str, value: &str| {
        text += &page.item(label, Emphasis::Faint, INDENT, value);
    };
    item("file", &format!("{}, {} bytes", source.file, source.bytes));
    item("SHA-256", &source.sha256);
    for condition in &source.conditions {
        // A longer label would leave no gap.
        let is_short = condition.name.chars().count() < INDENT;
        let (label, value) = match is_short {
            true => (condition.name.as_str(), condition.value.clone()),
            false => ("", format!("{}: {}", condition.name, condition.value)),
        };
        item(label, &value);
    }
    let run = &output.run;
    item("run", &format!("{}, {} ({}), from {}", run.name, run.host, run.cpu, run.start));
    for note in &output.notes {
        text += &page.paragraph(note, 0, Emphasis::Doubtful);
    }
    text + "\n"
}

/// Renders values that are not of instructions.
fn values(output: &ImportOutput, notes: &mut Footnotes, page: Page) -> String {
    let headers = [
        ColumnHeader::left(output.source.format.source()),
        ColumnHeader::right("theirs"),
        ColumnHeader::right("ours"),
        ColumnHeader::right("ours/theirs"),
        ColumnHeader::left("our point"),
    ];
    let row = |value: &ComparedValue| {
        let marks: Vec<String> = value.remarks.iter().map(|remark| notes.mark(remark)).collect();
        let point = value.counterpart.as_ref().map(point_text).unwrap_or_else(|| "—".into());
        vec![
            TableCell::from(value.name.as_str()),
            stated_text(value.theirs, &value.unit).into(),
            our_text(value).into(),
            value.ratio.map_or_else(|| "—".into(), ratio_text).into(),
            TableCell::from(format!("{point} {}", marks.concat()).trim_end()),
        ]
    };
    page.table(&headers, output.values.iter().map(row).collect())
}

/// Renders the number of values by agreement.
fn agreement(output: &ImportOutput, page: Page) -> String {
    let headers = [
        ColumnHeader::left("metric"),
        ColumnHeader::right("compared"),
        ColumnHeader::right("agree"),
        ColumnHeader::right("unresolved"),
        ColumnHeader::right("differ, reason known"),
        ColumnHeader::right("differ"),
        ColumnHeader::right("not comparable"),
    ];
    let row = |count: &crate::AgreementCount| {
        let numbers = [
            count.compared(),
            count.agrees,
            count.unresolved,
            count.differs_with_reason,
            count.differs,
            count.not_compared,
        ];
        let numbers = numbers.map(|number| TableCell::from(number.to_string()));
        std::iter::once(TableCell::from(count.metric.as_str())).chain(numbers).collect()
    };
    let rule = format!(
        "Values agree {RULE}; unresolved ones differ, but our interval reaches into the tolerance."
    );
    page.table(&headers, output.agreement.iter().map(row).collect())
        + &page.paragraph(&rule, 0, Emphasis::Faint)
        + "\n"
}

/// Renders the forms that differ, or all.
fn forms(output: &ImportOutput, all: bool, notes: &mut Footnotes, page: Page) -> String {
    let headers = [
        ColumnHeader::left("form"),
        ColumnHeader::left("metric"),
        ColumnHeader::right("ours in cycles"),
        ColumnHeader::right("theirs"),
        ColumnHeader::left("result"),
    ];
    let is_shown = |value: &&ComparedValue| all || value.agreement == Some(Agreement::Differs);
    let row = |value: &ComparedValue| {
        let form = value.counterpart.as_ref().and_then(|one| one.levels.get("form"));
        let remarks = value.reason.iter().chain(&value.remarks);
        let marks: Vec<String> = remarks.map(|remark| notes.mark(remark)).collect();
        let result = value.agreement.map_or("not comparable", Agreement::name);
        vec![
            TableCell::from(form.map_or("", String::as_str)),
            value.metric.as_str().into(),
            our_cycles(value).into(),
            stated_cycles(value.theirs).into(),
            TableCell::from(format!("{result} {}", marks.concat()).trim_end()),
        ]
    };
    let rows: Vec<_> = output.values.iter().filter(is_shown).map(row).collect();
    if rows.is_empty() {
        let line = if all { "No form is in both." } else { "No compared value differs." };
        return page.paragraph(line, 0, Emphasis::Plain);
    }
    page.table(&headers, rows)
}

/// Describes our points, e.g. `copy/limit mbw-memcpy`.
fn point_text(counterpart: &Counterpart) -> String {
    let is_named = |(factor, level): &(&String, &String)| {
        *factor != "length" && !COMMON.contains(&(factor.as_str(), level.as_str()))
    };
    let levels = counterpart.levels.iter().filter(is_named);
    let levels = levels.map(|(factor, level)| {
        let is_number = level.chars().all(|c| c.is_ascii_digit());
        let is_clear = !is_number && level != "two";
        if is_clear { level.clone() } else { format!("{factor} {level}") }
    });
    std::iter::once(counterpart.experiment.clone()).chain(levels).collect::<Vec<_>>().join(" ")
}

/// Formats a stated value, with its range if it has one.
fn stated_text(stated: Option<Stated>, unit: &str) -> String {
    let Some(stated) = stated else { return "—".into() };
    let scale = Scale::of(stated.value, unit);
    let number = |value| scale.number(value, None);
    match stated.low < stated.high {
        true => format!(
            "{} ({} to {})",
            scale.value(stated.value, None),
            number(stated.low),
            number(stated.high)
        ),
        false => scale.value(stated.value, None),
    }
}

/// Formats stated cycles: a number, a range or a bound.
fn stated_cycles(stated: Option<Stated>) -> String {
    let Some(stated) = stated else { return "—".into() };
    let number = |value: f64| format::without_zeros(&format!("{value:.3}")).to_owned();
    let bound = if stated.is_upper_bound { "≤" } else { "" };
    match stated.low < stated.high {
        true => format!("{} to {bound}{}", number(stated.low), number(stated.high)),
        false => format!("{bound}{}", number(stated.value)),
    }
}

fn our_text(value: &ComparedValue) -> String {
    let Some(ours) = &value.ours else { return "—".into() };
    let text = format::value(ours.estimate.median, half(&ours.estimate), &value.unit);
    let half = format::half_width(ours.estimate.relative_half_width());
    format!("{text} {half}").trim_end().into()
}

fn our_cycles(value: &ComparedValue) -> String {
    let Some(ours) = &value.ours else { return "—".into() };
    let number = Scale::of(1.0, "1").number(ours.estimate.median, half(&ours.estimate));
    let half = format::half_width(ours.estimate.relative_half_width());
    format!("{number} {half}").trim_end().into()
}

/// Returns half the interval; `None` for a single round.
fn half(estimate: &Estimate) -> Option<f64> {
    let share = estimate.relative_half_width();
    share.is_finite().then(|| share * estimate.median.abs())
}

fn ratio_text(ratio: f64) -> String {
    Scale::of(1.0, "1").number(ratio, None)
}

/// Columns of the CSV file.
const COLUMNS: [&str; 18] = [
    "name",
    "metric",
    "unit",
    "theirs",
    "theirs_low",
    "theirs_high",
    "theirs_runs",
    "theirs_is_upper_bound",
    "experiment",
    "levels",
    "ours",
    "ours_low",
    "ours_high",
    "ours_rounds",
    "ratio",
    "agreement",
    "reason",
    "remarks",
];

/// Writes a comparison as comma-separated values, a row per value.
///
/// # Errors
/// Returns an error if a row cannot be written.
pub fn csv(output: &ImportOutput) -> Result<String, ExchangeError> {
    let error = |why: String| ExchangeError::Write(why);
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(|why| error(why.to_string()))?;
    for value in &output.values {
        let cells = cells(value);
        let cells = cells.iter().map(|cell| spreadsheet::cell(cell));
        writer
            .write_record(cells.map(|cell| cell.into_owned()))
            .map_err(|why| error(why.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|why| error(why.to_string()))?;
    String::from_utf8(bytes).map_err(|why| error(why.to_string()))
}

/// Returns the cells of a value.
fn cells(value: &ComparedValue) -> [String; 18] {
    let number = |number: Option<f64>| {
        number.filter(|it| it.is_finite()).map(|it| it.to_string()).unwrap_or_default()
    };
    let theirs = |of: &dyn Fn(&Stated) -> f64| number(value.theirs.as_ref().map(of));
    let ours =
        |of: &dyn Fn(&Estimate) -> f64| number(value.ours.as_ref().map(|it| of(&it.estimate)));
    let counterpart = value.counterpart.as_ref();
    let levels = counterpart.map(|one| {
        let levels = one.levels.iter().map(|(factor, level)| format!("{factor}={level}"));
        levels.collect::<Vec<_>>().join("; ")
    });
    let agreement = value.agreement.map(Agreement::name);
    [
        value.name.clone(),
        value.metric.clone(),
        value.unit.clone(),
        theirs(&|it| it.value),
        theirs(&|it| it.low),
        theirs(&|it| it.high),
        value.theirs.and_then(|it| it.runs).map(|runs| runs.to_string()).unwrap_or_default(),
        value.theirs.map(|it| it.is_upper_bound.to_string()).unwrap_or_default(),
        counterpart.map(|one| one.experiment.clone()).unwrap_or_default(),
        levels.unwrap_or_default(),
        ours(&|it| it.median),
        ours(&|it| it.interval.low),
        ours(&|it| it.interval.high),
        value.ours.as_ref().map(|it| it.estimate.rounds.to_string()).unwrap_or_default(),
        number(value.ratio),
        agreement.unwrap_or_default().into(),
        value.reason.clone().unwrap_or_default(),
        value.remarks.join("; "),
    ]
}
