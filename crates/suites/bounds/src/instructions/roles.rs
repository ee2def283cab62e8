//! Roles of the operands of forms, for exports to other tools.

use std::collections::BTreeMap;

use super::effects::Effects;
use super::list::{BUILT_IN, InstructionForm};
use super::operand::Operand;
use super::plan::{Plan, analysis_line};
use super::prepared::assembled;

/// Whether an operand is read, and whether it is written.
pub type OperandRole = (bool, bool);

/// Returns the roles of the operands of each form of the built-in list, by level, from left to right: registers, masks and
/// memory. Forms that are given by their bytes or that do not assemble here are omitted.
pub fn operand_roles() -> BTreeMap<String, Vec<OperandRole>> {
    // If the list is invalid, measuring reports the fault with its line.
    let Ok(list) = BUILT_IN.as_ref() else { return BTreeMap::new() };
    let codes = assembled(list.forms.iter().map(analysis_line));
    let of_form = |(form, code): (&InstructionForm, Result<Vec<u8>, _>)| {
        let effects = Effects::of(&code.ok()?).ok()?;
        form.bytes.is_none().then(|| (form.level.clone(), roles(form, effects)))
    };
    list.forms.iter().zip(codes).filter_map(of_form).collect()
}

fn roles(form: &InstructionForm, effects: Effects) -> Vec<OperandRole> {
    let memory = (effects.reads_memory, effects.writes_memory);
    let plan = Plan::new(form, effects);
    let operands = form.template.operands().iter().zip(&plan.roles);
    let role = |(operand, role): (&Operand, &OperandRole)| match operand {
        Operand::Memory(_) => memory,
        Operand::Register(..) => *role,
    };
    operands.map(role).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read_and_written() {
        let roles = operand_roles();
        let (read, written, both) = ((true, false), (false, true), (true, true));
        for (level, expected) in [
            ("add R64 R64", vec![both, read]),
            ("mov R64 M64", vec![written, read]),
            ("mov M64 R64", vec![written, read]),
            ("add M64 R64", vec![both, read]),
            ("cmp R64 R64", vec![read, read]),
            ("vaddps YMM YMM YMM", vec![written, read, read]),
            ("vpaddd ZMM{K} ZMM ZMM", vec![both, read, read, read]),
            ("lea R64 [R64+R64*4]", vec![written, read, read]),
            ("nop", vec![]),
        ] {
            assert_eq!(roles.get(level), Some(&expected), "{level}");
        }
        assert!(roles.len() > 900, "{}", roles.len());
    }
}
