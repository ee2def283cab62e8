//! What an instruction reads and writes, by its machine code.

use std::collections::BTreeSet;

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess,
    Register as Named, RflagsBits,
};

use super::operand::{Bank, Register};

/// The general register of the stack pointer.
const STACK: u8 = 4;
/// The general registers that the engine itself uses: its state, the data's address, the loops left.
pub(crate) const RESERVED: [u8; 4] = [STACK, 13, 14, 15];

/// What one instruction does.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Effects {
    pub(crate) reads: BTreeSet<Register>,
    pub(crate) writes: BTreeSet<Register>,
    pub(crate) reads_memory: bool,
    pub(crate) writes_memory: bool,
    /// Whether it reads flags that it also changes.
    pub(crate) flags_feed_it: bool,
    pub(crate) moves_stack: bool,
    /// How many instructions it is.
    pub(crate) instructions: u64,
    /// What the processor must have.
    pub(crate) features: &'static [CpuidFeature],
}

impl Effects {
    /// Of machine code that is one instruction.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(code: &[u8]) -> Result<Self, String> {
        let mut decoder = Decoder::new(64, code, DecoderOptions::MPX);
        let instruction = decoder.decode();
        let shown = || code.iter().map(|byte| format!("{byte:02X} ")).collect::<String>();
        if instruction.is_invalid() {
            return Err(format!("{}is no instruction", shown()));
        }
        if instruction.len() != code.len() {
            return Err(format!("{}is more than one instruction", shown()));
        }
        if instruction.is_privileged() {
            return Err("a program may not run it".into());
        }
        let effects = Self::of_instruction(&instruction);
        let own = effects.writes.iter().find(|register| {
            register.bank == Bank::General
                && RESERVED.contains(&register.number)
                && register.number != STACK
        });
        match own {
            Some(register) => {
                let name = super::operand::general(register.number, 64);
                Err(format!("it writes {name}, which the loop around it needs"))
            }
            None => Ok(effects),
        }
    }

    fn of_instruction(instruction: &Instruction) -> Self {
        let mut effects = Self {
            flags_feed_it: feeds_itself(instruction),
            features: instruction.cpuid_features(),
            instructions: 1,
            ..Self::default()
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        for used in info.used_registers() {
            let Some(register) = register(used.register()) else { continue };
            let (reads, writes) = access(used.access());
            if register == (Register { bank: Bank::General, number: STACK }) {
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
    // Which direction strings go is no result of arithmetic.
    let changed = instruction.rflags_modified() & !RflagsBits::DF;
    read & changed != 0
}

/// Whether an access reads, and whether it writes. What may read does.
fn access(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write => (false, true),
        // What is written only sometimes keeps the old value otherwise, and so reads it.
        OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => (false, false),
    }
}

/// The register in its full width.
fn register(named: Named) -> Option<Register> {
    let full = named.full_register();
    let of = |bank, first: Named| {
        let number = (full as usize).checked_sub(first as usize)?;
        Some(Register { bank, number: u8::try_from(number).ok()? })
    };
    match full {
        _ if full.is_gpr64() => of(Bank::General, Named::RAX),
        _ if full.is_zmm() => of(Bank::Vector, Named::ZMM0),
        _ if full.is_mm() => of(Bank::Mmx, Named::MM0),
        _ if full.is_k() => of(Bank::Mask, Named::K0),
        _ if full.is_bnd() => of(Bank::Bounds, Named::BND0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(number: u8) -> Register {
        Register { bank: Bank::General, number }
    }

    #[test]
    fn an_addition_reads_two_and_writes_one() {
        let effects = Effects::of(&[0x48, 0x01, 0xD8]).unwrap(); // add rax, rbx
        assert_eq!(effects.reads, [general(0), general(3)].into());
        assert_eq!(effects.writes, [general(0)].into());
        assert!(!effects.flags_feed_it && !effects.reads_memory && !effects.moves_stack);
    }

    #[test]
    fn carries_feed_themselves_and_pushes_move_the_stack() {
        assert!(Effects::of(&[0x48, 0x11, 0xD8]).unwrap().flags_feed_it); // adc rax, rbx
        let push = Effects::of(&[0x50]).unwrap(); // push rax
        assert!(push.moves_stack && push.writes_memory && push.writes.is_empty());
    }

    #[test]
    fn bounds_registers_are_seen() {
        let effects = Effects::of(&[0xF3, 0x0F, 0x1A, 0xC0]).unwrap(); // bndcl bnd0, rax
        assert_eq!(effects.features, [CpuidFeature::MPX]);
        assert!(effects.reads.contains(&Register { bank: Bank::Bounds, number: 0 }));
    }

    #[test]
    fn what_is_no_instruction_or_may_not_run_is_refused() {
        assert!(Effects::of(&[0x06]).unwrap_err().contains("no instruction"));
        assert!(Effects::of(&[0x90, 0x90]).unwrap_err().contains("more than one"));
        assert!(Effects::of(&[0xF4]).unwrap_err().contains("may not run")); // hlt
        assert!(Effects::of(&[0x49, 0xFF, 0xC7]).unwrap_err().contains("r15")); // inc r15
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..16)) {
            let _ = Effects::of(&bytes);
        }
    }
}
