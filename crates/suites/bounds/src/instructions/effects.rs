//! Registers, memory and flags that the instructions of a form read and write, decoded from their machine code.

use std::collections::BTreeSet;

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess,
    Register as Named, RflagsBits,
};

use super::operand::{Register, RegisterClass};

/// Number of the stack pointer.
const STACK: u8 = 4;
/// Numbers of the general registers that the loop uses: the state, the address of the data, the remaining loops.
pub(crate) const RESERVED: [u8; 4] = [STACK, 13, 14, 15];

/// Effects of the instructions of a form.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Effects {
    pub(crate) reads: BTreeSet<Register>,
    pub(crate) writes: BTreeSet<Register>,
    pub(crate) reads_memory: bool,
    pub(crate) writes_memory: bool,
    /// Whether an instruction reads flags that it also changes.
    pub(crate) flags_feed_it: bool,
    pub(crate) moves_stack: bool,
    /// Number of instructions.
    pub(crate) instructions: u64,
    /// CPU features that are required.
    pub(crate) features: Vec<CpuidFeature>,
}

impl Effects {
    /// Decodes machine code.
    ///
    /// # Errors
    /// Returns the reason if the code is invalid, privileged, or writes a reserved register.
    pub(crate) fn of(code: &[u8]) -> Result<Self, String> {
        let mut decoder = Decoder::new(64, code, DecoderOptions::MPX);
        let (mut effects, mut moves_x87) = (Self::default(), false);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                let shown: String = code.iter().map(|byte| format!("{byte:02X} ")).collect();
                return Err(format!("{shown}is not an instruction"));
            }
            if instruction.is_privileged() {
                return Err("it is a privileged instruction".into());
            }
            moves_x87 |= instruction.fpu_stack_increment_info().increment() != 0;
            effects.add(Self::of_instruction(&instruction));
        }
        if moves_x87 {
            // The same stack position is a different register before and after.
            effects.reads.retain(|register| register.class != RegisterClass::X87);
            effects.writes.retain(|register| register.class != RegisterClass::X87);
        }
        let reserved = effects.writes.iter().find(|register| {
            register.class == RegisterClass::General
                && RESERVED.contains(&register.number)
                && register.number != STACK
        });
        match reserved {
            Some(register) => {
                let name = super::operand::general(register.number, 64);
                Err(format!("it writes {name}, which the loop uses"))
            }
            None => Ok(effects),
        }
    }

    /// Adds the effects of the next instruction. A register that was written before is not an input.
    fn add(&mut self, next: Self) {
        self.reads.extend(next.reads.difference(&self.writes).copied().collect::<Vec<_>>());
        self.writes.extend(next.writes);
        self.reads_memory |= next.reads_memory;
        self.writes_memory |= next.writes_memory;
        self.flags_feed_it |= next.flags_feed_it;
        self.moves_stack |= next.moves_stack;
        self.instructions += next.instructions;
        self.features.extend(next.features);
    }

    fn of_instruction(instruction: &Instruction) -> Self {
        let mut effects = Self {
            flags_feed_it: feeds_itself(instruction),
            features: instruction.cpuid_features().to_vec(),
            instructions: 1,
            ..Self::default()
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        for used in info.used_registers() {
            let Some(register) = register(used.register()) else { continue };
            let (reads, writes) = access(used.access());
            if register == (Register { class: RegisterClass::General, number: STACK }) {
                effects.moves_stack |= writes;
                continue;
            }
            if reads {
                effects.reads.insert(register);
            }
            if writes {
                effects.writes.insert(register);
            }
        }
        for used in info.used_memory() {
            let (reads, writes) = access(used.access());
            effects.reads_memory |= reads;
            effects.writes_memory |= writes;
        }
        effects
    }
}

fn feeds_itself(instruction: &Instruction) -> bool {
    let read = instruction.rflags_read();
    // The direction flag is not a result of arithmetic.
    let changed = instruction.rflags_modified() & !RflagsBits::DF;
    read & changed != 0
}

