//! Chains: copies of a form that depend on each other, for its latency.

use std::fmt;

use super::list::InstructionForm;
use super::operand::{BETWEEN, MemoryAddress, Operand, Register, RegisterClass, Template};
use super::plan::{Line, Plan};
use super::register_set::{RegisterSet, pool};

/// Dependency between the copies of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependency {
    /// A register that is written and read.
    Register,
    /// A register that the instruction names implicitly, e.g. rax of `mul`.
    Implicit,
    /// The loaded value is the address of the next load.
    Address,
    /// The stored value is loaded again from the same address.
    Forwarding,
    /// Flags only.
    Flags,
}

impl fmt::Display for Dependency {
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

/// Chain of a form, with alternative links; the first that keeps its register stable is used.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chain {
    pub(crate) dependency: Dependency,
    pub(crate) links: Vec<LinkText>,
}

/// Link of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkText {
    pub(crate) line: Line,
    /// Number of copies of the form in the link.
    pub(crate) copies: usize,
    /// Initial state of a pointer chase.
    pub(crate) chased: Option<Chased>,
}

/// Initial state of a pointer chase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chased {
    pub(crate) register: u8,
    /// Whether the register contains the address of the data; it is 0 otherwise.
    pub(crate) holds_address: bool,
    /// Whether the memory contains the address of the data; it is 0 otherwise.
    pub(crate) memory_holds_address: bool,
}

impl Plan {
    /// Returns the chain of a form.
    ///
    /// # Errors
    /// Returns the reason if its copies cannot depend on each other.
    pub(crate) fn chain(&self, form: &InstructionForm) -> Result<Chain, String> {
        if form.reset_inputs {
            return Err("its registers are reset before each copy".into());
        }
        let template = &form.template;
        let is_read_and_written = |register: &Register| {
            self.effects.reads.contains(register) && self.effects.writes.contains(register)
        };
        let implicit = self.implicit.iter().any(is_read_and_written);
        // An instruction that moves the stack pointer reads and writes different addresses.
        let in_place = self.effects.reads_memory && self.effects.writes_memory;
        let dependency = if in_place && !self.effects.moves_stack {
            Dependency::Forwarding
        } else if self.roles.iter().any(|(read, written)| *read && *written)
            || self.pair(template).is_some()
        {
            Dependency::Register
        } else if implicit {
            Dependency::Implicit
        } else if self.effects.reads_memory && self.chased(template).is_some() {
            Dependency::Address
        } else if self.effects.flags_feed_it {
            Dependency::Flags
        } else {
            return Err(self.no_chain());
        };
        Ok(Chain { dependency, links: self.links(form, dependency)? })
    }

    fn links(
        &self,
        form: &InstructionForm,
        dependency: Dependency,
    ) -> Result<Vec<LinkText>, String> {
        let template = &form.template;
        if let Some(bytes) = &form.bytes {
            return Ok(vec![LinkText {
                line: Line::Bytes(bytes.clone()),
                copies: 1,
                chased: None,
            }]);
        }
        let numbers = self.numbers(template, 0, RegisterSet::Whole);
        let mut numbers = numbers.ok_or("too few registers for its operands")?;
        if let Some((written, read)) = self.pair(template) {
            if self.moves {
                return Ok(vec![self.there_and_back(template, numbers, written, read)?]);
            }
            numbers[read] = numbers[written];
        }
        let line = |address| Line::Text(template.text(&numbers, address));
        if dependency != Dependency::Address {
            return Ok(vec![LinkText {
                line: line(MemoryAddress::Data(0)),
                copies: 1,
                chased: None,
            }]);
        }
        let Some(at) = self.chased(template) else { return Ok(Vec::new()) };
        let register = numbers[at];
        let chase = |address, holds_address, memory_holds_address| LinkText {
            line: line(address),
            copies: 1,
            chased: Some(Chased { register, holds_address, memory_holds_address }),
        };
        let mut links = Vec::new();
        if template.operands()[at] == Operand::Register(RegisterClass::General, 64) {
            links.push(chase(MemoryAddress::At(register), true, true));
            links.push(chase(MemoryAddress::At(register), true, false));
        }
        links.push(chase(MemoryAddress::Index(register), false, false));
        Ok(links)
    }

    /// Returns a move into a second register and one back. A move of a register to itself is not representative: some
    /// CPUs eliminate it, others do not eliminate it although they eliminate other moves.
    fn there_and_back(
        &self,
        template: &Template,
        mut numbers: Vec<u8>,
        written: usize,
        read: usize,
    ) -> Result<LinkText, String> {
        let others = (1..=16).filter_map(|copy| self.numbers(template, copy, RegisterSet::Whole));
        let mut others = others.map(|it| it[written]);
        let second = others.find(|other| *other != numbers[written]);
        numbers[read] = second.ok_or("there is no second register for the move")?;
        let there = template.text(&numbers, MemoryAddress::Data(0));
        numbers.swap(written, read);
        let back = template.text(&numbers, MemoryAddress::Data(0));
        Ok(LinkText { line: Line::Text([there, back].join(BETWEEN)), copies: 2, chased: None })
    }

