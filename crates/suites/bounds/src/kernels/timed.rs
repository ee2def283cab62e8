//! The timed functions of a compiled program, recorded as the measuring host compiled them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use machine::elf_functions::{self, ElfFunction};
use machine::mapping::PAGE;
use machine::timed_code;

/// Maximum number of calls between a timed function and one that is recorded.
const MAX_CALLS: usize = 2;
/// Maximum number of functions that are recorded of a program.
const MAX_FUNCTIONS: usize = 64;
/// Maximum length of the name of a function in a record.
const MAX_NAME: usize = 120;
/// Starts of the names of functions of run-time libraries, which a compiler may link statically.
const RUN_TIME: [&str; 5] = ["__asan", "__hwasan", "__interceptor", "__sanitizer", "__ubsan"];

/// Functions of a program by their address in the file.
type Functions = BTreeMap<u64, ElfFunction>;

/// Records the functions of a program that read the time-stamp counter, and what they call.
pub(super) fn record(program: &Path) {
    record_from(program, reads_clock);
}

/// Records the function of a program with this name, and what it calls.
pub(super) fn record_function(program: &Path, name: &str) {
    record_from(program, |_, function| function.name == name);
}

fn record_from(program: &Path, is_timed: impl Fn(u64, &ElfFunction) -> bool) {
    if !timed_code::is_collecting() {
        return;
    }
    // Without symbols, e.g. those of a compiler that strips, the program's artefact is the only record.
    let Ok(functions) = std::fs::read(program)
        .map_err(|why| why.to_string())
        .and_then(|file| elf_functions::read(&file))
    else {
        return;
    };
    for address in timed(&functions, is_timed) {
        let Some(ElfFunction { name, bytes }) = functions.get(&address) else { continue };
        let name: String = name.chars().take(MAX_NAME).collect();
        let name = || format!("function '{name}' of the compiled program, at {address:#x}");
        timed_code::record_at(name, address as usize % PAGE, bytes);
    }
}

/// Returns the addresses of the timed functions, and of those that they call, up to [`MAX_CALLS`] calls away.
fn timed(functions: &Functions, is_timed: impl Fn(u64, &ElfFunction) -> bool) -> BTreeSet<u64> {
    let is_timed = |entry: &(&u64, &ElfFunction)| is_timed(*entry.0, entry.1);
    let mut pending: Vec<u64> = functions.iter().filter(is_timed).map(|(at, _)| *at).collect();
    let mut found = BTreeSet::new();
    for _ in 0..=MAX_CALLS {
        let mut called = Vec::new();
        for address in pending {
            let Some(function) = functions.get(&address) else { continue };
            let is_run_time = RUN_TIME.iter().any(|start| function.name.starts_with(start));
            if is_run_time || found.len() == MAX_FUNCTIONS || !found.insert(address) {
                continue;
            }
            called.extend(instructions(address, function).iter().filter_map(target));
        }
        pending = called;
    }
    found
}

fn instructions(address: u64, function: &ElfFunction) -> Vec<Instruction> {
    Decoder::with_ip(64, &function.bytes, address, DecoderOptions::MPX).into_iter().collect()
}

fn reads_clock(address: u64, function: &ElfFunction) -> bool {
    let is_read = |one: &Instruction| matches!(one.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp);
    // The bytes of rdtsc and rdtscp, before the slower decoder.
    let has_bytes = |code: &[u8]| function.bytes.windows(code.len()).any(|window| window == code);
    (has_bytes(&[0x0F, 0x31]) || has_bytes(&[0x0F, 0x01, 0xF9]))
        && instructions(address, function).iter().any(is_read)
}

/// Returns the address that an instruction calls or jumps to.
fn target(instruction: &Instruction) -> Option<u64> {
    let is_branch = instruction.op_count() == 1 && instruction.op0_kind() == OpKind::NearBranch64;
    is_branch.then(|| instruction.near_branch_target())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(all: &[(u64, &str, &[u8])]) -> Functions {
        let function =
            |name: &str, bytes: &[u8]| ElfFunction { name: name.into(), bytes: bytes.into() };
        all.iter().map(|(at, name, bytes)| (*at, function(name, bytes))).collect()
    }

    /// Returns `call` from an address to another.
    fn call(from: u64, to: u64) -> Vec<u8> {
        let distance = to.wrapping_sub(from + 5) as i32;
        [&[0xE8][..], &distance.to_le_bytes()].concat()
    }

    #[test]
    fn functions_up_to_two_calls_from_the_clock_are_timed() {
        let kernel = [&[0x0F, 0x31][..], &call(0x1002, 0x2000), &call(0x1007, 0x6000)].concat();
        let all = functions(&[
            (0x1000, "kernel", &kernel),
            (0x2000, "inner", &call(0x2000, 0x3000)),
            (0x3000, "innermost", &call(0x3000, 0x4000)),
            (0x4000, "too far away", &[0xC3]),
            // mov eax, 0x310F: not rdtsc
            (0x5000, "another", &[0xB8, 0x0F, 0x31, 0, 0, 0xC3]),
            (0x6000, "__asan_report_load1", &[0xC3]),
        ]);
        assert_eq!(timed(&all, reads_clock), BTreeSet::from([0x1000, 0x2000, 0x3000]));
        let named = timed(&all, |_, one| one.name == "innermost");
        assert_eq!(named, BTreeSet::from([0x3000, 0x4000]));
    }
}