/// Returns whether an access may read, and whether it may write.
fn access(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write => (false, true),
        // A conditional write keeps the old value otherwise, and so depends on it.
        OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// Returns a register in its full width.
fn register(named: Named) -> Option<Register> {
    let full = named.full_register();
    let of = |class, first: Named| {
        let number = (full as usize).checked_sub(first as usize)?;
        Some(Register { class, number: u8::try_from(number).ok()? })
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the decoder has hundreds of registers")]
    match full {
        _ if full.is_gpr64() => of(RegisterClass::General, Named::RAX),
        _ if full.is_zmm() => of(RegisterClass::Vector, Named::ZMM0),
        _ if full.is_mm() => of(RegisterClass::Mmx, Named::MM0),
        _ if full.is_k() => of(RegisterClass::Mask, Named::K0),
        _ if full.is_bnd() => of(RegisterClass::Bounds, Named::BND0),
        _ if full.is_st() => of(RegisterClass::X87, Named::ST0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(number: u8) -> Register {
        Register { class: RegisterClass::General, number }
    }

    #[test]
    fn an_addition_reads_two_registers_and_writes_one() {
        let effects = Effects::of(&[0x48, 0x01, 0xD8]).unwrap(); // add rax, rbx
        assert_eq!(effects.reads, [general(0), general(3)].into());
        assert_eq!(effects.writes, [general(0)].into());
        assert!(!effects.flags_feed_it && !effects.reads_memory && !effects.moves_stack);
    }

    #[test]
    fn adc_depends_on_its_flags_and_push_moves_the_stack() {
        assert!(Effects::of(&[0x48, 0x11, 0xD8]).unwrap().flags_feed_it); // adc rax, rbx
        let push = Effects::of(&[0x50]).unwrap(); // push rax
        assert!(push.moves_stack && push.writes_memory && push.writes.is_empty());
    }

    #[test]
    fn bounds_registers_are_decoded() {
        let effects = Effects::of(&[0xF3, 0x0F, 0x1A, 0xC0]).unwrap(); // bndcl bnd0, rax
        assert_eq!(effects.features, [CpuidFeature::MPX]);
        assert!(effects.reads.contains(&Register { class: RegisterClass::Bounds, number: 0 }));
    }

    #[test]
    fn inputs_of_several_instructions_exclude_what_they_wrote_before() {
        // mov rax, rbx; add rax, rcx
        let effects = Effects::of(&[0x48, 0x89, 0xD8, 0x48, 0x01, 0xC8]).unwrap();
        assert_eq!(effects.reads, [general(1), general(3)].into());
        assert_eq!((effects.writes, effects.instructions), ([general(0)].into(), 2));
        // call, ret, jmp
        let pair = Effects::of(&[0xE8, 2, 0, 0, 0, 0xEB, 1, 0xC3]).unwrap();
        assert!(pair.moves_stack && pair.instructions == 3);
    }

    #[test]
    fn x87_registers_are_known_unless_the_stack_moves() {
        let st = |number| Register { class: RegisterClass::X87, number };
        let add = Effects::of(&[0xDC, 0xC3]).unwrap(); // fadd st(3), st(0)
        assert_eq!((add.reads, add.writes), ([st(0), st(3)].into(), [st(3)].into()));
        // fld st(1); fsqrt; fstp st(0)
        let root = Effects::of(&[0xD9, 0xC1, 0xD9, 0xFA, 0xDD, 0xD8]).unwrap();
        assert!(root.reads.is_empty() && root.writes.is_empty() && root.instructions == 3);
    }

    #[test]
    fn invalid_privileged_and_reserved_register_code_is_rejected() {
        assert!(Effects::of(&[0x06]).unwrap_err().contains("not an instruction"));
        assert!(Effects::of(&[0xF4]).unwrap_err().contains("privileged")); // hlt
        assert!(Effects::of(&[0x49, 0xFF, 0xC7]).unwrap_err().contains("r15")); // inc r15
    }

    proptest::proptest! {
        #[test]
        fn decoding_does_not_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..16)) {
            let _ = Effects::of(&bytes);
        }
    }
}
