//! Text to machine code: by a crate, and what that does not know by the system's `as`, all in one run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use asm_rs::{Arch, Assembler, OptLevel};
use iced_x86::{Decoder, DecoderOptions, OpKind, Register};
use lab::program::{Program, build};
use lab::sample::Failure;

/// The system's assembler.
pub(crate) const AS: Program = Program {
    name: "as",
    capability: "assembler",
    about: "the GNU assembler, for instructions that the program's own does not know",
    package: "binutils",
};
/// How long it may take: it assembles a thousand lines in a second.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of code that `as` is asked to show on one line: an instruction has 15 at most.
const WIDTH: &str = "--listing-lhs-width=8";

/// The machine code of each line of text, in Intel syntax.
pub(crate) type Code = BTreeMap<String, Result<Vec<u8>, Failure>>;

/// Assembles lines, each an instruction by itself.
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

/// By the crate; nothing where it does not know the instruction.
fn by_crate(line: &str) -> Option<Vec<u8>> {
    let mut assembler = Assembler::new(Arch::X86_64);
    assembler.optimize(OptLevel::None);
    let bytes = assembler.encode_one(line).ok()?;
    is_faithful(line, &bytes).then_some(bytes)
}

/// The condition of a line that branches to FAIL: what its short form and its long form have in common.
///
/// # Errors
/// Where it is no conditional branch.
pub(crate) fn condition(line: &str) -> Result<u8, Failure> {
    let code = asm_rs::assemble(&format!("{line}\nFAIL:\n"), Arch::X86_64);
    match code.as_deref() {
        Ok([opcode @ 0x70..=0x7F, 0]) => Ok(opcode & 0xF),
        _ => Err(Failure::failed(format!("'{line}' is no conditional branch"))),
    }
}

/// Whether code is the instruction of a text with its registers in their order and widths: the crate narrows
/// some, takes some vectors for shorter ones and swaps the operands of a few.
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
    let mut meant = Vec::new();
    for operand in 0..instruction.op_count() {
        match instruction.op_kind(operand) {
            OpKind::Register => meant.push(instruction.op_register(operand)),
            OpKind::Memory => meant.extend([instruction.memory_base(), instruction.memory_index()]),
            _ => {}
        }
        meant.extend((operand == 0).then_some(instruction.op_mask()));
    }
    let meant = meant.into_iter().filter(|it| *it != Register::None);
    let meant: Vec<String> = meant.map(|it| lower(&it)).collect();
    written == meant
}

/// The names of all registers.
static REGISTERS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| Register::values().map(|it| format!("{it:?}").to_lowercase()).collect());

/// By `as`: the code of each line, or what it says of it.
fn by_system(program: &Path, lines: &[String]) -> Result<Vec<Result<Vec<u8>, Failure>>, Failure> {
    // A line break inside a line would move all that follow.
    let one_line = |line: &String| line.replace(['\n', '\r'], " ");
    let text = lines.iter().map(|line| one_line(line) + "\n").collect::<String>();
    let (listing, errors) = run(program, &format!(".intel_syntax noprefix\n{text}"))?;
    let (complaints, codes) = (complaints(&errors), listed(&listing));
    let answer = |(index, line): (usize, &String)| {
        // The first line is the directive.
        let number = index + 2;
        match (complaints.get(&number), codes.get(&number)) {
            (Some(why), _) => Err(Failure::failed(why.clone())),
            (None, Some(bytes)) => Ok(bytes.clone()),
            (None, None) => Err(Failure::failed(format!("as makes no code of '{line}'"))),
        }
    };
    Ok(lines.iter().enumerate().map(answer).collect())
}

/// Gives the listing, and what `as` says of errors.
fn run(program: &Path, source: &str) -> Result<(String, String), Failure> {
    let mut command = Command::new(program);
    command.args(["--64", "-o", "/dev/null", "-al", WIDTH]).env("LC_ALL", "C");
    let output = build(&mut command, source.as_bytes(), LIMIT)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((text(output.stdout), text(output.stderr)))
}

