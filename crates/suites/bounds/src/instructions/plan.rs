//! Which registers and which memory the copies of a form use.

use std::collections::BTreeSet;

use super::effects::{Effects, RESERVED};
use super::feature;
use super::list::{InstructionForm, NAMED};
use super::operand::{MemoryAddress, Register, RegisterClass, Template};
use super::register_set::{RegisterSet, pool};
use super::value::Holds;
use crate::timing::{Data, State};

/// The fewest copies that differ.
const DIFFERENT: usize = 8;

/// What to assemble: a text, or the bytes that a list gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    Bytes(Vec<u8>),
}

/// A form with what it does and which registers it gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(super) effects: Effects,
    /// For each operand: whether it is read, and whether it is written.
    pub(super) roles: Vec<(bool, bool)>,
    /// Registers that the form names by itself.
    pub(super) implicit: BTreeSet<Register>,
    /// Whether it is a move, by its name.
    pub(super) moves: bool,
}

/// The line by which a form is first looked at: every operand a register of its own.
pub(crate) fn first_look(form: &InstructionForm) -> Line {
    match &form.bytes {
        Some(bytes) => Line::Bytes(bytes.clone()),
        None => {
            Line::Text(form.template.text(&first_numbers(&form.template), MemoryAddress::Data(0)))
        }
    }
}

/// Whether an instruction is one that processors may do by renaming registers.
fn is_move(text: &str) -> bool {
    ["mov", "vmov", "kmov", "bndmov"].iter().any(|name| text.starts_with(name))
}

fn first_numbers(template: &Template) -> Vec<u8> {
    let numbers = 0..template.operands().len();
    numbers.map(|at| pool(template.bank(at)).nth(at + 1).unwrap_or_default()).collect()
}

impl Plan {
    /// From what the first look showed.
    pub(crate) fn new(form: &InstructionForm, effects: Effects) -> Self {
        let template = &form.template;
        let first: Vec<Option<Register>> = first_numbers(template)
            .into_iter()
            .enumerate()
            .map(|(at, number)| Some(Register { bank: template.bank(at)?, number }))
            .collect();
        let role = |register: &Option<Register>| {
            register.as_ref().map_or((false, false), |register| {
                (effects.reads.contains(register), effects.writes.contains(register))
            })
        };
        let roles = first.iter().map(role).collect();
        let named = |register: &&Register| {
            let reserved =
                register.bank == RegisterClass::General && RESERVED.contains(&register.number);
            !reserved && !first.contains(&Some(**register))
        };
        let implicit = effects.reads.union(&effects.writes).filter(named).copied().collect();
        Self { effects, roles, implicit, moves: is_move(&form.text) }
    }

    /// What one instruction does.
    pub(crate) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The registers for operands that are only read, which nothing writes; and those for the others.
    fn registers(
        &self,
        template: &Template,
        bank: RegisterClass,
        share: RegisterSet,
    ) -> (Vec<u8>, Vec<u8>) {
        let free = |number: &u8| {
            share.has(bank, *number) && !self.implicit.contains(&Register { bank, number: *number })
        };
        let mut free: Vec<u8> = pool(Some(bank)).filter(free).collect();
        let is_source = |at: &usize| template.bank(*at) == Some(bank) && !self.roles[*at].1;
        let wanted = (0..self.roles.len()).filter(is_source).count();
        let sources = free.split_off(free.len().saturating_sub(wanted));
        (sources, free)
    }

    /// The registers of the copy of a number; nothing where there are too few.
    pub(super) fn numbers(
        &self,
        template: &Template,
        copy: usize,
        share: RegisterSet,
    ) -> Option<Vec<u8>> {
        let mut numbers = Vec::new();
        for at in 0..self.roles.len() {
            let Some(bank) = template.bank(at) else {
                numbers.push(0);
                continue;
            };
            let same = |it: &usize| {
                template.bank(*it) == Some(bank) && self.roles[*it].1 == self.roles[at].1
            };
            let nth = (0..at).filter(same).count();
            let all = (0..self.roles.len()).filter(same).count();
            let (sources, others) = self.registers(template, bank, share);
            numbers.push(match self.roles[at].1 {
                false => *sources.get(nth)?,
                true if others.len() < all => return None,
                true => others[(copy * all + nth) % others.len()],
            });
        }
        Some(numbers)
    }

