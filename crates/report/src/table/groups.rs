//! Groups of rows: a long table is divided, and each part has a heading and the header.

use std::collections::BTreeMap;

use lab::point::Point;
use lab::table::{COLUMN_GAP, ColumnHeader, Emphasis, Page, TableCell};

/// Maximum number of rows of a table that is not divided.
const MAX_ROWS: usize = 40;

/// Names of the groups of points, by experiment.
pub type Groups = BTreeMap<String, BTreeMap<Point, String>>;

/// A group of rows: its name and the indices of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) rows: Vec<usize>,
}

/// Divides the rows of a long table by the group of each, in the order of the first row of each group. Returns no groups if
/// the table is short or if the rows have fewer than two groups.
pub(crate) fn divide<'a>(groups: impl Iterator<Item = Option<&'a str>>) -> Vec<Group> {
    let mut divided: Vec<Group> = Vec::new();
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = 0;
    for (row, group) in groups.enumerate() {
        rows += 1;
        let name = group.unwrap_or("others");
        let position = *positions.entry(name).or_insert(divided.len());
        match divided.get_mut(position) {
            Some(group) => group.rows.push(row),
            None => divided.push(Group { name: name.into(), rows: vec![row] }),
        }
    }
    if rows > MAX_ROWS && divided.len() > 1 { divided } else { Vec::new() }
}

/// Renders one table per group, all with the same widths of columns. `lines` are the rows of all groups.
pub(crate) fn text(
    groups: &[Group],
    headers: &[ColumnHeader],
    lines: &[Vec<TableCell>],
    page: Page,
) -> String {
    let headers = padded(headers, lines, page);
    let part = |group: &Group| {
        let lines = group.rows.iter().filter_map(|row| lines.get(*row).cloned());
        page.paragraph(&group.name, 2, Emphasis::Strong) + &page.table(&headers, lines.collect())
    };
    groups.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// Pads each title to the width of its column, unless the table is wider than the page: then each part fits its own columns.
fn padded(headers: &[ColumnHeader], lines: &[Vec<TableCell>], page: Page) -> Vec<ColumnHeader> {
    let length = |text: &str| text.chars().count();
    let width = |(at, header): (usize, &ColumnHeader)| {
        let cells = lines.iter().filter_map(|line| line.get(at)).map(|cell| length(&cell.text));
        cells.fold(length(&header.title), usize::max)
    };
    let widths: Vec<usize> = headers.iter().enumerate().map(width).collect();
    let gaps = COLUMN_GAP * headers.len().saturating_sub(1);
    if widths.iter().sum::<usize>() + gaps > page.columns() {
        return headers.to_vec();
    }
    let pad = |(header, width): (&ColumnHeader, usize)| {
        // No-break spaces are neither wrapped nor trimmed.
        let space = "\u{a0}".repeat(width.saturating_sub(length(&header.title)));
        let title = match header.is_right {
            true => space + &header.title,
            false => header.title.clone() + &space,
        };
        ColumnHeader { title, is_right: header.is_right }
    };
    headers.iter().zip(widths).map(pad).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<Option<&'static str>> {
        let of = |row: usize| match row % 3 {
            0 => Some("integer"),
            1 => Some("shift"),
            _ => None,
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn only_long_tables_with_groups_are_divided() {
        assert_eq!(divide(names(40).into_iter()), []);
        assert_eq!(divide((0..50).map(|_| Some("integer"))), []);
        assert_eq!(divide((0..50).map(|_| None)), []);
        let groups = divide(names(50).into_iter());
        let shape: Vec<_> =
            groups.iter().map(|it| (it.name.as_str(), it.rows[0], it.rows.len())).collect();
        assert_eq!(shape, [("integer", 0, 17), ("shift", 1, 17), ("others", 2, 16)]);
    }

    #[test]
    fn all_parts_have_the_same_columns_if_they_fit() {
        let line = |row: usize| {
            let name = if row == 0 { "a long name" } else { "it" };
            let number = if row == 1 { "1000000" } else { "1" };
            vec![TableCell::from(name), TableCell::from(number)]
        };
        let lines: Vec<_> = (0..50).map(line).collect();
        let headers = [ColumnHeader::left("form"), ColumnHeader::right("time")];
        let groups = divide(names(50).into_iter());
        let text = |width| super::text(&groups, &headers, &lines, Page { width, colour: false });
        let wide = text(100);
        let heads: Vec<&str> = wide.lines().filter(|line| line.starts_with("form")).collect();
        assert_eq!(heads, ["form            time"; 3], "{wide}");
        assert!(wide.starts_with("integer\nform"), "{wide}");
        assert!(wide.contains("\n\nshift\n") && wide.contains("\n\nothers\n"), "{wide}");
        assert_eq!(wide.lines().filter(|line| line.ends_with("  1")).count(), 49);
        assert!(text(40).lines().all(|line| line.chars().count() <= 40));
    }
}
