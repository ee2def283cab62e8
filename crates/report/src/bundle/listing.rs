//! Listings of machine code: offsets, bytes and instructions, with repeated copies stated instead of printed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, Formatter as _, Instruction, IntelFormatter, OpKind, SymbolResolver,
    SymbolResult,
};

/// Maximum number of instructions of a copy that is found to repeat.
const MAX_PERIOD: usize = 48;
/// Minimum number of lines that a statement of repetition replaces.
const MIN_REPLACED: usize = 8;
/// Width of the column of bytes: the longest instruction has 15.
const BYTES_WIDTH: usize = 15 * 3;

/// Names of addresses that instructions refer to.
pub(super) type Symbols = Rc<BTreeMap<u64, String>>;

/// Code to list.
pub(super) struct Code<'a> {
    /// Its bytes.
    pub(super) bytes: &'a [u8],
    /// The address of the first byte, to which instructions refer; offsets are relative to it.
    pub(super) address: u64,
    /// Names of other addresses.
    pub(super) symbols: &'a Symbols,
    /// Offset of the first instruction to list.
    pub(super) from: usize,
}

/// Returns the offset of the first instruction of code that is not the same as in earlier code, which need not be listed
/// again; `None` if only a few are the same.
pub(super) fn difference(code: &[u8], earlier: &[u8]) -> Option<usize> {
    let same = code.iter().zip(earlier).take_while(|(one, other)| one == other).count();
    let all = instructions(code, 0);
    let whole = all.iter().take_while(|one| one.next_ip() as usize <= same).count();
    let last = whole.checked_sub(1).filter(|_| whole >= MIN_REPLACED)?;
    all.get(last).map(|one| one.next_ip() as usize)
}

/// Returns the instructions of code, from its first byte to its last. Bytes that are no instruction are listed as such.
pub(super) fn instructions(bytes: &[u8], address: u64) -> Vec<Instruction> {
    // MPX: its instructions are measured, and would be NOPs otherwise.
    Decoder::with_ip(64, bytes, address, DecoderOptions::MPX).into_iter().collect()
}

/// Returns one line per instruction: offset from the first byte, bytes, and instruction in Intel's syntax. A branch within
/// the code is printed as the offset of its target.
pub(super) fn listing(code: &Code<'_>) -> String {
    let all = instructions(code.bytes, code.address);
    let starts: Vec<usize> =
        all.iter().map(|one| (one.ip().wrapping_sub(code.address)) as usize).collect();
    let bytes_of = |at: usize| {
        let end = starts.get(at + 1).copied().unwrap_or(code.bytes.len());
        code.bytes.get(starts[at]..end).unwrap_or_default()
    };
    let equal = |one: usize, other: usize| bytes_of(one) == bytes_of(other);
    // The distance to a target outside of the copies differs between them.
    let same_target = |one: usize, other: usize| {
        let (one, other) = (&all[one], &all[other]);
        one.near_branch_target() == other.near_branch_target()
            && one.code() == other.code()
            && one.len() == other.len()
    };
    let alike = |one: usize, other: usize| match is_branch(&all[one]) {
        true => same_target(one, other),
        false => equal(one, other),
    };
    let mut formatter = formatter(code);
    let mut text = String::new();
    let mut next = starts.partition_point(|start| *start < code.from);
    while next < all.len() {
        let repetition =
            repetition(next, all.len(), equal).map(|found| (found, "the bytes of")).or_else(|| {
                Some((repetition(next, all.len(), alike)?, "branching to the same targets,"))
            });
        let printed = repetition.as_ref().map_or(1, |(one, _)| one.period);
        for at in next..next + printed {
            let mut instruction = String::new();
            formatter.format(&all[at], &mut instruction);
            let hex: String = bytes_of(at).iter().map(|byte| format!("{byte:02x} ")).collect();
            let _ = writeln!(text, "{:#06x}  {hex:BYTES_WIDTH$}{instruction}", starts[at]);
        }
        next += printed;
        if let Some((Repetition { period, times }, how)) = repetition {
            let (from, to) = (starts[next], next + period * times);
            let end = starts.get(to).copied().unwrap_or(code.bytes.len());
            let what = if period == 1 { "this instruction" } else { "these instructions" };
            let _ = writeln!(
                text,
                "{from:#06x}  ... {how} {what} {times} more times, up to {end:#06x}"
            );
            next = to;
        }
    }
    text
}

/// Returns whether an instruction is a branch or call to an address relative to its own.
fn is_branch(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::NearBranch64)
}

/// Instructions that repeat.
struct Repetition {
    /// Number of instructions of one copy.
    period: usize,
    /// Number of further copies.
    times: usize,
}

/// Returns the copies that begin at an instruction of `count`, whose bytes `equal` compares; `None` if a statement about
/// them would replace only a few lines.
fn repetition(
    start: usize,
    count: usize,
    equal: impl Fn(usize, usize) -> bool,
) -> Option<Repetition> {
    let mut best: Option<Repetition> = None;
    for period in 1..=MAX_PERIOD.min((count - start) / 2) {
        let same = (start + period..count).take_while(|at| equal(*at, at - period)).count();
        let times = same / period;
        let replaced = |one: &Repetition| one.period * one.times;
        if period * times >= MIN_REPLACED
            && best.as_ref().is_none_or(|best| period * times > replaced(best) + period)
        {
            best = Some(Repetition { period, times });
        }
    }
    best
}

fn formatter(code: &Code<'_>) -> IntelFormatter {
    let end = code.address.wrapping_add(code.bytes.len() as u64);
    let names = Names { within: code.address..end, symbols: Rc::clone(code.symbols) };
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_rip_relative_addresses(true);
    options.set_first_operand_char_index(8);
    formatter
}

