//! Instruction forms in a spelling that all sources share, e.g. `ADD R64,R64`.
//!
//! Operands are the words of our lists (`R64`, `M64`, `XMM`, `K`), `I8` to `I64` for immediates, `1` for a shift by one,
//! registers that a form names (`CL`, `ST0`), and the parts of an address that only `lea` computes (`AGEN:B_I`).

/// Maximum length of a text that is parsed as a form.
const MAX_TEXT: usize = 200;
/// Mnemonics with a special encoding for a count of one.
const SHIFTS: [&str; 7] = ["SHL", "SHR", "SAR", "ROL", "ROR", "RCL", "RCR"];
/// Prefixes that are part of a mnemonic.
const PREFIXES: [&str; 5] = ["LOCK", "REP", "REPE", "REPNE", "REPNZ"];
/// Condition codes with another name, as they follow `CMOV`, `SET` or `J`.
const CONDITIONS: [(&str, &str); 16] = [
    ("E", "Z"),
    ("NE", "NZ"),
    ("C", "B"),
    ("NAE", "B"),
    ("NC", "NB"),
    ("AE", "NB"),
    ("NA", "BE"),
    ("A", "NBE"),
    ("PE", "P"),
    ("PO", "NP"),
    ("NGE", "L"),
    ("GE", "NL"),
    ("NG", "LE"),
    ("G", "NLE"),
    ("NBE", "NBE"),
    ("NLE", "NLE"),
];

/// A form in the shared spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FormKey(String);

/// Which registers a source's form has in place of operands of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Registers {
    /// Different ones.
    Distinct,
    /// The source does not say, or there is one operand.
    Unnamed,
    /// The same one.
    Same,
}

impl FormKey {
    fn new(mnemonic: &str, operands: &[String]) -> Self {
        let mnemonic = canonical_mnemonic(mnemonic);
        Self(if operands.is_empty() {
            mnemonic
        } else {
            format!("{mnemonic} {}", operands.join(","))
        })
    }

    /// Returns the form as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the mnemonic with its prefix.
    pub(crate) fn mnemonic(&self) -> &str {
        let words: Vec<&str> = self.0.split(' ').collect();
        let prefixes = words.iter().take_while(|word| PREFIXES.contains(word)).count();
        let length: usize = words.iter().take(prefixes + 1).map(|word| word.len()).sum();
        &self.0[..length + prefixes]
    }

