//! Text of a form with its operands: words in capitals, which are replaced by registers and memory.

use std::fmt::Write as _;

/// Separator of the instructions of a form that consists of several.
pub(crate) const BETWEEN: &str = "; ";

/// Class of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RegisterClass {
    General,
    Mmx,
    Vector,
    Mask,
    Bounds,
    /// x87 registers by their position on the stack.
    X87,
}

/// Register of any width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Register {
    pub(crate) class: RegisterClass,
    pub(crate) number: u8,
}

/// Operand of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A register with its width in bits.
    Register(RegisterClass, u16),
    /// Memory with its width in bits.
    Memory(u16),
}

/// Address of a memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryAddress {
    /// An offset in the data.
    Data(usize),
    /// The value of a general register.
    At(u8),
    /// An offset in the data in a general register.
    Index(u8),
}

/// General register with the address of the data.
const BASE: &str = "r14";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Operand(usize),
}

/// Parsed text of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
    operands: Vec<Operand>,
}

impl Template {
    /// Parses the text of a form.
    ///
    /// # Errors
    /// Returns the reason if a word in capitals is not an operand, or if there are two memory operands.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut template = Self { parts: Vec::new(), operands: Vec::new() };
        let mut rest = text;
        while !rest.is_empty() {
            let is_word = |c: char| c.is_ascii_alphanumeric();
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(if end > 0 { end } else { first_length(rest) });
            rest = tail;
            if word.starts_with(|c: char| c.is_ascii_uppercase()) {
                template.add_word(word)?;
            } else {
                template.parts.push(Part::Text(word.into()));
            }
        }
        if template.operands.iter().filter(|it| matches!(it, Operand::Memory(_))).count() > 1 {
            return Err("it has two memory operands".into());
        }
        Ok(template)
    }

    fn add_word(&mut self, word: &str) -> Result<(), String> {
        if word == "BASE" {
            self.parts.push(Part::Text(BASE.into()));
            return Ok(());
        }
        let operand = operand(word).ok_or_else(|| {
            format!(
                "unknown operand '{word}'; expected R8 R16 R32 R64 MM XMM YMM ZMM K BND ST M8 to M512 BASE"
            )
        })?;
        self.parts.push(Part::Operand(self.operands.len()));
        self.operands.push(operand);
        Ok(())
    }

    /// Returns the operands from left to right.
    pub(crate) fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// Returns the class of a register operand.
    pub(crate) fn class(&self, operand: usize) -> Option<RegisterClass> {
        match self.operands.get(operand)? {
            Operand::Register(class, _) => Some(*class),
            Operand::Memory(_) => None,
        }
    }

    /// Returns the index of the memory operand; `None` if there is none.
    pub(crate) fn memory(&self) -> Option<usize> {
        self.operands.iter().position(|operand| matches!(operand, Operand::Memory(_)))
    }

    /// Returns the text with register numbers and a memory address in place of the operands.
    pub(crate) fn text(&self, numbers: &[u8], address: MemoryAddress) -> String {
        let mut text = String::new();
        for part in &self.parts {
            // Writing into a String cannot fail.
            let _ = match part {
                Part::Text(words) => write!(text, "{words}"),
                Part::Operand(at) => match self.operands[*at] {
                    Operand::Register(class, bits) => {
                        write!(text, "{}", register(class, bits, numbers[*at]))
                    }
                    Operand::Memory(bits) => write!(text, "{}", memory(bits, address)),
                },
            };
        }
        text
    }
}

fn first_length(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn operand(word: &str) -> Option<Operand> {
    let register = |class, bits| Some(Operand::Register(class, bits));
    match word {
        "R8" => register(RegisterClass::General, 8),
        "R16" => register(RegisterClass::General, 16),
        "R32" => register(RegisterClass::General, 32),
        "R64" => register(RegisterClass::General, 64),
        "MM" => register(RegisterClass::Mmx, 64),
        "XMM" => register(RegisterClass::Vector, 128),
        "YMM" => register(RegisterClass::Vector, 256),
        "ZMM" => register(RegisterClass::Vector, 512),
        "K" => register(RegisterClass::Mask, 64),
        "BND" => register(RegisterClass::Bounds, 128),
        "ST" => register(RegisterClass::X87, 80),
        _ => {
            let bits = word.strip_prefix('M')?.parse().ok()?;
            size(bits).map(|_| Operand::Memory(bits))
        }
    }
}

/// Returns the name of a memory size in Intel syntax.
fn size(bits: u16) -> Option<&'static str> {
    Some(match bits {
        8 => "byte",
        16 => "word",
        32 => "dword",
        64 => "qword",
        128 => "xmmword",
        256 => "ymmword",
        512 => "zmmword",
        _ => return None,
    })
}

