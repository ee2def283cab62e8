//! Assembler: text to machine code by a crate, and by one run of the system's `as` for lines that the crate does not
//! support.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use asm_rs::{Arch, Assembler, OptLevel};
use iced_x86::{Decoder, DecoderOptions, OpKind, Register};
use lab::program::{self, Program};
use lab::sample::Failure;

/// The system's assembler.
pub(crate) const AS: Program = Program {
    name: "as",
    capability: "assembler",
    about: "the GNU assembler, for instructions that the built-in one does not support",
    package: "binutils",
};
/// Time limit; `as` assembles a thousand lines per second.
const LIMIT: Duration = Duration::from_secs(120);
/// Option for a listing with an instruction's code, at most 15 bytes, on one line.
const WIDTH: &str = "--listing-lhs-width=8";

/// Machine code by line of text in Intel syntax.
pub(crate) type Code = BTreeMap<String, Result<Vec<u8>, Failure>>;

/// Assembles lines of one instruction each.
pub(crate) fn assemble(lines: impl IntoIterator<Item = String>) -> Code {
    let mut code = Code::new();
    let mut unknown = Vec::new();
    for line in lines.into_iter().collect::<BTreeSet<_>>() {
        match by_crate(&line) {
            Some(bytes) => {
                code.insert(line, Ok(bytes));
            }
            None => unknown.push(line),
        }
    }
    if unknown.is_empty() {
        return code;
    }
    match AS.find().and_then(|program| by_system(&program, &unknown)) {
        Ok(answers) => code.extend(unknown.into_iter().zip(answers)),
        Err(failure) => {
            code.extend(unknown.into_iter().map(|line| (line, Err(failure.clone()))));
        }
    }
    code
}

/// Assembles a line by the crate; `None` if it does not support the instruction.
fn by_crate(line: &str) -> Option<Vec<u8>> {
    let mut assembler = Assembler::new(Arch::X86_64);
    assembler.optimize(OptLevel::None);
    let bytes = assembler.encode_one(line).ok()?;
    is_faithful(line, &bytes).then_some(bytes)
}

/// Returns the condition code of a conditional branch to FAIL.
///
/// # Errors
/// Returns `failed` if the line is not a conditional branch.
pub(crate) fn condition(line: &str) -> Result<u8, Failure> {
    let code = asm_rs::assemble(&format!("{line}\nFAIL:\n"), Arch::X86_64);
    match code.as_deref() {
        Ok([opcode @ 0x70..=0x7F, 0]) => Ok(opcode & 0xF),
        _ => Err(Failure::failed(format!("'{line}' is not a conditional branch"))),
    }
}

/// Returns whether code is the instruction of a text with its registers in the same order and width. The crate narrows
/// some registers and vectors and swaps some operands.
fn is_faithful(line: &str, code: &[u8]) -> bool {
    let instruction = Decoder::new(64, code, DecoderOptions::MPX).decode();
    let lower = |name: &dyn std::fmt::Debug| format!("{name:?}").to_lowercase();
    let mut words = line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
    let named = words.find(|word| *word != "lock").unwrap_or_default();
    if instruction.is_invalid()
        || instruction.len() != code.len()
        || lower(&instruction.mnemonic()) != named
    {
        return false;
    }
    let written: Vec<&str> = words.filter(|word| REGISTERS.contains(*word)).collect();
    let mut decoded = Vec::new();
    for operand in 0..instruction.op_count() {
        let kind = instruction.op_kind(operand);
        if kind == OpKind::Register {
            decoded.push(instruction.op_register(operand));
        } else if kind == OpKind::Memory {
            decoded.extend([instruction.memory_base(), instruction.memory_index()]);
        }
        decoded.extend((operand == 0).then_some(instruction.op_mask()));
    }
    let decoded = decoded.into_iter().filter(|it| *it != Register::None);
    let decoded: Vec<String> = decoded.map(|it| lower(&it)).collect();
    written == decoded
}

/// Names of all registers.
static REGISTERS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| Register::values().map(|it| format!("{it:?}").to_lowercase()).collect());

/// Assembles lines by `as`; returns the code or the error of each line.
fn by_system(program: &Path, lines: &[String]) -> Result<Vec<Result<Vec<u8>, Failure>>, Failure> {
    // A line end within a line would shift the following line numbers.
    let one_line = |line: &String| line.replace(['\n', '\r'], " ");
    let text = lines.iter().map(|line| one_line(line) + "\n").collect::<String>();
    let (listing, errors) = run(program, &format!(".intel_syntax noprefix\n{text}"))?;
    let (errors, codes) = (errors_by_line(&errors), codes_by_line(&listing));
    let answer = |(index, line): (usize, &String)| {
        // The first line is the directive.
        let number = index + 2;
        match (errors.get(&number), codes.get(&number)) {
            (Some(why), _) => Err(Failure::failed(why.clone())),
            (None, Some(bytes)) => Ok(bytes.clone()),
            (None, None) => Err(Failure::failed(format!("as generates no code for '{line}'"))),
        }
    };
    Ok(lines.iter().enumerate().map(answer).collect())
}