    /// Returns the operands.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &str> {
        let mnemonic_words = self.0.split(' ').take_while(|word| PREFIXES.contains(word)).count();
        self.0.split(' ').nth(mnemonic_words + 1).into_iter().flat_map(|words| words.split(','))
    }

    /// Returns whether an operand is in memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.operands().any(is_memory)
    }

    /// Returns whether the first operand is in memory.
    pub(crate) fn writes_memory(&self) -> bool {
        self.operands().next().is_some_and(is_memory)
    }

    /// Returns the keys under which other sources may list a level of the factor `form`, the most specific first; none if
    /// they cannot: a sequence, or a form with a stated value of its operands.
    pub(crate) fn of_level(level: &str) -> Vec<Self> {
        if level.len() > MAX_TEXT || level.contains([';', '(']) && !level.contains("st(") {
            return Vec::new();
        }
        let words: Vec<&str> = level.split_whitespace().collect();
        let Some((mnemonic, words)) = split_mnemonic(&words) else { return Vec::new() };
        let alternatives: Option<Vec<Vec<String>>> =
            words.iter().map(|word| our_operand(&mnemonic, word, words)).collect();
        let Some(alternatives) = alternatives else { return Vec::new() };
        let mut all: Vec<Vec<String>> = vec![Vec::new()];
        for operand in &alternatives {
            let extended = |start: &Vec<String>| -> Vec<Vec<String>> {
                operand
                    .iter()
                    .map(|one| [start.as_slice(), std::slice::from_ref(one)].concat())
                    .collect()
            };
            all = all.iter().flat_map(extended).collect();
        }
        all.iter().map(|operands| Self::new(&mnemonic, operands)).collect()
    }

    /// Returns the key of a text of InstLatX64, e.g. `{REX}  ADD r1_64, r2_64`, and which registers it has; `None` if the
    /// text is not one instruction with plain operands.
    pub(crate) fn of_instlatx64(text: &str) -> Option<(Self, Registers)> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let text = text.trim();
        let text = match text.strip_prefix('{') {
            Some(encoding) => encoding.split_once('}')?.1.trim(),
            None => text,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let prefixes = words.iter().take_while(|word| PREFIXES.contains(word)).count();
        let mnemonic = words.get(..=prefixes)?.join(" ");
        let is_mnemonic = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == ' ';
        if !mnemonic.chars().all(is_mnemonic) {
            return None;
        }
        let rest = text.get(mnemonic.len()..)?.trim();
        let mut numbers: Vec<(String, char)> = Vec::new();
        let mut operands = Vec::new();
        for operand in rest.split(',').map(str::trim).filter(|_| !rest.is_empty()) {
            let (name, number) = instlatx64_operand(&mnemonic, operand)?;
            numbers.extend(number.map(|number| (name.clone(), number)));
            operands.push(name);
        }
        Some((Self::new(&mnemonic, &operands), registers(&numbers)))
    }

    /// Returns the key of an instruction of uops.info, given its assembler text, e.g. `{load} ADD`, and its string, e.g.
    /// `ADD_03 (R64, R64)`; `None` if an operand has no word of ours.
    pub(crate) fn of_uops_info(
        asm: &str,
        string: &str,
        attributes: UopsAttributes<'_>,
    ) -> Option<Self> {
        if asm.len() > MAX_TEXT || string.len() > MAX_TEXT {
            return None;
        }
        // `{load}`, `{evex}` choose an encoding.
        let words: Vec<&str> =
            asm.split_whitespace().filter(|word| !word.starts_with('{')).collect();
        let (mnemonic, []) = split_mnemonic(&words)? else { return None };
        let operands = match string.split_once('(') {
            Some((_, operands)) => operands.trim_end().strip_suffix(')')?,
            None => "",
        };
        let operands = operands.split(',').map(str::trim).filter(|it| !it.is_empty());
        let mut operands: Vec<String> = operands.map(uops_operand).collect::<Option<_>>()?;
        if let Some(address) = attributes.address {
            operands.push(format!("AGEN:{address}"));
        }
        if attributes.is_masked {
            // The mask is an operand there and part of the destination here.
            let at = operands.iter().position(|operand| operand == "K").filter(|at| *at > 0)?;
            operands.remove(at);
            let zeroing = if attributes.is_zeroing { "{Z}" } else { "" };
            let destination = operands.first_mut()?;
            *destination += &format!("{{K}}{zeroing}");
        }
        Some(Self::new(&mnemonic, &operands))
    }
}

/// Attributes of an instruction of uops.info that are part of its form.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UopsAttributes<'a> {
    pub(crate) is_masked: bool,
    pub(crate) is_zeroing: bool,
    /// Parts of a computed address, e.g. `B_IS_D8`.
    pub(crate) address: Option<&'a str>,
}

/// Splits words into the mnemonic with its prefix, and the operands.
fn split_mnemonic<'w, 't>(words: &'w [&'t str]) -> Option<(String, &'w [&'t str])> {
    let is_prefix = |word: &&&str| PREFIXES.contains(&word.to_ascii_uppercase().as_str());
    let prefixes = words.iter().take_while(is_prefix).count();
    let (mnemonic, operands) = words.split_at_checked(prefixes + 1)?;
    Some((mnemonic.join(" ").to_ascii_uppercase(), operands))
}

/// Returns a mnemonic with one name for each condition.
fn canonical_mnemonic(mnemonic: &str) -> String {
    for start in ["CMOV", "SET", "J"] {
        let condition = mnemonic.strip_prefix(start);
        let known = condition.and_then(|it| CONDITIONS.iter().find(|(name, _)| *name == it));
        if let Some((_, canonical)) = known {
            return format!("{start}{canonical}");
        }
    }
    mnemonic.to_owned()
}

