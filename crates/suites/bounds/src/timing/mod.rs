//! Machine code in a loop of unrolled copies: execution, timing, and recovery from faults.

mod clock;
mod enter;
mod signal;
mod state;
pub(crate) mod unroll;

use machine::SysError;
use machine::executable::Executable;
use machine::mapping::PAGE;
use machine::tsc;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(crate) use clock::{Body, LoopTimer, TimingError};
pub(crate) use signal::RaisedSignal;
pub(crate) use state::{Data, State};

/// Returns `mov rsp, [r13 + saved stack]`, for bodies that move the stack pointer.
fn restore_stack() -> Vec<u8> {
    [[0x49, 0x8B, 0xA5].as_slice(), &state::SAVED_STACK.to_le_bytes()].concat()
}

/// Offset of a loop from the start of a page, in bytes. It decides in which sets of the caches the instructions are,
/// and where the loop begins within a line and within a window of the decoder, all of which may change its cost. It is
/// drawn for each sample, so that intervals over rounds cover it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Placement(usize);

impl Placement {
    /// Draws a multiple of 16 B, to which compilers align loops.
    pub(crate) fn draw(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed).random_range(0..PAGE / ALIGNMENT) * ALIGNMENT)
    }
}

/// Alignment of a loop, in bytes.
const ALIGNMENT: usize = 16;

/// Code that runs a body as often as its state specifies.
pub(crate) struct TimingLoop {
    code: Executable,
    placement: Placement,
    moves_stack: bool,
}

impl TimingLoop {
    /// Wraps a body in a loop at the start of a page, for code that is not timed.
    ///
    /// # Errors
    /// As [`placed`](Self::placed).
    pub(crate) fn new(body: &[u8], moves_stack: bool) -> Result<Self, SysError> {
        Self::placed(body, moves_stack, Placement::default())
    }

    /// Wraps a body in a loop. The body must preserve r13, r15 and, unless it `moves_stack`, rsp; r14 contains the
    /// address of the data.
    ///
    /// # Errors
    /// Returns the error of the system if it does not allow code generated at run time.
    pub(crate) fn placed(
        body: &[u8],
        moves_stack: bool,
        placement: Placement,
    ) -> Result<Self, SysError> {
        // Breakpoints: the padding is never executed.
        let mut code = vec![0xCC; placement.0];
        code.extend(body);
        if moves_stack {
            code.extend(restore_stack());
        }
        code.extend([0x49, 0xFF, 0xCF]); // dec r15
        code.extend([0x0F, 0x85]); // jnz, to the first byte
        let back = -((code.len() - placement.0) as i32 + 4);
        code.extend(back.to_le_bytes());
        code.extend([0x41, 0xFF, 0xA5]); // jmp [r13 + exit]
        code.extend(state::EXIT.to_le_bytes());
        // Jump target of a failed check.
        code.extend(UD2);
        Ok(Self { code: Executable::new(&code)?, placement, moves_stack })
    }

    /// Returns the number of instructions of the loop itself per pass.
    pub(crate) fn closing(&self) -> u64 {
        2 + u64::from(self.moves_stack)
    }

    /// Returns the first instruction.
    fn start(&self) -> *const u8 {
        self.code.as_ptr().wrapping_add(self.placement.0)
    }

    /// Returns the bytes from the first instruction to the target of failed checks.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.code.bytes().get(self.placement.0..).unwrap_or_default()
    }

    /// Runs the loop `loops` times.
    ///
    /// # Errors
    /// Returns the signal that an instruction raised.
    pub(crate) fn run(&self, state: &mut State, loops: u64) -> Result<(), RaisedSignal> {
        // SAFETY: `guarded` keeps the state valid and unused, and the code of `placed` leaves by its exit.
        signal::guarded(state, |state| unsafe { enter::enter(state, self.start(), loops) })
    }

    /// Runs the loop `loops` times and returns its ticks, including entry and exit.
    ///
    /// # Errors
    /// Returns the signal that an instruction raised.
    pub(crate) fn ticks(&self, state: &mut State, loops: u64) -> Result<u64, RaisedSignal> {
        let start = self.start();
        signal::guarded(state, |state| {
            let begin = tsc::start();
            // SAFETY: `guarded` keeps the state valid and unused, and the code of `placed` leaves by its exit.
            unsafe { enter::enter(state, start, loops) };
            tsc::stop().saturating_sub(begin)
        })
    }
}

