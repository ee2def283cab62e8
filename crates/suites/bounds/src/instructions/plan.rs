//! Registers and memory of the copies of a form.

use std::collections::BTreeSet;

use super::effects::{Effects, RESERVED};
use super::feature;
use super::list::{InstructionForm, SETTABLE_REGISTERS};
use super::operand::{MemoryAddress, Register, RegisterClass, Template};
use super::register_set::{RegisterSet, pool};
use super::value::ElementType;
use crate::timing::{Data, State};

/// Minimum number of copies in a set.
const MIN_COPIES: usize = 8;

/// Text to assemble, or the bytes in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    Bytes(Vec<u8>),
}

/// Effects of a form and the registers of its operands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(super) effects: Effects,
    /// Whether each operand is read, and whether it is written.
    pub(super) roles: Vec<(bool, bool)>,
    /// Registers that the form uses but that are not operands.
    pub(super) implicit: BTreeSet<Register>,
    /// Whether its mnemonic is that of a move.
    pub(super) moves: bool,
}

/// Returns the line for analysing a form: each operand is a different register.
pub(crate) fn analysis_line(form: &InstructionForm) -> Line {
    match &form.bytes {
        Some(bytes) => Line::Bytes(bytes.clone()),
        None => Line::Text(
            form.template.text(&distinct_numbers(&form.template), MemoryAddress::Data(0)),
        ),
    }
}

/// Returns whether an instruction is a move, which CPUs may execute by renaming registers.
fn is_move(text: &str) -> bool {
    ["mov", "vmov", "kmov", "bndmov"].iter().any(|name| text.starts_with(name))
}

fn distinct_numbers(template: &Template) -> Vec<u8> {
    let numbers = 0..template.operands().len();
    numbers.map(|at| pool(template.class(at)).nth(at + 1).unwrap_or_default()).collect()
}

impl Plan {
    /// Creates the plan from the effects of [`analysis_line`].
    pub(crate) fn new(form: &InstructionForm, effects: Effects) -> Self {
        let template = &form.template;
        let first: Vec<Option<Register>> = distinct_numbers(template)
            .into_iter()
            .enumerate()
            .map(|(at, number)| Some(Register { class: template.class(at)?, number }))
            .collect();
        let role = |register: &Option<Register>| {
            register.as_ref().map_or((false, false), |register| {
                (effects.reads.contains(register), effects.writes.contains(register))
            })
        };
        let roles = first.iter().map(role).collect();
        let is_implicit = |register: &&Register| {
            let reserved =
                register.class == RegisterClass::General && RESERVED.contains(&register.number);
            !reserved && !first.contains(&Some(**register))
        };
        let implicit = effects.reads.union(&effects.writes).filter(is_implicit).copied().collect();
        Self { effects, roles, implicit, moves: is_move(&form.text) }
    }

    /// Returns the effects of the form.
    pub(crate) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Returns the registers for read-only operands, which no copy writes, and those for the other operands.
    fn registers(
        &self,
        template: &Template,
        class: RegisterClass,
        registers: RegisterSet,
    ) -> (Vec<u8>, Vec<u8>) {
        let free = |number: &u8| {
            registers.has(class, *number)
                && !self.implicit.contains(&Register { class, number: *number })
        };
        let mut free: Vec<u8> = pool(Some(class)).filter(free).collect();
        let is_source = |at: &usize| template.class(*at) == Some(class) && !self.roles[*at].1;
        let count = (0..self.roles.len()).filter(is_source).count();
        let sources = free.split_off(free.len().saturating_sub(count));
        (sources, free)
    }

    /// Returns the operand registers of a copy; `None` if there are too few.
    pub(super) fn numbers(
        &self,
        template: &Template,
        copy: usize,
        registers: RegisterSet,
    ) -> Option<Vec<u8>> {
        let mut numbers = Vec::new();
        for at in 0..self.roles.len() {
            let Some(class) = template.class(at) else {
                numbers.push(0);
                continue;
            };
            let same = |it: &usize| {
                template.class(*it) == Some(class) && self.roles[*it].1 == self.roles[at].1
            };
            let nth = (0..at).filter(same).count();
            let all = (0..self.roles.len()).filter(same).count();
            let (sources, others) = self.registers(template, class, registers);
            numbers.push(match self.roles[at].1 {
                false => *sources.get(nth)?,
                true if others.len() < all => return None,
                true => others[(copy * all + nth) % others.len()],
            });
        }
        Some(numbers)
    }

    /// Returns a set of independent copies of a form.
    ///
    /// # Errors
    /// Returns the reason if there are too few registers.
    pub(crate) fn independent(
        &self,
        form: &InstructionForm,
        registers: RegisterSet,
    ) -> Result<Vec<Line>, String> {
        if let Some(bytes) = &form.bytes {
            return Ok(vec![Line::Bytes(bytes.clone())]);
        }
        let template = &form.template;
        let few = "too few registers for its operands";
        let first = self.numbers(template, 0, registers).ok_or(few)?;
        let again =
            |copy: &usize| self.numbers(template, *copy, registers).as_ref() == Some(&first);
        let sets = (1..=16).find(again).unwrap_or(1);
        let copies = sets * MIN_COPIES.div_ceil(sets);
        let line = |copy| {
            let numbers = self.numbers(template, copy, registers).ok_or(few)?;
            Ok(Line::Text(
                template.text(&numbers, MemoryAddress::Data(registers.offset(copy, template))),
            ))
        };
        (0..copies).map(line).collect()
    }

