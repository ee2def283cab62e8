//! The configuration of an enclave: the Open Enclave sample's `.conf` file of `Key=number` lines.

use std::path::Path;

use lab::sample::Failure;

use crate::limits::{self, Limit};

/// The length of a page, in bytes.
pub const PAGE: usize = 4096;

/// The maximum length of a `.conf` file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The configuration of an enclave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conf {
    /// `NumHeapPages`: pages of the heap, which cannot grow.
    pub heap_pages: usize,
    /// `NumStackPages`: pages of each thread's stack.
    pub stack_pages: usize,
    /// `NumTCS`: how many threads can be inside at the same time.
    pub tcs: usize,
    /// `Debug`: whether a debugger may read an SGX enclave; the other kinds are always readable.
    pub debug: bool,
}

/// The values of the sample's file.
impl Default for Conf {
    fn default() -> Self {
        Self { heap_pages: 4096, stack_pages: 16, tcs: 8, debug: false }
    }
}

/// The keys with their limits.
const KEYS: [(&str, Limit); 4] = [
    ("NumHeapPages", limits::HEAP),
    ("NumStackPages", limits::STACK),
    ("NumTCS", limits::TCS),
    ("Debug", limits::DEBUG),
];

impl Conf {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or the error of [`Conf::parse`].
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let text = machine::file::read_input_text(path, MAX_FILE_BYTES)
            .map_err(|why| Failure::failed(format!("{file}: {why}; give a readable .conf file")))?;
        Self::parse(&file, &text)
    }

    /// Returns the lengths of the heap and of a stack, in bytes.
    ///
    /// # Errors
    /// Returns an error if there is no TCS, or if the enclave exceeds the address space.
    pub(crate) fn lengths(&self) -> Result<(usize, usize), Failure> {
        if self.tcs == 0 {
            return Err(Failure::failed("NumTCS is 0: give at least 1"));
        }
        let bytes = |pages: usize| pages.checked_mul(PAGE);
        bytes(self.heap_pages).zip(bytes(self.stack_pages)).ok_or_else(|| self.too_large())
    }

    /// Returns the failure for an enclave that exceeds the address space.
    pub(crate) fn too_large(&self) -> Failure {
        Failure::failed(format!(
            "an enclave of {} heap pages and {} TCS with {} stack pages each is larger than the address space: \
             use fewer pages",
            self.heap_pages, self.tcs, self.stack_pages
        ))
    }

    /// Parses a text; a missing key keeps its default. `#` starts a comment.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key.
    pub fn parse(file: &str, text: &str) -> Result<Self, Failure> {
        let mut given = [None; KEYS.len()];
        for (number, line) in (1..).zip(text.lines()) {
            let bad = |why: String| Failure::failed(format!("{file}:{number}: {why}"));
            let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
            if line.is_empty() {
                continue;
            }
            let Some((key, value)) =
                line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
            else {
                return Err(bad(format!("'{line}' has no '=': write it as NumHeapPages=4096")));
            };
            let Some(which) = KEYS.iter().position(|(name, _)| *name == key) else {
                let names = KEYS.map(|(name, _)| name).join(", ");
                return Err(bad(format!("unknown key '{key}'; expected one of {names}")));
            };
            let count = KEYS[which].1.read(key, value).map_err(bad)?;
            if given[which].replace(count as usize).is_some() {
                return Err(bad(format!("{key} is given twice: delete one of the lines")));
            }
        }
        let all = Self::default();
        let [heap, stack, tcs, debug] = given;
        Ok(Self {
            heap_pages: heap.unwrap_or(all.heap_pages),
            stack_pages: stack.unwrap_or(all.stack_pages),
            tcs: tcs.unwrap_or(all.tcs),
            debug: debug.map_or(all.debug, |given| given == 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn why(text: &str) -> String {
        let why = Conf::parse("enclave.conf", text).unwrap_err().to_string();
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn a_file_is_parsed_and_missing_keys_keep_their_defaults() {
        let text =
            "# snmalloc needs 256 KB a thread\nNumHeapPages=8192\n\n NumTCS = 16 # threads\n";
        let conf = Conf::parse("enclave.conf", text).unwrap();
        assert_eq!(conf, Conf { heap_pages: 8192, tcs: 16, ..Conf::default() });
        assert_eq!(
            Conf::parse("", "").unwrap(),
            Conf { heap_pages: 4096, stack_pages: 16, tcs: 8, debug: false }
        );
        assert!(Conf::parse("", "Debug=1\r\n").unwrap().debug);
    }

    #[test]
    fn an_error_names_file_line_and_key() {
        for (text, expected) in [
            (
                "\nNumHeapPage=1",
                "enclave.conf:2: unknown key 'NumHeapPage'; expected one of NumHeapPages",
            ),
            ("NumTCS 8", "enclave.conf:1: 'NumTCS 8' has no '='"),
            ("NumTCS=8\nNumTCS=8", "enclave.conf:2: NumTCS is given twice"),
            ("NumTCS=eight", "enclave.conf:1: NumTCS is 'eight': give a number from 1 to 1024"),
            ("NumTCS=+8", "NumTCS is '+8'"),
            ("NumTCS=", "NumTCS is ''"),
            ("NumTCS=0", "NumTCS is 0: give a number from 1 to 1024"),
            ("Debug=2", "Debug is 2: give a number from 0 to 1"),
            ("NumStackPages=99999999999999999999999", "NumStackPages is '999"),
        ] {
            assert!(why(text).contains(expected), "{}", why(text));
        }
        for file in ["/no/such.conf", "/dev/zero", "/"] {
            let why = Conf::read(Path::new(file)).unwrap_err().to_string();
            assert!(why.contains(file) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn an_enclave_beyond_the_address_space_is_refused() {
        for (heap_pages, stack_pages) in [(1 << 52 | 1, 1), (1, 1 << 52), (usize::MAX, usize::MAX)]
        {
            let conf = Conf { heap_pages, stack_pages, ..Conf::default() };
            let why = conf.lengths().unwrap_err().to_string();
            assert!(why.contains("larger than the address space: use fewer pages"), "{why}");
        }
        let none = Conf { tcs: 0, ..Conf::default() };
        assert_eq!(none.lengths().unwrap_err().why, "NumTCS is 0: give at least 1");
        assert_eq!(Conf::default().lengths(), Ok((4096 * PAGE, 16 * PAGE)));
    }

    proptest! {
        #[test]
        fn any_valid_numbers_are_parsed(heap in 1usize..=1 << 24, stack in 1usize..=1 << 16,
            tcs in 1usize..=1024, debug: bool, order in Just([0usize, 1, 2, 3]).prop_shuffle()) {
            let lines = [
                format!("NumHeapPages={heap}"), format!("NumStackPages = {stack}"),
                format!("NumTCS={tcs} # so many"), format!("Debug={}", u8::from(debug)),
            ];
            let text = order.map(|line| lines[line].clone()).join("\n");
            let conf = Conf::parse("a.conf", &text).unwrap();
            prop_assert_eq!(conf, Conf { heap_pages: heap, stack_pages: stack, tcs, debug });
        }

        #[test]
        fn any_text_is_parsed_or_refused_in_one_line(text in "(Num(HeapPages|TCS)|Debug|[ -~])?[=#
        ]?[0-9]{0,30}
        ?.*") {
            if let Err(failure) = Conf::parse("a.conf", &text) {
                let why = failure.to_string();
                prop_assert!(why.contains("a.conf:") && !why.contains('\n'), "{}", why);
            }
        }
    }
}
