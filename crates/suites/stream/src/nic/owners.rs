//! Which program has each pipe or queue.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::PIPES;
use super::region::Program;

/// No program has it.
const NOBODY: u64 = u64::MAX;

/// The program of each pipe. Who lends pipes writes here, and the NIC reads when a register says where a ring
/// lies: never in its loops over packets.
#[derive(Debug)]
pub(crate) struct Owners(Box<[AtomicU64]>);

impl Default for Owners {
    fn default() -> Self {
        Self((0..PIPES).map(|_| AtomicU64::new(NOBODY)).collect())
    }
}

impl Owners {
    /// A pipe is a program's from now on, or nobody's. No such pipe: nothing is changed.
    pub(super) fn set(&self, pipe: u32, program: Option<Program>) {
        if let Some(owner) = self.0.get(pipe as usize) {
            owner.store(program.map_or(NOBODY, |program| program.0.into()), Ordering::Release);
        }
    }

    /// The program that has a pipe.
    pub(crate) fn of(&self, pipe: u32) -> Option<Program> {
        let owner = self.0.get(pipe as usize)?.load(Ordering::Acquire);
        u32::try_from(owner).ok().map(Program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_one_owner_or_none() {
        let owners = Owners::default();
        assert_eq!(owners.of(3), None);
        owners.set(3, Some(Program(u32::MAX)));
        assert_eq!((owners.of(3), owners.of(4)), (Some(Program(u32::MAX)), None));
        owners.set(3, None);
        owners.set(PIPES, Some(Program(1)));
        assert_eq!((owners.of(3), owners.of(PIPES)), (None, None));
    }
}