    /// Returns the code that makes a copy independent of the previous one if both use the same implicit registers or
    /// flags.
    pub(crate) fn breakers(&self, state: &State) -> Vec<u8> {
        let both = |register: &&Register| {
            register.class == RegisterClass::General
                && self.effects.reads.contains(register)
                && self.effects.writes.contains(register)
        };
        let mut code = Vec::new();
        for register in self.implicit.iter().filter(both) {
            let value = state.general(register.number);
            let (high, low) = (register.number >> 3, register.number & 7);
            match u32::try_from(value) {
                // mov r32, imm32, which clears the upper half
                Ok(value) => {
                    code.extend((high == 1).then_some(0x41));
                    code.push(0xB8 + low);
                    code.extend(value.to_le_bytes());
                }
                // mov r64, imm64
                Err(_) => {
                    code.extend([0x48 + high, 0xB8 + low]);
                    code.extend(value.to_le_bytes());
                }
            }
        }
        if self.effects.flags_feed_it {
            code.extend([0x4D, 0x85, 0xED]); // test r13, r13
        }
        code
    }

    /// Returns whether the form uses implicit general registers.
    pub(crate) fn names_general(&self) -> bool {
        self.implicit.iter().any(|register| register.class == RegisterClass::General)
    }

    /// Returns the initial registers.
    pub(crate) fn state(
        &self,
        form: &InstructionForm,
        data: &Data,
        registers: RegisterSet,
    ) -> State {
        let mut state = State::new(data);
        state.widen(feature::widest(&self.effects.features));
        let bits =
            |key: &str| form.set.get(key).map(|value| value.bits(form.elements, data.address()));
        let vector = bits("vector").unwrap_or_else(|| form.elements.bits(1.0));
        (0..32).for_each(|number| state.set_vector(number, vector));
        let source = bits("source");
        for number in self.registers(&form.template, RegisterClass::Vector, registers).0 {
            state.set_vector(number, source.unwrap_or_else(|| form.elements.bits(1.0)));
        }
        for number in self.registers(&form.template, RegisterClass::General, registers).0 {
            state.set_general(number, source.unwrap_or(1));
        }
        if self.effects.features.iter().any(|it| feature::is_x87(*it)) {
            state.set_x87(vector, source.unwrap_or_else(|| form.elements.bits(1.0)));
        }
        for (name, number) in SETTABLE_REGISTERS {
            if let Some(value) = bits(name) {
                state.set_general(number, value);
            }
        }
        state
    }
}

/// Returns the initial value of each 8-byte word of the memory.
pub(crate) fn memory(form: &InstructionForm) -> u64 {
    let one = || if form.elements == ElementType::Integers { 1 } else { form.elements.bits(1.0) };
    form.set.get("memory").map_or_else(one, |value| value.bits(form.elements, 0))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::list::List;
    use super::super::prepared::assembled;
    use super::*;

    pub(in super::super) fn form(line: &str) -> InstructionForm {
        let text = format!("[[class]]\nname = \"mine\"\nforms = [\n{{ {line} }}\n]\n");
        List::read("mine.toml", &text).unwrap().forms.remove(0)
    }

    pub(in super::super) fn plan(form: &InstructionForm) -> Plan {
        let line = analysis_line(form);
        let code = assembled([line.clone()]).remove(0).unwrap();
        Plan::new(form, Effects::of(&code).unwrap())
    }

    fn independent(text: &str) -> Vec<Line> {
        let form = form(&format!("form = \"{text}\""));
        plan(&form).independent(&form, RegisterSet::Whole).unwrap()
    }

    #[test]
    fn independent_copies_write_different_registers_and_read_others() {
        let lines = independent("add R64, R64");
        assert_eq!(lines.len(), 11);
        assert_eq!(lines.iter().map(|line| format!("{line:?}")).collect::<BTreeSet<_>>().len(), 11);
        assert!(lines.iter().all(|line| *line != Line::Text("add rax, rax".into())));
        assert_eq!(independent("vaddpd YMM, YMM, YMM").len(), 14);
        assert_eq!(independent("lfence").len(), MIN_COPIES);
    }

    #[test]
    fn implicit_registers_are_reset_between_copies() {
        let data = Data::new().unwrap();
        let form = form("form = \"div R64\", set = { rax = -1, rdx = 6 }");
        let plan = plan(&form);
        let code = plan.breakers(&plan.state(&form, &data, RegisterSet::Whole));
        let expected = [&[0x48, 0xB8][..], &[0xFF; 8], &[0xBA, 6, 0, 0, 0]].concat();
        assert_eq!(code, expected);
    }
}