    /// Returns a write-only and a read-only operand of the same class, which can be the same register.
    fn pair(&self, template: &Template) -> Option<(usize, usize)> {
        if self.roles.iter().any(|(read, written)| *read && *written) {
            return None;
        }
        let with_role = |role| {
            let is = move |at: &usize| self.roles[*at] == role;
            (0..self.roles.len()).filter(is)
        };
        let class = |at| template.class(at);
        with_role((false, true))
            .flat_map(|written| with_role((true, false)).map(move |read| (written, read)))
            .find(|(written, read)| class(*written) == class(*read))
    }

    /// Returns the operand that is loaded and can be an address.
    fn chased(&self, template: &Template) -> Option<usize> {
        template.memory()?;
        (0..self.roles.len())
            .find(|at| self.roles[*at].1 && template.class(*at) == Some(RegisterClass::General))
    }

    fn no_chain(&self) -> String {
        let writes_register = self.roles.iter().any(|(_, written)| *written)
            || self.implicit.iter().any(|register| self.effects.writes.contains(register));
        match (writes_register, self.effects.writes_memory) {
            (true, _) => "its output is not one of its inputs".into(),
            (false, true) => "it only stores".into(),
            (false, false) => "it writes no register".into(),
        }
    }

    /// Returns the form and the one that moves its output back to its input, on the same registers and memory.
    pub(crate) fn round_trip(&self, form: &InstructionForm) -> Option<[Line; 2]> {
        let back = form.back.as_ref()?;
        let one = |template: &Template| {
            // One register per class, so that each reads what the other writes.
            let numbers = (0..template.operands().len())
                .map(|at| pool(template.class(at)).next().unwrap_or_default())
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

    fn chain(text: &str) -> (Dependency, Vec<String>) {
        let form = form(&format!("form = \"{text}\""));
        let chain = plan(&form).chain(&form).unwrap();
        let text = |it: LinkText| match it.line {
            Line::Text(text) => text,
            Line::Bytes(bytes) => format!("{bytes:?}"),
        };
        (chain.dependency, chain.links.into_iter().map(text).collect())
    }

    #[test]
    fn a_chain_uses_the_first_possible_dependency() {
        assert_eq!(chain("imul R64, R64"), (Dependency::Register, vec!["imul rsi, rax".into()]));
        let (dependency, links) = chain("vaddpd YMM, YMM, YMM");
        assert_eq!(
            (dependency, links),
            (Dependency::Register, vec!["vaddpd ymm1, ymm1, ymm0".into()])
        );
        assert_eq!(chain("mul R64").0, Dependency::Implicit);
        assert_eq!(chain("cmc").0, Dependency::Flags);
        assert_eq!(chain("add M64, R64").0, Dependency::Forwarding);
        let (dependency, links) = chain("mov R64, M64");
        assert_eq!(dependency, Dependency::Address);
        assert_eq!(links[0], "mov rsi, qword ptr [rsi]");
        assert_eq!(chain("movzx R32, M8").1, ["movzx esi, byte ptr [r14+rsi]"]);
    }

    #[test]
    fn a_chain_of_moves_uses_two_registers() {
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
            assert_eq!(chain(text), (Dependency::Register, vec![links.into()]));
        }
        // An exchange is a chain through both registers.
        assert_eq!(chain("xchg R64, R64").1, ["xchg rsi, rdi"]);
        // A computation uses its result as its input.
        assert_eq!(chain("popcnt R64, R64").1, ["popcnt rsi, rsi"]);
        assert_eq!(chain("cmove R64, R64").1, ["cmove rsi, rax"]);
    }

    #[test]
    fn bounds_return_through_memory() {
        if let Err(failure) = crate::assembler::AS.find() {
            return machine::untested::note("bounds: round trips of MPX", &failure);
        }
        let list = super::super::list::BUILT_IN.as_ref().unwrap();
        let forms = list.forms.iter().filter(|form| form.class == "mpx");
        let trips: Vec<[String; 2]> = forms
            .filter_map(|form| plan(form).round_trip(form))
            .map(|trip| {
                for code in super::super::prepared::assembled(trip.clone()) {
                    let effects = super::super::effects::Effects::of(&code.unwrap()).unwrap();
                    assert!(effects.features.contains(&iced_x86::CpuidFeature::MPX), "{trip:?}");
                }
                trip.map(|line| if let Line::Text(text) = line { text } else { String::new() })
            })
            .collect();
        let [load, store] = ["bndmov bnd0, xmmword ptr [r14]", "bndmov xmmword ptr [r14], bnd0"];
        let [from_table, to_table] = ["bndldx bnd0, [r14+rsi]", "bndstx [r14+rsi], bnd0"];
        let to_index = "bndmov xmmword ptr [r14], bnd0; mov rsi, qword ptr [r14]; and rsi, 0";
        assert_eq!(
            trips,
            [
                ["bndmk bnd0, [r14+rsi]", to_index],
                [load, store],
                [store, load],
                [from_table, to_table],
                [to_table, from_table],
            ]
        );
    }

    #[test]
    fn a_form_without_a_chain_has_a_reason() {
        let why = |text: &str| {
            let form = form(&format!("form = \"{text}\""));
            plan(&form).chain(&form).unwrap_err()
        };
        assert!(why("mov M64, R64").contains("only stores"));
        assert!(why("cmp R64, R64").contains("writes no register"));
        assert!(why("movmskps R32, XMM").contains("not one of its inputs"));
        assert!(why("push M64").contains("only stores"));
        let form = form("form = \"rep stosb\", reset_inputs = true");
        assert!(plan(&form).chain(&form).unwrap_err().contains("reset"));
    }
}
