//! How the copies of a form feed one another: what makes its latency.

use std::fmt;

use super::list::InstructionForm;
use super::operand::{BETWEEN, MemoryAddress, Operand, Register, RegisterClass, Template};
use super::plan::{Line, Plan};
use super::register_set::{RegisterSet, pool};

/// By what each copy of a form feeds the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feeding {
    /// A register that is written and read.
    Register,
    /// A register that every instance names, as rax of `mul`.
    Implicit,
    /// What is loaded is the next load's address.
    Address,
    /// What is stored is loaded again from the same place.
    Forwarding,
    /// Flags alone.
    Flags,
}

impl fmt::Display for Feeding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Register => "register",
            Self::Implicit => "implicit-register",
            Self::Address => "pointer-chase",
            Self::Forwarding => "store-forwarding",
            Self::Flags => "flags",
        })
    }
}

/// A chain of a form: the ways to write it, the first that holds still is taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chain {
    pub(crate) feeding: Feeding,
    pub(crate) tries: Vec<Try>,
}

/// One way to write a link of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Try {
    pub(crate) line: Line,
    /// How many copies of the form the link is.
    pub(crate) copies: usize,
    /// For a pointer chase: the register that is chased, and what it and the memory hold at first.
    pub(crate) chased: Option<Chased>,
}

/// What a pointer chase begins with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chased {
    pub(crate) register: u8,
    /// Whether the register holds the data's address; else it holds 0.
    pub(crate) holds_address: bool,
    /// Whether the memory does.
    pub(crate) memory_holds_address: bool,
}

impl Plan {
    /// How copies of the form feed one another.
    ///
    /// # Errors
    /// Why they cannot.
    pub(crate) fn chain(&self, form: &InstructionForm) -> Result<Chain, String> {
        if form.reset_inputs {
            return Err("what it names is set anew before each copy".into());
        }
        let template = &form.template;
        let feeds = |bank: RegisterClass, register: &Register| {
            register.bank == bank
                && self.effects.reads.contains(register)
                && self.effects.writes.contains(register)
        };
        let implicit = self.implicit.iter().any(|register| feeds(register.bank, register));
        // What goes to the stack and what comes from elsewhere are two places.
        let in_place = self.effects.reads_memory && self.effects.writes_memory;
        let feeding = if in_place && !self.effects.moves_stack {
            Feeding::Forwarding
        } else if self.roles.iter().any(|(read, written)| *read && *written)
            || self.pair(template).is_some()
        {
            Feeding::Register
        } else if implicit {
            Feeding::Implicit
        } else if self.effects.reads_memory && self.chased(template).is_some() {
            Feeding::Address
        } else if self.effects.flags_feed_it {
            Feeding::Flags
        } else {
            return Err(self.no_chain());
        };
        Ok(Chain { feeding, tries: self.tries(form, feeding)? })
    }

    fn tries(&self, form: &InstructionForm, feeding: Feeding) -> Result<Vec<Try>, String> {
        let template = &form.template;
        if let Some(bytes) = &form.bytes {
            return Ok(vec![Try { line: Line::Bytes(bytes.clone()), copies: 1, chased: None }]);
        }
        let numbers = self.numbers(template, 0, RegisterSet::Whole);
        let mut numbers = numbers.ok_or("there are too few registers for its operands")?;
        if let Some((written, read)) = self.pair(template) {
            if self.moves {
                return Ok(vec![self.there_and_back(template, numbers, written, read)?]);
            }
            numbers[read] = numbers[written];
        }
        let line = |place| Line::Text(template.text(&numbers, place));
        if feeding != Feeding::Address {
            return Ok(vec![Try { line: line(MemoryAddress::Data(0)), copies: 1, chased: None }]);
        }
        let Some(at) = self.chased(template) else { return Ok(Vec::new()) };
        let register = numbers[at];
        let chase = |place, holds_address, memory_holds_address| Try {
            line: line(place),
            copies: 1,
            chased: Some(Chased { register, holds_address, memory_holds_address }),
        };
        let mut tries = Vec::new();
        if template.operands()[at] == Operand::Register(RegisterClass::General, 64) {
            tries.push(chase(MemoryAddress::At(register), true, true));
            tries.push(chase(MemoryAddress::At(register), true, false));
        }
        tries.push(chase(MemoryAddress::Index(register), false, false));
        Ok(tries)
    }

    /// A move into a second register and one back. A move of a register to itself is another matter: some
    /// processors rename it away, and some no longer do what they do with every other move.
    fn there_and_back(
        &self,
        template: &Template,
        mut numbers: Vec<u8>,
        written: usize,
        read: usize,
    ) -> Result<Try, String> {
        let others = (1..=16).filter_map(|copy| self.numbers(template, copy, RegisterSet::Whole));
        let mut others = others.map(|it| it[written]);
        let second = others.find(|other| *other != numbers[written]);
        numbers[read] = second.ok_or("there is no second register to move to")?;
        let there = template.text(&numbers, MemoryAddress::Data(0));
        numbers.swap(written, read);
        let back = template.text(&numbers, MemoryAddress::Data(0));
        Ok(Try { line: Line::Text([there, back].join(BETWEEN)), copies: 2, chased: None })
    }

