//! The code of copy functions of libraries, recorded as executed. That of the program is listed from its file.

use std::collections::{BTreeMap, VecDeque};

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use machine::loaded_code::LoadedCode;
use machine::timed_code;

use super::CopyFn;

/// Maximum number of functions that are recorded for one: some variants of memcpy jump into each other.
const MAX_FUNCTIONS: usize = 8;

/// Records the code of a function that was timed and of the functions that it branches to, unless it is part of the program.
pub(crate) fn record(level: &str, copy: CopyFn) {
    if !timed_code::is_collecting() {
        return;
    }
    for code in library_functions(copy as *const u8) {
        let file = code.object.file_name().unwrap_or_default().display().to_string();
        let (offset, called) =
            (code.address_in_file, if level == "glibc" { "memcpy" } else { level });
        let name = || format!("{called} of {file}, {offset:#x} in the file, called by the loops");
        timed_code::record_at(name, code.page_offset(), &code.bytes);
    }
}

/// Returns a function of a library and those of the same library that it branches to; none if it is part of the program.
fn library_functions(start: *const u8) -> Vec<LoadedCode> {
    let mut found: BTreeMap<u64, LoadedCode> = BTreeMap::new();
    let mut order = Vec::new();
    let mut pending = VecDeque::from([start]);
    while let Some(address) = pending.pop_front() {
        let is_known =
            |one: &LoadedCode| one.bytes.len() as u64 > address.addr() as u64 - one.address;
        let before = found.range(..=address.addr() as u64).next_back();
        if order.len() == MAX_FUNCTIONS || before.is_some_and(|(_, one)| is_known(one)) {
            continue;
        }
        let Some(code) = LoadedCode::at(address).filter(|code| !code.is_of_program) else {
            continue;
        };
        pending.extend(targets(&code));
        order.push(code.address);
        found.insert(code.address, code);
    }
    order.iter().filter_map(|address| found.remove(address)).collect()
}

/// Returns the addresses outside of a function that it branches to or calls directly.
fn targets(code: &LoadedCode) -> impl Iterator<Item = *const u8> {
    let (start, length) = (code.address, code.bytes.len() as u64);
    instructions(code).into_iter().filter_map(move |one| {
        let is_branch = one.op_count() == 1 && one.op0_kind() == OpKind::NearBranch64;
        let target = is_branch.then(|| one.near_branch_target())?;
        let is_outside = target.wrapping_sub(start) >= length;
        is_outside.then_some(target as *const u8)
    })
}

fn instructions(code: &LoadedCode) -> Vec<Instruction> {
    Decoder::with_ip(64, &code.bytes, code.address, DecoderOptions::NONE).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use iced_x86::Mnemonic;

    use super::super::find;
    use super::*;

    fn functions(level: &str) -> Vec<LoadedCode> {
        library_functions(find(level).unwrap().pointer() as *const u8)
    }

    #[test]
    fn memcpy_is_recorded_whole_and_without_invalid_instructions() {
        let codes = functions("glibc");
        assert!(!codes.is_empty() && codes.len() <= MAX_FUNCTIONS, "{codes:x?}");
        let resolved = find("glibc").unwrap().pointer() as *const u8;
        assert_eq!(codes[0].address, resolved.addr() as u64);
        for code in &codes {
            let all = instructions(code);
            assert!(all.iter().all(|one| !one.is_invalid()), "{code:x?}");
            assert!(all.iter().any(|one| one.mnemonic() == Mnemonic::Ret), "{code:x?}");
            // Whatever it branches to is recorded too, or the functions are too many.
            let is_recorded = |target: *const u8| {
                let target = target.addr() as u64;
                codes.iter().any(|one| target.wrapping_sub(one.address) < one.bytes.len() as u64)
            };
            assert!(targets(code).all(is_recorded) || codes.len() == MAX_FUNCTIONS, "{codes:x?}");
        }
    }

    #[test]
    fn functions_of_the_program_are_not_recorded() {
        for level in ["naive", "rep-movsb", "tollgate"] {
            if find(level).is_ok() {
                assert_eq!(functions(level), [], "{level}");
            }
        }
    }

    #[test]
    fn recorded_code_states_its_file() {
        timed_code::collect();
        record("glibc", find("glibc").unwrap().pointer());
        record("naive", find("naive").unwrap().pointer());
        let collected = timed_code::take();
        assert_eq!(collected.loops.len(), functions("glibc").len());
        let first = &collected.loops[0];
        assert!(first.name.starts_with("memcpy of libc.so.6, 0x"), "{}", first.name);
        assert_eq!(first.code, functions("glibc")[0].bytes);
    }
}