/// `{standard input}:3: Error: no such instruction: ...`, by line.
fn complaints(errors: &str) -> BTreeMap<usize, String> {
    let complaint = |line: &str| {
        let (place, why) = line.split_once(": Error: ")?;
        let number = place.rsplit(':').next()?.parse().ok()?;
        Some((number, why.trim().to_owned()))
    };
    errors.lines().filter_map(complaint).collect()
}

/// `   4 0003 F3410F1B 0406     bndmk bnd0, [r14+rax]`, by line.
fn listed(listing: &str) -> BTreeMap<usize, Vec<u8>> {
    let code = |line: &str| {
        let (head, _) = line.split_once('\t')?;
        let mut words = head.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let _place = words.next()?;
        let digits: String = words.collect();
        let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        Some((number, bytes.filter(|bytes| !bytes.is_empty())?))
    };
    listing.lines().filter_map(code).collect()
}

/// Lines that the crate and `as` both know and assemble to different bytes: line, crate's, system's.
#[cfg(test)]
pub(crate) fn disagreements(lines: Vec<String>) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let answers = by_system(&AS.find().unwrap(), &lines).unwrap();
    let both = |(line, system): (String, Result<Vec<u8>, Failure>)| {
        let (own, system) = (by_crate(&line)?, system.unwrap_or_default());
        (own != system).then_some((line, own, system))
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
    fn text_becomes_code() {
        assert_eq!(one("add rax, rbx").unwrap(), [0x48, 0x01, 0xD8]);
        assert_eq!(one("mov rax, qword ptr [r14+64]").unwrap(), [0x49, 0x8B, 0x46, 0x40]);
    }

    #[test]
    fn branches_have_conditions() {
        assert_eq!(condition("jb FAIL"), Ok(2));
        assert_eq!(condition("ja FAIL"), Ok(7));
        assert!(condition("jmp FAIL").is_err() && condition("add FAIL").is_err());
    }

    #[test]
    fn what_the_crate_changes_is_not_taken_from_it() {
        assert!(is_faithful("mov edi, 1", &[0xBF, 1, 0, 0, 0]));
        assert!(!is_faithful("mov rdi, 1", &[0xBF, 1, 0, 0, 0]));
        assert!(!is_faithful("vpermpd zmm2, zmm3, 27", &[0xC4, 0xE3, 0xF9, 0x01, 0xD3, 0x1B]));
        assert!(!is_faithful("add rax, rbx", &[0x48, 0x29, 0xD8]), "sub");
        let swapped = [0x62, 0xF2, 0x7D, 0xCB, 0x8B, 0xD4];
        assert!(!is_faithful("vpcompressd zmm2{k3}{z}, zmm4", &swapped));
    }

    #[test]
    fn what_the_crate_does_not_know_the_system_does() {
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
    fn one_bad_line_spoils_no_other() {
        if let Err(failure) = AS.find() {
            return machine::untested::note("bounds: assembling by as", &failure);
        }
        let lines = ["bndcl bnd0, rax", "bndcl what", "bndcu bnd0, rax"].map(String::from);
        let code = assemble(lines);
        let told: Vec<bool> = code.values().map(Result::is_ok).collect();
        assert_eq!(told, [true, false, true]);
    }

    #[test]
    fn without_the_system_the_reason_says_what_to_install() {
        let failure = AS.absent();
        assert!(failure.to_string().contains("apt-get install binutils"), "{failure}");
    }

    proptest! {

        #[test]
        fn the_crate_takes_any_text(line in "[a-z]{2,8} [a-z0-9, \\[\\]+*{}]{0,30}") {
            let _ = by_crate(&line);
        }

        #[test]
        fn any_listing_is_read(text in "[ 0-9A-F?\t\n a-z]{0,200}") {
            let _ = (listed(&text), complaints(&text));
        }
    }
}