fn is_memory(operand: &str) -> bool {
    operand.strip_prefix('M').is_some_and(|width| width.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns what another source may write for a word of our lists; `None` if it has no such operand.
fn our_operand(mnemonic: &str, word: &str, words: &[&str]) -> Option<Vec<String>> {
    let one = |text: &str| Some(vec![text.to_owned()]);
    if let Some(address) = word.strip_prefix('[') {
        let address = address.strip_suffix(']').filter(|_| mnemonic == "LEA")?;
        return Some(vec![format!("AGEN:{}", address_parts(address)?)]);
    }
    if let Ok(number) = word.parse::<i64>() {
        let has_16_bits = words.iter().any(|word| matches!(*word, "R16" | "M16"));
        return Some(immediates(mnemonic, number, has_16_bits || mnemonic == "ENTER"));
    }
    let (name, suffix) = word.split_at(word.find('{').unwrap_or(word.len()));
    match (name, suffix) {
        ("R8" | "R16" | "R32" | "R64" | "MM" | "XMM" | "YMM" | "ZMM" | "K" | "BND", "") => {
            one(name)
        }
        ("XMM" | "YMM" | "ZMM", "{K}" | "{K}{z}") => one(&word.to_ascii_uppercase()),
        ("M128" | "M256" | "M512", "{K}") => one(word),
        ("ST", "") => one("ST"),
        ("st(0)", "") => one("ST0"),
        ("cl" | "ax", "") => one(&name.to_ascii_uppercase()),
        (name, "") if is_memory(name) => one(name),
        _ => None,
    }
}

/// Returns the immediates of a number, the shortest first.
fn immediates(mnemonic: &str, number: i64, has_16_bits: bool) -> Vec<String> {
    let mut widths = vec!["I8", "I16", "I32", "I64"];
    widths.retain(|width| match *width {
        "I8" => (-128..=255).contains(&number),
        "I16" => has_16_bits,
        _ => true,
    });
    if number == 1 && SHIFTS.contains(&mnemonic) {
        widths = vec!["1"];
    }
    widths.into_iter().map(String::from).collect()
}

/// Returns the parts of an address as uops.info names them: base, index, scaled index, displacement.
fn address_parts(address: &str) -> Option<String> {
    let mut parts = Vec::new();
    for (at, term) in address.split('+').map(str::trim).enumerate() {
        let is_displacement = term.parse::<i32>().is_ok() || term == "disp8";
        let part = match term.split_once('*') {
            Some((register, _)) if is_general(register.trim()) && at > 0 => "IS",
            None if is_general(term) && at == 0 => "B",
            None if is_general(term) => "I",
            None if is_displacement => "D8",
            _ => return None,
        };
        parts.push(part);
    }
    Some(parts.join("_"))
}

fn is_general(register: &str) -> bool {
    matches!(register, "R64" | "r64")
}

/// Returns our word for an operand of InstLatX64, and the number of its register if it has one.
fn instlatx64_operand(mnemonic: &str, operand: &str) -> Option<(String, Option<char>)> {
    if let Some(memory) = operand.strip_prefix('[') {
        let memory = memory.strip_suffix(']')?;
        if mnemonic == "LEA" {
            return Some((format!("AGEN:{}", address_parts(memory)?), None));
        }
        if memory == "mem" && mnemonic.starts_with("PREFETCH") {
            return Some(("M8".into(), None));
        }
        let width = memory.strip_prefix("mem").or_else(|| memory.strip_prefix('m'))?;
        width.parse::<u16>().ok()?;
        return Some((format!("M{width}"), None));
    }
    let immediate = operand.strip_prefix("imm").or_else(|| operand.strip_prefix("im"));
    if let Some(width) = immediate {
        return matches!(width, "8" | "16" | "32" | "64").then(|| (format!("I{width}"), None));
    }
    // `r1_64` is the first register.
    if let Some((register, width)) = operand.split_once('_') {
        let number = register.strip_prefix('r')?.chars().next().filter(char::is_ascii_digit)?;
        let is_known = matches!(width, "8" | "16" | "32" | "64") && register.len() == 2;
        return is_known.then(|| (format!("R{width}"), Some(number)));
    }
    let (name, suffix) = operand.split_at(operand.find('{').unwrap_or(operand.len()));
    let (name, suffix) = (name.trim(), suffix.replace(' ', "").to_ascii_uppercase());
    if !matches!(suffix.as_str(), "" | "{K}" | "{K}{Z}") {
        return None;
    }
    let number = name.chars().last().filter(char::is_ascii_digit);
    let (class, number) = match name {
        "r8" | "r16" | "r32" | "r64" => (name.to_ascii_uppercase(), None),
        "cl" | "ax" | "1" => (name.to_ascii_uppercase(), None),
        "st" => ("ST0".into(), None),
        "st(i)" => ("ST".into(), None),
        _ => match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "mm" => ("MM".into(), number),
            "xmm" | "xm" => ("XMM".into(), number),
            "ymm" | "ym" => ("YMM".into(), number),
            "zmm" | "zm" => ("ZMM".into(), number),
            "k" => ("K".into(), number),
            _ => return None,
        },
    };
    Some((class + &suffix, number))
}

/// Returns which registers numbered operands are.
fn registers(numbers: &[(String, char)]) -> Registers {
    let [(_, first), others @ ..] = numbers else { return Registers::Unnamed };
    match others.iter().any(|(_, number)| number != first) {
        true => Registers::Distinct,
        false if others.is_empty() => Registers::Unnamed,
        false => Registers::Same,
    }
}

/// Returns our word for an operand of uops.info.
fn uops_operand(operand: &str) -> Option<String> {
    let word = match operand {
        "R8l" | "R8" => "R8",
        "R16" | "R32" | "R64" | "MM" | "XMM" | "YMM" | "ZMM" | "K" | "BND" => operand,
        "I8" | "I16" | "I32" | "I64" | "1" | "CL" | "AX" => operand,
        _ if is_memory(operand) && operand[1..].bytes().all(|b| b.is_ascii_digit()) => operand,
        _ => return None,
    };
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ours(level: &str) -> Vec<String> {
        FormKey::of_level(level).into_iter().map(|key| key.0).collect()
    }

    fn instlatx64(text: &str) -> Option<(String, Registers)> {
        FormKey::of_instlatx64(text).map(|(key, registers)| (key.0, registers))
    }

    fn uops(asm: &str, string: &str) -> Option<String> {
        FormKey::of_uops_info(asm, string, UopsAttributes::default()).map(|key| key.0)
    }

    #[test]
    fn levels_have_the_keys_of_their_immediates() {
        assert_eq!(ours("add R64 R64"), ["ADD R64,R64"]);
        assert_eq!(ours("lock add M64 R64"), ["LOCK ADD M64,R64"]);
        assert_eq!(ours("add R64 1"), ["ADD R64,I8", "ADD R64,I32", "ADD R64,I64"]);
        assert_eq!(ours("add R64 1000"), ["ADD R64,I32", "ADD R64,I64"]);
        assert_eq!(ours("enter 0 0")[..2], ["ENTER I8,I8", "ENTER I8,I16"]);
        assert_eq!(ours("shl R64 1"), ["SHL R64,1"]);
        assert_eq!(ours("shl R64 5")[0], "SHL R64,I8");
        assert_eq!(ours("shl R64 cl"), ["SHL R64,CL"]);
        assert_eq!(ours("cmove R64 R64"), ["CMOVZ R64,R64"]);
        assert_eq!(ours("vpaddd ZMM{K}{z} ZMM ZMM"), ["VPADDD ZMM{K}{Z},ZMM,ZMM"]);
        assert_eq!(ours("lea R64 [R64+R64*4+8]"), ["LEA R64,AGEN:B_IS_D8"]);
        assert_eq!(ours("fadd ST st(0)"), ["FADD ST,ST0"]);
        assert_eq!(ours("nop"), ["NOP"]);
        for other in [
            "div R64 (quotient 1)",
            "fld st(1); fstp st(0)",
            "vpgatherdd YMM [BASE+YMM*4] ymm15 (one line)",
            "jmp next",
            "bndcl BND [BASE+R64]",
            "",
        ] {
            assert_eq!(ours(other), Vec::<String>::new(), "{other}");
        }
    }

    #[test]
    fn texts_of_instlatx64_have_keys_and_registers() {
        use Registers::{Distinct, Same, Unnamed};
        for (text, key, registers) in [
            ("ADD r64, r64", "ADD R64,R64", Unnamed),
            ("{REX}  ADD r1_8,  r2_8", "ADD R8,R8", Distinct),
            ("{REX}  SHLD r1_64, r1_64, imm8", "SHLD R64,R64,I8", Same),
            ("{REX}  LOCK ADD [m64], r64", "LOCK ADD M64,R64", Unnamed),
            ("{VEX}  VPANDN xmm1, xmm1, xmm2", "VPANDN XMM,XMM,XMM", Distinct),
            ("{EVEX} VPXORD xmm1, xmm1, xmm1", "VPXORD XMM,XMM,XMM", Same),
            ("{VEX}  VFMADD231PD ymm,ymm,ymm", "VFMADD231PD YMM,YMM,YMM", Unnamed),
            ("{EVEX} VPADDD zmm{k}, zmm, zmm", "VPADDD ZMM{K},ZMM,ZMM", Unnamed),
            ("{EVEX} VPADDD xmm {k}{z}, xmm, xmm", "VPADDD XMM{K}{Z},XMM,XMM", Unnamed),
            ("{REX}  LEA r64, [r64 + r64 * 8 + disp8]", "LEA R64,AGEN:B_IS_D8", Unnamed),
            ("{REX}  SHL r8,  cl", "SHL R8,CL", Unnamed),
            ("PREFETCHNTA [mem]", "PREFETCHNTA M8", Unnamed),
            ("{VEX}  KMOVB k, [mem8]", "KMOVB K,M8", Unnamed),
            ("FADD st(i), st", "FADD ST,ST0", Unnamed),
            ("NOP", "NOP", Unnamed),
            ("CMOVNE r64, r64", "CMOVNZ R64,R64", Unnamed),
        ] {
            assert_eq!(instlatx64(text), Some((key.into(), registers)), "{text}");
        }
        for other in [
            "MOV r8,[m8]+MOV [m8],r8",
            "ADD [m32 + 2], r32",
            "MUL r64  rax/eax upd",
            "DIVSS (x/0.5f)",
            "VMOVAPS LS pair",
            "0x66 NOP",
            "{REX",
            "",
        ] {
            assert_eq!(instlatx64(other), None, "{other}");
        }
    }

    #[test]
    fn strings_of_uops_info_have_keys() {
        assert_eq!(uops("{load} ADD", "ADD_03 (R64, R64)").unwrap(), "ADD R64,R64");
        assert_eq!(uops("LOCK ADD", "ADD_LOCK (M64, R64)").unwrap(), "LOCK ADD M64,R64");
        assert_eq!(
            uops("{evex} VPADDD", "VPADDD_EVEX (XMM, XMM, XMM)").unwrap(),
            "VPADDD XMM,XMM,XMM"
        );
        assert_eq!(uops("SETB", "SETB (R8l)").unwrap(), "SETB R8");
        assert_eq!(uops("CPUID", "CPUID").unwrap(), "CPUID");
        let masked = UopsAttributes { is_masked: true, is_zeroing: true, address: None };
        let key = FormKey::of_uops_info("VPADDD", "VPADDD_Z (ZMM, K, ZMM, ZMM)", masked);
        assert_eq!(key.unwrap().0, "VPADDD ZMM{K}{Z},ZMM,ZMM");
        let address = UopsAttributes { address: Some("B_I"), ..UopsAttributes::default() };
        let key = FormKey::of_uops_info("LEA", "LEA_B_I (R64)", address);
        assert_eq!(key.unwrap().0, "LEA R64,AGEN:B_I");
        for (asm, string) in [
            ("ADD", "ADD (R8h, R8l)"),
            ("VADDPD", "VADDPD (ZMM, ZMM, M64_1to8)"),
            ("ADD", "ADD (R64"),
            ("", "ADD (R64, R64)"),
        ] {
            assert_eq!(uops(asm, string), None, "{string}");
        }
    }

    #[test]
    fn operands_tell_what_is_in_memory() {
        let key = |level: &str| FormKey::of_level(level).remove(0);
        let memory = |level: &str| (key(level).has_memory(), key(level).writes_memory());
        assert_eq!(memory("lock add M64 R64"), (true, true));
        assert_eq!(memory("add R64 M64"), (true, false));
        assert_eq!(memory("paddd MM MM"), (false, false));
        assert_eq!(memory("mfence"), (false, false));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}", other in "[A-Za-z0-9_ ,{}()\\[\\]+*{}]{0,60}") {
            for text in [&text, &other] {
                let _ = FormKey::of_level(text).first().map(|key| key.operands().count());
                let _ = FormKey::of_instlatx64(text);
                let _ = FormKey::of_uops_info(text, text, UopsAttributes::default());
            }
        }
    }
}