/// Runs `as` and returns its listing and its errors.
fn run(program: &Path, source: &str) -> Result<(String, String), Failure> {
    let mut command = Command::new(program);
    command.args(["--64", "-o", "/dev/null", "-al", WIDTH]).env("LC_ALL", "C");
    let output = program::run(&mut command, source.as_bytes(), LIMIT)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((text(output.stdout), text(output.stderr)))
}

/// Parses errors like `{standard input}:3: Error: no such instruction: ...`.
fn errors_by_line(errors: &str) -> BTreeMap<usize, String> {
    let error = |line: &str| {
        let (location, why) = line.split_once(": Error: ")?;
        let number = location.rsplit(':').next()?.parse().ok()?;
        Some((number, why.trim().to_owned()))
    };
    errors.lines().filter_map(error).collect()
}

/// Parses a listing like `   4 0003 F3410F1B 0406     bndmk bnd0, [r14+rax]`.
fn codes_by_line(listing: &str) -> BTreeMap<usize, Vec<u8>> {
    let code = |line: &str| {
        let (head, _) = line.split_once('\t')?;
        let mut words = head.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let _offset = words.next()?;
        let digits: String = words.collect();
        let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        Some((number, bytes.filter(|bytes| !bytes.is_empty())?))
    };
    listing.lines().filter_map(code).collect()
}

/// Returns the lines that both assemblers support but encode differently, with the code of the crate and of `as`.
#[cfg(test)]
pub(crate) fn disagreements(lines: Vec<String>) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let answers = by_system(&AS.find().unwrap(), &lines).unwrap();
    let both = |(line, system): (String, Result<Vec<u8>, Failure>)| {
        let (by_crate, system) = (by_crate(&line)?, system.unwrap_or_default());
        (by_crate != system).then_some((line, by_crate, system))
    };
    lines.into_iter().zip(answers).filter_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Result<Vec<u8>, Failure> {
        assemble([line.to_owned()]).remove(line).unwrap()
    }

    #[test]
    fn lines_are_assembled() {
        assert_eq!(one("add rax, rbx").unwrap(), [0x48, 0x01, 0xD8]);
        assert_eq!(one("mov rax, qword ptr [r14+64]").unwrap(), [0x49, 0x8B, 0x46, 0x40]);
    }

    #[test]
    fn branches_have_condition_codes() {
        assert_eq!(condition("jb FAIL"), Ok(2));
        assert_eq!(condition("ja FAIL"), Ok(7));
        assert!(condition("jmp FAIL").is_err() && condition("add FAIL").is_err());
    }

    #[test]
    fn code_that_differs_from_the_text_is_rejected() {
        assert!(is_faithful("mov edi, 1", &[0xBF, 1, 0, 0, 0]));
        assert!(!is_faithful("mov rdi, 1", &[0xBF, 1, 0, 0, 0]));
        assert!(!is_faithful("vpermpd zmm2, zmm3, 27", &[0xC4, 0xE3, 0xF9, 0x01, 0xD3, 0x1B]));
        assert!(!is_faithful("add rax, rbx", &[0x48, 0x29, 0xD8]), "sub");
        let swapped = [0x62, 0xF2, 0x7D, 0xCB, 0x8B, 0xD4];
        assert!(!is_faithful("vpcompressd zmm2{k3}{z}, zmm4", &swapped));
    }

    #[test]
    fn the_system_assembles_what_the_crate_does_not_support() {
        if let Err(failure) = AS.find() {
            return machine::untested::note("bounds: assembling by as", &failure);
        }
        assert_eq!(by_crate("bndcl bnd0, rax"), None);
        assert_eq!(one("bndcl bnd0, rax").unwrap(), [0xF3, 0x0F, 0x1A, 0xC0]);
        let why = one("frobnicate eax").unwrap_err().why;
        assert!(why.contains("no such instruction"), "{why}");
        assert!(one("bndcl bnd0").is_err());
    }

    #[test]
    fn an_invalid_line_does_not_affect_the_others() {
        if let Err(failure) = AS.find() {
            return machine::untested::note("bounds: assembling by as", &failure);
        }
        let lines = ["bndcl bnd0, rax", "bndcl what", "bndcu bnd0, rax"].map(String::from);
        let code = assemble(lines);
        let assembled: Vec<bool> = code.values().map(Result::is_ok).collect();
        assert_eq!(assembled, [true, false, true]);
    }

    #[test]
    fn a_missing_assembler_names_the_package_to_install() {
        let failure = AS.absent();
        assert!(failure.to_string().contains("apt-get install binutils"), "{failure}");
    }

    proptest! {

        #[test]
        fn the_crate_does_not_panic(line in "[a-z]{2,8} [a-z0-9, \\[\\]+*{}]{0,30}") {
            let _ = by_crate(&line);
        }

        #[test]
        fn parsing_a_listing_does_not_panic(text in "[ 0-9A-F?\t\n a-z]{0,200}") {
            let _ = (codes_by_line(&text), errors_by_line(&text));
        }
    }
}