/// Instruction that always faults.
pub(crate) const UD2: [u8; 2] = [0x0F, 0x0B];
/// Returns the distance from the end of a body to the [`UD2`] that a failed check jumps to, in bytes.
pub(crate) fn trap_offset(moves_stack: bool) -> usize {
    let stack = if moves_stack { restore_stack().len() } else { 0 };
    stack + 3 + 6 + 7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (Data, State) {
        let data = Data::new().unwrap();
        let state = State::new(&data);
        (data, state)
    }

    #[test]
    fn the_body_runs_as_often_as_asked() {
        let (_data, mut state) = state();
        state.set_general(0, 5);
        let inc_rax = TimingLoop::new(&[0x48, 0xFF, 0xC0].repeat(7), false).unwrap();
        inc_rax.run(&mut state, 1000).unwrap();
        assert_eq!(state.general(0), 5 + 7000);
    }

    #[test]
    fn a_loop_runs_at_any_place() {
        let (_data, mut state) = state();
        let mut places = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let placement = Placement::draw(seed);
            assert!(placement.0 < PAGE && placement.0.is_multiple_of(ALIGNMENT));
            places.insert(placement.0);
            state.set_general(0, 5);
            let body = [0x48, 0xFF, 0xC0].repeat(7);
            let inc_rax = TimingLoop::placed(&body, false, placement).unwrap();
            assert_eq!(inc_rax.start() as usize % PAGE, placement.0);
            inc_rax.run(&mut state, 10).unwrap();
            assert_eq!(state.general(0), 5 + 70, "{placement:?}");
        }
        assert!(places.len() > 50, "{} places", places.len());
    }

    #[test]
    fn a_moved_stack_pointer_is_restored() {
        let (_data, mut state) = state();
        let push_rax = TimingLoop::new(&[0x50].repeat(100), true).unwrap();
        push_rax.run(&mut state, 100_000).unwrap();
    }

    #[test]
    fn a_fault_is_reported_and_the_thread_continues() {
        let (_data, mut state) = state();
        let faults: [(&[u8], &str); 4] = [
            (&UD2, "SIGILL"),
            (&[0x48, 0x31, 0xC0, 0x48, 0x8B, 0x00], "SIGSEGV"), // xor rax, rax; mov rax, [rax]
            (&[0x31, 0xC9, 0x31, 0xD2, 0xF7, 0xF1], "SIGFPE"), // xor ecx, ecx; xor edx, edx; div ecx
            (&[0x48, 0x31, 0xE4, 0x50], "SIGSEGV"),            // xor rsp, rsp; push rax
        ];
        for (body, signal) in faults {
            let fault = TimingLoop::new(body, true).unwrap().run(&mut state, 3).unwrap_err();
            assert_eq!(fault.to_string(), signal);
        }
        a_moved_stack_pointer_is_restored();
    }

    #[test]
    fn checks_jump_to_the_trap() {
        let (_data, mut state) = state();
        for moves_stack in [false, true] {
            // jmp rel32 to the trap, from a body of these five bytes.
            let body = [&[0xE9][..], &(trap_offset(moves_stack) as u32).to_le_bytes()].concat();
            let timing_loop = TimingLoop::new(&body, moves_stack).unwrap();
            assert_eq!(timing_loop.run(&mut state, 1).unwrap_err().to_string(), "SIGILL");
        }
    }

    #[test]
    fn registers_and_data_have_the_values_that_were_set() {
        let (data, mut state) = state();
        data.fill(7);
        state.set_general(3, 40);
        // add rbx, [r14]; movq rax, xmm5
        let body = [0x49, 0x03, 0x1E, 0x66, 0x48, 0x0F, 0x7E, 0xE8];
        state.set_vector(5, 99);
        for bits in [128, 256, 512] {
            state.set_general(3, 40);
            state.widen(bits);
            TimingLoop::new(&body, false).unwrap().run(&mut state, 1).unwrap();
            assert_eq!((state.general(3), state.general(0)), (47, 99), "{bits} bits");
        }
    }
}