fn memory(bits: u16, address: MemoryAddress) -> String {
    let size = size(bits).unwrap_or_default();
    match address {
        MemoryAddress::Data(0) => format!("{size} ptr [{BASE}]"),
        MemoryAddress::Data(offset) => format!("{size} ptr [{BASE}+{offset}]"),
        MemoryAddress::At(number) => format!("{size} ptr [{}]", general(number, 64)),
        MemoryAddress::Index(number) => format!("{size} ptr [{BASE}+{}]", general(number, 64)),
    }
}

fn register(class: RegisterClass, bits: u16, number: u8) -> String {
    match class {
        RegisterClass::General => general(number, bits),
        RegisterClass::Mmx => format!("mm{number}"),
        RegisterClass::Mask => format!("k{number}"),
        RegisterClass::Bounds => format!("bnd{number}"),
        RegisterClass::X87 => format!("st({number})"),
        RegisterClass::Vector => {
            let letter = match bits {
                128 => 'x',
                256 => 'y',
                _ => 'z',
            };
            format!("{letter}mm{number}")
        }
    }
}

/// Returns the name of a general register, e.g. `eax` or `r9w`.
pub(crate) fn general(number: u8, bits: u16) -> String {
    const OLD: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    let Some(old) = OLD.get(usize::from(number)) else {
        let width = match bits {
            8 => "b",
            16 => "w",
            32 => "d",
            _ => "",
        };
        return format!("r{number}{width}");
    };
    match bits {
        8 if number < 4 => format!("{}l", &old[..1]),
        8 => format!("{old}l"),
        16 => (*old).into(),
        32 => format!("e{old}"),
        _ => format!("r{old}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(form: &str, numbers: &[u8], address: MemoryAddress) -> String {
        Template::parse(form).unwrap().text(numbers, address)
    }

    #[test]
    fn operands_are_replaced_by_registers_and_memory() {
        let data = MemoryAddress::Data(64);
        assert_eq!(text("add R64, R32", &[0, 9], data), "add rax, r9d");
        assert_eq!(text("mov R8, M8", &[6, 0], data), "mov sil, byte ptr [r14+64]");
        assert_eq!(text("mov R64, M64", &[7, 0], MemoryAddress::At(7)), "mov rdi, qword ptr [rdi]");
        assert_eq!(
            text("movzx R32, M8", &[1, 0], MemoryAddress::Index(1)),
            "movzx ecx, byte ptr [r14+rcx]"
        );
        assert_eq!(
            text("vaddps ZMM{K}{z}, ZMM, ZMM", &[1, 2, 3, 4], data),
            "vaddps zmm1{k2}{z}, zmm3, zmm4"
        );
        assert_eq!(text("bndcl BND, [BASE+R64]", &[0, 3], data), "bndcl bnd0, [r14+rbx]");
        assert_eq!(text("shl R64, cl", &[12], data), "shl r12, cl");
        assert_eq!(text("fadd ST, st(0)", &[3], data), "fadd st(3), st(0)");
    }

    #[test]
    fn unknown_operands_are_errors() {
        assert!(Template::parse("add R63, R64").unwrap_err().contains("unknown operand 'R63'"));
        assert!(Template::parse("add M7, R64").is_err());
        assert!(Template::parse("add M64, M64").unwrap_err().contains("two memory operands"));
    }

    proptest! {
        #[test]
        fn parsing_does_not_panic(text in ".{0,40}") {
            if let Ok(template) = Template::parse(&text) {
                template.text(&vec![1; template.operands().len()], MemoryAddress::Data(0));
            }
        }

        #[test]
        fn text_without_capitals_is_unchanged(text in "[a-z0-9 ,\\[\\]+*{}]{0,40}") {
            prop_assert_eq!(Template::parse(&text).unwrap().text(&[], MemoryAddress::Data(0)), text);
        }
    }
}