/// Names of addresses for the formatter.
struct Names {
    /// Addresses of the code itself, which are printed as offsets.
    within: Range<u64>,
    symbols: Symbols,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let is_address = instruction.is_ip_rel_memory_operand() || is_branch(instruction);
        if is_address && self.within.contains(&address) {
            let offset = address - self.within.start;
            return Some(SymbolResult::with_string(address, format!("+{offset:#x}")));
        }
        let name = self.symbols.get(&address).filter(|_| is_address)?;
        Some(SymbolResult::with_str(address, name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(bytes: &[u8], address: u64, symbols: &[(u64, &str)]) -> String {
        let symbols = symbols.iter().map(|(at, name)| (*at, (*name).to_owned())).collect();
        listing(&Code { bytes, address, symbols: &Rc::new(symbols), from: 0 })
    }

    #[test]
    fn copies_of_a_loop_are_stated_once() {
        // inc rax, 20 times; dec r15; jnz to the first byte; jmp [r13 + 16]
        let mut code = [0x48, 0xFF, 0xC0].repeat(20);
        code.extend([0x49, 0xFF, 0xCF, 0x0F, 0x85]);
        code.extend((-(60 + 3 + 6_i32)).to_le_bytes());
        code.extend([0x41, 0xFF, 0xA5, 16, 0, 0, 0]);
        let text = list(&code, 0, &[]);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "0x0000 48 ff c0 inc rax",
                "0x0003 ... the bytes of this instruction 19 more times, up to 0x003c",
                "0x003c 49 ff cf dec r15",
                "0x003f 0f 85 bb ff ff ff jne +0x0",
                "0x0045 41 ff a5 10 00 00 00 jmp qword ptr [r13+0x10]",
            ]
        );
    }

    #[test]
    fn copies_of_several_instructions_are_found() {
        // add rax, rbx; imul rax, rcx
        let code = [0x48, 0x01, 0xD8, 0x48, 0x0F, 0xAF, 0xC1].repeat(9);
        let text = list(&code, 0x5000, &[]);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.contains("0x0007  ... the bytes of these instructions 8 more times, up to 0x003f")
        );
        // Fewer are printed.
        assert_eq!(list(&code[..21], 0, &[]).lines().count(), 6);
    }

    #[test]
    fn copies_that_branch_to_one_target_are_found() {
        // cmp rax, rbx; ja to the end
        let copies = (0..9).rev().flat_map(|after| {
            [[0x48, 0x39, 0xD8, 0x0F, 0x87].as_slice(), &(9 * after as u32).to_le_bytes()].concat()
        });
        let code: Vec<u8> = copies.chain([0x0F, 0x0B]).collect();
        let text = list(&code, 0, &[]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].ends_with("ja      +0x51"), "{text}");
        let expected = "0x0009  ... branching to the same targets, these instructions 8 more times, up to 0x0051";
        assert_eq!(lines[2], expected);
        assert!(lines[3].ends_with("ud2"), "{text}");
    }

    #[test]
    fn what_an_earlier_loop_has_is_not_listed_again() {
        let body = |copies: usize| [0x48, 0x01, 0xD8].repeat(copies);
        let [whole, half] = [20, 10].map(|copies| [body(copies), vec![0x0F, 0x0B]].concat());
        assert_eq!(difference(&half, &whole), Some(30));
        assert_eq!(difference(&whole, &whole), Some(62));
        assert_eq!(difference(&body(3), &whole), None);
        assert_eq!(difference(&[0xC3; 30], &whole), None);
        // An instruction whose first bytes are the same is another one.
        let other = [body(10), vec![0x48, 0x01, 0xD9]].concat();
        assert_eq!(difference(&other, &whole), Some(30));
        let symbols = Symbols::default();
        let rest = listing(&Code { bytes: &half, address: 0, symbols: &symbols, from: 30 });
        assert!(rest.starts_with("0x001e  0f 0b") && rest.lines().count() == 1, "{rest}");
    }

    #[test]
    fn calls_are_named() {
        // call rel32 to 0x1010; lea rdi, [rip + 0x1020]; ret
        let code = [0xE8, 0x0B, 0, 0, 0, 0x48, 0x8D, 0x3D, 0x14, 0, 0, 0, 0xC3];
        let text = list(&code, 0x1000, &[(0x1010, "copy::run"), (0x1020, "copy::next")]);
        assert!(text.contains("call    copy::run"), "{text}");
        assert!(text.contains("[rip+copy::next]"), "{text}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_listed_to_the_last(bytes in prop::collection::vec(any::<u8>(), 1..400)) {
            // Of what is printed and what is stated to repeat, the offsets cover all bytes.
            let text = list(&bytes, 0x1000, &[]);
            let offset = |text: &str| usize::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
            let mut next = 0;
            for line in text.lines() {
                let (start, rest) = line.split_once("  ").unwrap();
                prop_assert_eq!(offset(start), next);
                next = match rest.strip_prefix("... ") {
                    Some(rest) => offset(rest.rsplit_once(' ').unwrap().1),
                    None => {
                        let hex = rest.get(..BYTES_WIDTH).unwrap();
                        let printed: Vec<u8> = hex
                            .split_whitespace()
                            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                            .collect();
                        prop_assert_eq!(&bytes[next..next + printed.len()], printed.as_slice());
                        next + printed.len()
                    }
                };
            }
            prop_assert_eq!(next, bytes.len());
        }
    }
}
