//! Fields of data files in the documentation: each table has exactly the fields that the program accepts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::harness::Bench;
use crate::page::{self, Page};

/// Name of the data file that declares an unknown field.
const FILE: &str = "unknown.toml";

fn manual() -> Page {
    page::all().into_iter().find(|page| page.path == Path::new("docs/fields.md")).unwrap()
}

/// Returns the names in a text that are marked as code.
fn names(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the fields that the program accepts in a table, as its error about an unknown one lists them. `declaration` is
/// a file with the unknown field `zzz`.
fn accepted(bench: &Bench, declaration: &str) -> BTreeSet<String> {
    fs::write(bench.path().join(FILE), declaration).unwrap();
    let line = bench.refused(&["list", "-e", FILE], 2);
    let (_, expected) = line.split_once("unknown field `zzz`, expected ").unwrap();
    // The path of keys at the end is marked as code too.
    names(expected.rsplit_once(" in `").unwrap().0)
}

/// Returns the cells of the rows of the table below a heading.
fn rows<'p>(page: &'p Page, heading: &str) -> Vec<Vec<&'p str>> {
    let start = page.text.find(&format!("\n{heading}\n")).unwrap();
    let lines = page.text[start..].lines().skip_while(|line| !line.starts_with("| field "));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('|').map(str::trim).collect()).collect()
}

/// Returns the fields in the table below a heading.
fn listed(page: &Page, heading: &str) -> Vec<String> {
    rows(page, heading).iter().flat_map(|cells| names(cells[1])).collect()
}

#[test]
fn the_tables_of_fields_have_each_field() {
    let (bench, page) = (Bench::new(), manual());
    for (heading, declaration) in [
        ("## Experiment", "[[experiment]]\nzzz = 1"),
        ("## Claim", "[[claim]]\nzzz = 1"),
        ("### Published value", "[[claim]]\npublished = { zzz = 1 }"),
        ("### Setup", "[[claim]]\ncarries_over = { zzz = 1 }"),
        ("### Setup", "[[claim]]\nrequires = { zzz = 1 }"),
        ("### Condition", "[[claim]]\nexpect = { zzz = 1 }"),
        ("## Published table", "[[table]]\nzzz = 1"),
        ("### Column of a table", "[[table]]\ncolumns = { time = { zzz = 1 } }"),
        ("### Row of a table", "[[table]]\nrows = [{ zzz = 1 }]"),
        ("## Figure", "[[figure]]\nzzz = 1"),
        ("### Reference line", "[[figure]]\nlines = [{ zzz = 1 }]"),
        ("### Side panel", "[[figure]]\nside_panels = [{ zzz = 1 }]"),
        ("## Headline", "[[headline]]\nzzz = 1"),
        ("### Slot", "[[headline]]\nslots = { call = { zzz = 1 } }"),
    ] {
        let listed = listed(&page, heading);
        let distinct: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(distinct.len(), listed.len(), "{heading}: a field is listed twice");
        assert_eq!(distinct, accepted(&bench, declaration), "{heading}");
    }
}

#[test]
fn the_tables_in_a_condition_have_each_field() {
    let (bench, page) = (Bench::new(), manual());
    let rows = rows(&page, "### Condition");
    for condition in ["never", "always", "sometimes"] {
        let cells = rows.iter().find(|cells| cells[1] == format!("`{condition}`")).unwrap();
        let declaration = format!("[[claim]]\nexpect = {{ {condition} = {{ zzz = 1 }} }}");
        assert_eq!(names(cells[2]), accepted(&bench, &declaration), "{condition}");
    }
}

#[test]
fn the_changes_by_a_profile_are_fields() {
    let (bench, page) = (Bench::new(), manual());
    let listed = listed(&page, "### Changes by a profile");
    assert_eq!(listed, ["rounds", "min_rounds", "budget", "resolve", "skip"]);
    // Any other field is a factor, which takes a table of no type.
    for (field, is_factor) in
        listed.iter().map(|field| (field.as_str(), false)).chain([("zzz", true)])
    {
        let declaration = format!("[[experiment]]\nquick = {{ {field} = {{ a = 1 }} }}\n");
        fs::write(bench.path().join(FILE), declaration).unwrap();
        let line = bench.refused(&["list", "-e", FILE], 2);
        assert_eq!(line.contains("OneOrMany"), is_factor, "{field}: {line}");
    }
}

/// Returns a value of a type of the documentation.
fn sample_of(kind: &str) -> &'static str {
    match kind {
        "text" | "experiment" => "\"a\"",
        "number" => "1",
        kind if kind.starts_with("list of ") => "[]",
        kind if kind.starts_with("table of ") => "{}",
        other => panic!("no value of type '{other}'"),
    }
}

#[test]
fn required_fields_are_those_whose_default_is_required() {
    let (bench, page) = (Bench::new(), manual());
    for (heading, declaration, path) in [
        ("## Experiment", "[[experiment]]", "experiment"),
        ("## Claim", "[[claim]]", "claim"),
        ("### Published value", "[[claim]]\n[claim.published]", "claim.published"),
        ("## Published table", "[[table]]", "table"),
        ("### Column of a table", "[[table]]\n[table.columns.time]", "table.columns.time"),
        ("### Row of a table", "[[table]]\n[[table.rows]]", "table.rows"),
        ("## Figure", "[[figure]]", "figure"),
        ("### Reference line", "[[figure]]\n[[figure.lines]]", "figure.lines"),
        ("## Headline", "[[headline]]", "headline"),
    ] {
        let rows = rows(&page, heading);
        let required = rows.iter().filter(|cells| cells[4] == "required");
        let required: BTreeSet<_> = required.flat_map(|cells| names(cells[1])).collect();
        let (mut text, mut missing) = (format!("{declaration}\n"), BTreeSet::new());
        // Each missing field is an error until it is declared.
        loop {
            fs::write(bench.path().join(FILE), &text).unwrap();
            let output = bench.run(&["list", "-e", FILE]);
            let line = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let Some(line) = line.strip_suffix(&format!(" in `{path}`")) else { break };
            let Some((_, field)) = line.split_once("missing field `") else { break };
            let field = field.trim_end_matches('`').to_owned();
            let cells = rows.iter().find(|cells| names(cells[1]).contains(&field)).unwrap();
            text += &format!("{field} = {}\n", sample_of(cells[2]));
            assert!(missing.insert(field), "{heading}: {line}");
        }
        assert_eq!(missing, required, "{heading}");
    }
}