    /// An operand that is only written and one of its bank that is only read: one register for both.
    fn pair(&self, template: &Template) -> Option<(usize, usize)> {
        if self.roles.iter().any(|(read, written)| *read && *written) {
            return None;
        }
        let of = |role| {
            let is = move |at: &usize| self.roles[*at] == role;
            (0..self.roles.len()).filter(is)
        };
        let bank = |at| template.bank(at);
        of((false, true))
            .flat_map(|written| of((true, false)).map(move |read| (written, read)))
            .find(|(written, read)| bank(*written) == bank(*read))
    }

    /// The operand that is loaded and can be an address.
    fn chased(&self, template: &Template) -> Option<usize> {
        template.memory()?;
        (0..self.roles.len())
            .find(|at| self.roles[*at].1 && template.bank(*at) == Some(RegisterClass::General))
    }

    fn no_chain(&self) -> String {
        let writes_register = self.roles.iter().any(|(_, written)| *written)
            || self.implicit.iter().any(|register| self.effects.writes.contains(register));
        match (writes_register, self.effects.writes_memory) {
            (true, _) => "what it writes feeds none of its own operands".into(),
            (false, true) => "it only stores: nothing that it writes is read by it".into(),
            (false, false) => "it writes no register".into(),
        }
    }

    /// The form and the one that leads its output back, one after another on the same registers and memory.
    pub(crate) fn round_trip(&self, form: &InstructionForm) -> Option<[Line; 2]> {
        let back = form.back.as_ref()?;
        let one = |template: &Template| {
            // One register of each bank: what the one writes the other reads.
            let numbers = (0..template.operands().len())
                .map(|at| pool(template.bank(at)).next().unwrap_or_default())
                .collect::<Vec<u8>>();
            Line::Text(template.text(&numbers, MemoryAddress::Data(0)))
        };
        Some([one(&form.template), one(back)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{form, plan};
    use super::*;

    fn chain(text: &str) -> (Feeding, Vec<String>) {
        let form = form(&format!("form = \"{text}\""));
        let chain = plan(&form).chain(&form).unwrap();
        let text = |it: Try| match it.line {
            Line::Text(text) => text,
            Line::Bytes(bytes) => format!("{bytes:?}"),
        };
        (chain.feeding, chain.tries.into_iter().map(text).collect())
    }

    #[test]
    fn outputs_feed_inputs() {
        assert_eq!(chain("imul R64, R64"), (Feeding::Register, vec!["imul rsi, rax".into()]));
        let (feeding, tries) = chain("vaddpd YMM, YMM, YMM");
        assert_eq!((feeding, tries), (Feeding::Register, vec!["vaddpd ymm1, ymm1, ymm0".into()]));
        assert_eq!(chain("mul R64").0, Feeding::Implicit);
        assert_eq!(chain("cmc").0, Feeding::Flags);
        assert_eq!(chain("add M64, R64").0, Feeding::Forwarding);
        let (feeding, tries) = chain("mov R64, M64");
        assert_eq!(feeding, Feeding::Address);
        assert_eq!(tries[0], "mov rsi, qword ptr [rsi]");
        assert_eq!(chain("movzx R32, M8").1, ["movzx esi, byte ptr [r14+rsi]"]);
    }

    #[test]
    fn moves_go_to_a_second_register_and_back() {
        for (text, links) in [
            ("mov R64, R64", "mov rsi, rdi; mov rdi, rsi"),
            ("mov R32, R32", "mov esi, edi; mov edi, esi"),
            ("movzx R32, R8", "movzx esi, dil; movzx edi, sil"),
            ("movsxd R64, R32", "movsxd rsi, edi; movsxd rdi, esi"),
            ("movaps XMM, XMM", "movaps xmm1, xmm2; movaps xmm2, xmm1"),
            ("movdqa XMM, XMM", "movdqa xmm1, xmm2; movdqa xmm2, xmm1"),
            ("vmovups YMM, YMM", "vmovups ymm1, ymm2; vmovups ymm2, ymm1"),
            ("movq MM, MM", "movq mm0, mm1; movq mm1, mm0"),
            ("bndmov BND, BND", "bndmov bnd0, bnd1; bndmov bnd1, bnd0"),
        ] {
            assert_eq!(chain(text), (Feeding::Register, vec![links.into()]));
        }
        // Each swaps two registers: a chain through both as it is.
        assert_eq!(chain("xchg R64, R64").1, ["xchg rsi, rdi"]);
        // What computes is fed its own result.
        assert_eq!(chain("popcnt R64, R64").1, ["popcnt rsi, rsi"]);
        assert_eq!(chain("cmove R64, R64").1, ["cmove rsi, rax"]);
    }

    #[test]
    fn forms_with_no_chain_say_why() {
        let why = |text: &str| {
            let form = form(&format!("form = \"{text}\""));
            plan(&form).chain(&form).unwrap_err()
        };
        assert!(why("mov M64, R64").contains("only stores"));
        assert!(why("cmp R64, R64").contains("writes no register"));
        assert!(why("movmskps R32, XMM").contains("feeds none"));
        assert!(why("push M64").contains("only stores"));
        let form = form("form = \"rep stosb\", reset_inputs = true");
        assert!(plan(&form).chain(&form).unwrap_err().contains("set anew"));
    }
}
