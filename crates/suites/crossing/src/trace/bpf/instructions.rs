//! The program: reads the clock, checks thread and system call, and stores time and mark.

use machine::bpf::Instruction;

use crate::trace::Event;
use crate::trace::stamps::CALL;

/// Numbers of the kernel's helpers.
const KTIME_GET_NS: i32 = 5;
const GET_CURRENT_PID_TGID: i32 = 14;
const PROBE_READ_KERNEL: i32 = 113;
/// Source register that marks an immediate as the address of a map's value.
const MAP_VALUE: u8 = 2;
/// Offset of a system call's first argument, `di`, in `struct pt_regs`.
const FIRST_ARGUMENT: i32 = 112;

/// Frame pointer register; the stack is below it.
const FRAME: u8 = 10;

const fn of(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction::new(code, to, from, offset, immediate)
}

const fn moved(to: u8, from: u8) -> Instruction {
    of(0xbf, to, from, 0, 0)
}

const fn set(to: u8, number: i32) -> Instruction {
    of(0xb7, to, 0, 0, number)
}

const fn add(to: u8, number: i32) -> Instruction {
    of(0x07, to, 0, 0, number)
}

const fn add_register(to: u8, from: u8) -> Instruction {
    of(0x0f, to, from, 0, 0)
}

const fn shift_left(to: u8, bits: i32) -> Instruction {
    of(0x67, to, 0, 0, bits)
}

const fn load(to: u8, from: u8, offset: i16) -> Instruction {
    of(0x79, to, from, offset, 0)
}

const fn store(to: u8, offset: i16, from: u8) -> Instruction {
    of(0x7b, to, from, offset, 0)
}

const fn call(helper: i32) -> Instruction {
    of(0x85, 0, 0, 0, helper)
}

/// Jump to the exit if two registers differ. The offsets of all such jumps are filled in last.
const fn leave_unless_equal(one: u8, other: u8) -> Instruction {
    of(JUMP_UNLESS_EQUAL, one, other, 0, 0)
}

const fn leave_unless(one: u8, number: i32) -> Instruction {
    of(JUMP_UNLESS, one, 0, 0, number)
}

const fn leave_from(one: u8, number: i32) -> Instruction {
    of(JUMP_FROM, one, 0, 0, number)
}

const JUMP_UNLESS_EQUAL: u8 = 0x5d;
const JUMP_UNLESS: u8 = 0x55;
const JUMP_FROM: u8 = 0x35;

/// A 64-bit constant in two instructions: a number, or with `kind` [`MAP_VALUE`] an address.
const fn constant(to: u8, kind: u8, number: u64) -> [Instruction; 2] {
    let (low, high) = (number as u32 as i32, (number >> 32) as u32 as i32);
    [of(0x18, to, kind, 0, low), of(0, 0, 0, 0, high)]
}

/// Returns the program for one event of one thread (process ID in the upper half, thread ID in the lower). It writes
/// to the value of `map`: a count, 8 bytes of padding, and up to `capacity` pairs of time and mark.
pub(super) fn program(event: Event, thread: u64, map: i32, capacity: usize) -> Vec<Instruction> {
    // The clock first, so that the later instructions do not loosen the bound.
    let mut all = vec![moved(6, 1), call(KTIME_GET_NS), moved(7, 0), call(GET_CURRENT_PID_TGID)];
    all.extend(constant(1, 0, thread));
    all.push(leave_unless_equal(0, 1));
    match event {
        // The first argument of the tracepoint is the address.
        Event::PageFault => all.push(load(8, 6, 0)),
        // The arguments of the tracepoint are the registers and the call's number.
        Event::Syscall => all.extend([
            load(1, 6, 8),
            leave_unless(1, CALL as i32),
            moved(1, FRAME),
            add(1, -8),
            set(2, 8),
            load(3, 6, 0),
            add(3, FIRST_ARGUMENT),
            call(PROBE_READ_KERNEL),
            load(8, FRAME, -8),
        ]),
    }
    all.extend(constant(9, MAP_VALUE, map as u64));
    all.extend([
        load(1, 9, 0),
        leave_from(1, capacity as i32),
        moved(2, 1),
        add(2, 1),
        store(9, 0, 2),
    ]);
    all.extend([shift_left(1, 4), add_register(9, 1), store(9, 16, 7), store(9, 24, 8)]);
    let end = all.len();
    all.extend([set(0, 0), of(0x95, 0, 0, 0, 0)]);
    for (index, instruction) in all.iter_mut().enumerate() {
        if matches!(instruction.code, JUMP_UNLESS_EQUAL | JUMP_UNLESS | JUMP_FROM) {
            instruction.offset = (end - index - 1) as i16;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program with simulated helpers; returns the stored count, time and mark.
    fn run(program: &[Instruction], arguments: [u64; 2], current: u64, argument: u64) -> [u64; 3] {
        let (mut registers, mut value, mut stacked) = ([0u64; 11], [0u64; 8], 0);
        let mut pc = 0;
        loop {
            let i = program[pc];
            let (to, from) = (usize::from(i.registers & 15), usize::from(i.registers >> 4));
            let number = i64::from(i.immediate) as u64;
            pc += 1;
            let mut jump = |condition: bool| pc += usize::from(condition) * i.offset as usize;
            match i.code {
                0xbf => registers[to] = registers[from],
                0xb7 => registers[to] = number,
                0x07 => registers[to] = registers[to].wrapping_add(number),
                0x0f => registers[to] += registers[from],
                0x67 => registers[to] <<= number,
                0x79 if from == 6 => registers[to] = arguments[i.offset as usize / 8],
                0x79 if from == 9 => registers[to] = value[0],
                0x79 => registers[to] = stacked,
                0x7b => value[(registers[to] as usize + i.offset as usize) / 8] = registers[from],
                0x85 => match i.immediate {
                    KTIME_GET_NS => registers[0] = 77,
                    PROBE_READ_KERNEL => {
                        assert_eq!((registers[2], registers[3]), (8, arguments[0] + 112));
                        stacked = argument;
                    }
                    _ => registers[0] = current,
                },
                0x18 => {
                    let high = (program[pc].immediate as u32 as u64) << 32;
                    registers[to] = if from == 0 { high | i.immediate as u32 as u64 } else { 0 };
                    pc += 1;
                }
                0x5d => jump(registers[to] != registers[from]),
                0x55 => jump(registers[to] != number),
                0x35 => jump(registers[to] >= number),
                0x95 => return [value[0], value[2], value[3]],
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn only_crossings_of_the_given_thread_are_stored() {
        let thread = 7 << 32 | 0x8000_0001;
        let fault = program(Event::PageFault, thread, 3, 100);
        assert_eq!(run(&fault, [0x1234, 0], thread, 0), [1, 77, 0x1234]);
        assert_eq!(run(&fault, [0x1234, 0], thread + 1, 0), [0; 3]);
        let syscall = program(Event::Syscall, thread, 3, 100);
        assert_eq!(run(&syscall, [0x5000, CALL], thread, 9), [1, 77, 9]);
        assert_eq!(run(&syscall, [0x5000, CALL + 1], thread, 9), [0; 3]);
    }

    #[test]
    fn a_full_map_stores_no_more_events() {
        assert_eq!(run(&program(Event::PageFault, 1, 3, 0), [5, 0], 1, 0), [0; 3]);
    }
}