    /// Copies of a form that do not wait for one another; how often they differ.
    ///
    /// # Errors
    /// Where there are too few registers.
    pub(crate) fn independent(
        &self,
        form: &InstructionForm,
        share: RegisterSet,
    ) -> Result<Vec<Line>, String> {
        if let Some(bytes) = &form.bytes {
            return Ok(vec![Line::Bytes(bytes.clone())]);
        }
        let template = &form.template;
        let few = "there are too few registers for its operands";
        let first = self.numbers(template, 0, share).ok_or(few)?;
        let again = |copy: &usize| self.numbers(template, *copy, share).as_ref() == Some(&first);
        let sets = (1..=16).find(again).unwrap_or(1);
        let copies = sets * DIFFERENT.div_ceil(sets);
        let line = |copy| {
            let numbers = self.numbers(template, copy, share).ok_or(few)?;
            Ok(Line::Text(
                template.text(&numbers, MemoryAddress::Data(share.place(copy, template))),
            ))
        };
        (0..copies).map(line).collect()
    }

    /// What makes a copy independent of the one before where both name the same registers or flags.
    pub(crate) fn breakers(&self, state: &State) -> Vec<u8> {
        let both = |register: &&Register| {
            register.bank == RegisterClass::General
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

    /// Whether the form names a general register by itself that another form may name too.
    pub(crate) fn names_general(&self) -> bool {
        self.implicit.iter().any(|register| register.bank == RegisterClass::General)
    }

    /// What registers hold at first.
    pub(crate) fn state(&self, form: &InstructionForm, data: &Data, share: RegisterSet) -> State {
        let mut state = State::new(data);
        state.widen(feature::widest(&self.effects.features));
        let bits =
            |key: &str| form.set.get(key).map(|value| value.bits(form.holds, data.address()));
        let vector = bits("vector").unwrap_or_else(|| form.holds.bits(1.0));
        (0..32).for_each(|number| state.set_vector(number, vector));
        let source = bits("source");
        for number in self.registers(&form.template, RegisterClass::Vector, share).0 {
            state.set_vector(number, source.unwrap_or_else(|| form.holds.bits(1.0)));
        }
        for number in self.registers(&form.template, RegisterClass::General, share).0 {
            state.set_general(number, source.unwrap_or(1));
        }
        if self.effects.features.iter().any(|it| feature::is_x87(*it)) {
            state.set_x87(vector, source.unwrap_or_else(|| form.holds.bits(1.0)));
        }
        for (name, number) in NAMED {
            if let Some(value) = bits(name) {
                state.set_general(number, value);
            }
        }
        state
    }
}

/// What every 8 bytes of the memory hold at first.
pub(crate) fn memory(form: &InstructionForm) -> u64 {
    let one = || if form.holds == Holds::Integers { 1 } else { form.holds.bits(1.0) };
    form.set.get("memory").map_or_else(one, |value| value.bits(form.holds, 0))
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
        let line = first_look(form);
        let code = assembled([line.clone()]).remove(0).unwrap();
        Plan::new(form, Effects::of(&code).unwrap())
    }

    fn independent(text: &str) -> Vec<Line> {
        let form = form(&format!("form = \"{text}\""));
        plan(&form).independent(&form, RegisterSet::Whole).unwrap()
    }

    #[test]
    fn independent_copies_write_registers_of_their_own_and_read_others() {
        let lines = independent("add R64, R64");
        assert_eq!(lines.len(), 11);
        assert_eq!(lines.iter().map(|line| format!("{line:?}")).collect::<BTreeSet<_>>().len(), 11);
        assert!(lines.iter().all(|line| *line != Line::Text("add rax, rax".into())));
        assert_eq!(independent("vaddpd YMM, YMM, YMM").len(), 14);
        assert_eq!(independent("lfence").len(), DIFFERENT);
    }

    #[test]
    fn what_names_its_registers_is_broken_apart() {
        let data = Data::new().unwrap();
        let form = form("form = \"div R64\", set = { rax = -1, rdx = 6 }");
        let plan = plan(&form);
        let code = plan.breakers(&plan.state(&form, &data, RegisterSet::Whole));
        let expected = [&[0x48, 0xB8][..], &[0xFF; 8], &[0xBA, 6, 0, 0, 0]].concat();
        assert_eq!(code, expected);
    }
}
