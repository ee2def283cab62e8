//! The functions of an ELF program, read from its file by its symbols.

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

/// A function of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfFunction {
    /// Its name, demangled if it is of Rust.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Returns the functions of a program by their address in the file. Of several names of an address, one with a size is
/// preferred, then the first in the alphabet. A function without a size, e.g. of assembly, ends at the next symbol.
///
/// # Errors
/// Returns the reason in a few words if the file is no program, or has no symbols.
pub fn read(file: &[u8]) -> Result<BTreeMap<u64, ElfFunction>, String> {
    let file = object::File::parse(file).map_err(|why| format!("not an ELF file: {why}"))?;
    let mut starts = BTreeMap::new();
    for symbol in file.symbols().filter(|one| one.kind() == SymbolKind::Text && one.is_definition())
    {
        let (Ok(name), Some(section)) = (symbol.name(), symbol.section_index()) else { continue };
        let name = format!("{:#}", rustc_demangle::demangle(name));
        let found =
            starts.entry(symbol.address()).or_insert((name.clone(), symbol.size(), section));
        if (symbol.size() == 0, &name) < (found.1 == 0, &found.0) {
            *found = (name, symbol.size(), section);
        }
    }
    if starts.is_empty() {
        return Err("it has no symbols: it was stripped".into());
    }
    let mut functions = BTreeMap::new();
    for (address, (name, size, section)) in &starts {
        let Ok(section) = file.section_by_index(*section) else { continue };
        let end = section.address().saturating_add(section.size());
        let next = address.checked_add(1).and_then(|after| starts.range(after..).next());
        let next = next.map_or(end, |(next, _)| *next);
        let size = if *size == 0 { next.min(end).saturating_sub(*address) } else { *size };
        let Ok(Some(bytes)) = section.data_range(*address, size) else { continue };
        functions.insert(*address, ElfFunction { name: name.clone(), bytes: bytes.into() });
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[inline(never)]
    fn read_by_this_test(number: u64) -> u64 {
        std::hint::black_box(number) + 3
    }

    #[test]
    fn a_function_has_the_bytes_that_are_loaded() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let functions = read(&file).unwrap();
        let is_it = |one: &&ElfFunction| one.name.ends_with("::tests::read_by_this_test");
        let one = functions.values().find(is_it).unwrap();
        let start = read_by_this_test as *const () as *const u8;
        // SAFETY: the function is loaded, and its symbol states its length.
        let loaded = unsafe { std::slice::from_raw_parts(start, one.bytes.len()) };
        assert!(loaded.len() > 4, "{one:x?}");
        assert_eq!(one.bytes, loaded);
        assert_eq!(std::hint::black_box(read_by_this_test(4)), 7);
    }

    #[test]
    fn a_file_without_symbols_is_refused() {
        assert!(read(b"#!/bin/sh\n").is_err_and(|why| why.contains("not an ELF file")));
    }

    proptest! {
        #[test]
        fn any_bytes_after_a_header_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let header = [0x7F, b'E', b'L', b'F', 2, 1, 1];
            let _ = read(&[&header[..], &bytes].concat());
        }
    }
}
