//! Links between pages.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::page::{self, Page, source};

/// Removes `..` and `.` from a path within the source.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(parts.pop(), "{}: outside of the source", path.display())
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let pages = page::all();
    let mut checked = 0;
    for from in &pages {
        for link in from.links().iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = from.path.parent().unwrap();
            let to = if file.is_empty() { from.path.clone() } else { normal(&folder.join(file)) };
            let place = format!("{}: link to {link}", from.path.display());
            assert!(source().join(&to).exists(), "{place}: no {}", to.display());
            let is_of_book = |path: &Path| path.starts_with("docs");
            assert!(!is_of_book(&from.path) || is_of_book(&to), "{place}: outside of the book");
            if !anchor.is_empty() {
                let page = pages.iter().find(|page| page.path == to);
                let anchors = page.map(Page::anchors).unwrap_or_default();
                assert!(anchors.iter().any(|one| one == anchor), "{place}: {anchors:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} links");
}

#[test]
fn the_book_contains_every_page() {
    let pages = page::all();
    let summary = pages.iter().find(|page| page.path == Path::new("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = summary.links().iter().map(|it| Path::new("docs").join(it)).collect();
    let of_book = pages.iter().map(|page| &page.path).filter(|path| path.starts_with("docs"));
    let missing: Vec<_> =
        of_book.filter(|path| *path != &summary.path && !listed.contains(*path)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn the_readme_shows_the_stored_run() {
    let script = source().join("scripts/docs");
    let output = std::process::Command::new("python3")
        .arg(script)
        .arg("--check")
        .env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_readme_is_short() {
    let pages = page::all();
    let readme = pages.iter().find(|page| page.path == Path::new("README.md")).unwrap();
    assert!(readme.text.lines().count() <= 150);
}
