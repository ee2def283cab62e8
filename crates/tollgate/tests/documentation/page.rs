//! Pages of the documentation, as CommonMark is parsed.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Returns the folder of the source.
pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A page.
pub(crate) struct Page {
    /// Path within the source.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A fenced block of code.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(source().join(path)).unwrap();
        Self { path: path.to_owned(), text }
    }

    fn events(&self) -> Parser<'_> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES)
    }

    /// Returns the targets of links and images.
    pub(crate) fn links(&self) -> Vec<String> {
        let links = self.events().filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.into_string())
            }
            _ => None,
        });
        links.collect()
    }

    /// Returns the anchors of the headings: lower case, without punctuation, hyphens for spaces.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let (mut anchors, mut heading) = (Vec::new(), None::<String>);
        for event in self.events() {
            match (event, &mut heading) {
                (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
                (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
                (Event::End(TagEnd::Heading(_)), _) => anchors.extend(heading.take()),
                _ => {}
            }
        }
        let anchor = |heading: String| {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            let text: String = heading.to_lowercase().chars().filter(kept).collect();
            text.replace(' ', "-")
        };
        anchors.into_iter().map(anchor).collect()
    }

    /// Returns the fenced blocks of code.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_in_block = false;
        for event in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    is_in_block = true;
                    blocks.push(Block { language: language.into_string(), text: String::new() });
                }
                Event::Text(text) if is_in_block => blocks.last_mut().unwrap().text.push_str(&text),
                Event::End(TagEnd::CodeBlock) => is_in_block = false,
                _ => {}
            }
        }
        blocks
    }

    /// Returns the texts within a line that are marked as code.
    pub(crate) fn inline_code(&self) -> Vec<String> {
        let code = self.events().filter_map(|event| match event {
            Event::Code(text) => Some(text.into_string()),
            _ => None,
        });
        code.collect()
    }
}

/// Returns all pages: those of the book, and those at the root of the source.
pub(crate) fn all() -> Vec<Page> {
    let folders = ["", "docs", "docs/tutorials"];
    let mut pages: Vec<_> = folders.iter().flat_map(|folder| in_folder(folder)).collect();
    pages.sort();
    pages.iter().map(|path| Page::read(path)).collect()
}

/// Returns the page on the kernel that stamps page faults, which is no page of the book.
pub(crate) fn kernel() -> Page {
    Page::read(Path::new("crates/suites/crossing/kernel/README.md"))
}

fn in_folder(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(source().join(folder)).unwrap();
    let names = entries.map(|entry| PathBuf::from(folder).join(entry.unwrap().file_name()));
    names.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}
