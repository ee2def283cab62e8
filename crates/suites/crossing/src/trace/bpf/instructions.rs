//! The program: reads the clock, asks whose event it is, and stores the time and the mark.

use crate::trace::Event;
use crate::trace::stamps::CALL;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Helpers of the kernel, by their numbers.
const KTIME_GET_NS: i32 = 5;
const GET_CURRENT_PID_TGID: i32 = 14;
const PROBE_READ_KERNEL: i32 = 113;
/// The source register that makes an immediate the address of a map's value.
const MAP_VALUE: u8 = 2;
/// Where the kernel keeps a system call's first argument: `di` of `struct pt_regs`.
const FIRST_ARGUMENT: i32 = 112;

/// The frame's end, below which the program has its stack.
const FRAME: u8 = 10;

const fn of(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
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

/// All jumps lead to the end; where that is, is filled in last.
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

/// A constant of 64 bits, which takes two places; by `kind` it is a number or stands for an address.
const fn constant(to: u8, kind: u8, number: u64) -> [Instruction; 2] {
    let (low, high) = (number as u32 as i32, (number >> 32) as u32 as i32);
    [of(0x18, to, kind, 0, low), of(0, 0, 0, 0, high)]
}

/// The program for one event of one thread (process number above, thread number below), which writes
/// into the value of `map`: a count, 8 bytes of nothing, and up to `room` pairs of time and mark.
pub(super) fn program(event: Event, thread: u64, map: i32, room: usize) -> Vec<Instruction> {
    // The clock before all else: what comes later makes the bound no looser.
    let mut all = vec![moved(6, 1), call(KTIME_GET_NS), moved(7, 0), call(GET_CURRENT_PID_TGID)];
    all.extend(constant(1, 0, thread));
    all.push(leave_unless_equal(0, 1));
    match event {
        // The tracepoint's first argument is the address.
        Event::PageFault => all.push(load(8, 6, 0)),
        // Its arguments are the registers and the call's number.
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
    all.extend([load(1, 9, 0), leave_from(1, room as i32), moved(2, 1), add(2, 1), store(9, 0, 2)]);
    all.extend([shift_left(1, 4), add_register(9, 1), store(9, 16, 7), store(9, 24, 8)]);
    let end = all.len();
    all.extend([set(0, 0), of(0x95, 0, 0, 0, 0)]);
    for (place, instruction) in all.iter_mut().enumerate() {
        if matches!(instruction.code, JUMP_UNLESS_EQUAL | JUMP_UNLESS | JUMP_FROM) {
            instruction.offset = (end - place - 1) as i16;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries the program out as far as it goes without the kernel: gives count, time and mark stored.
    fn run(program: &[Instruction], arguments: [u64; 2], current: u64, argument: u64) -> [u64; 3] {
        let (mut registers, mut value, mut stacked) = ([0u64; 11], [0u64; 8], 0);
        let mut at = 0;
        loop {
            let i = program[at];
            let (to, from) = (usize::from(i.registers & 15), usize::from(i.registers >> 4));
            let number = i64::from(i.immediate) as u64;
            at += 1;
            let mut jump = |when: bool| at += usize::from(when) * i.offset as usize;
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
                    let high = (program[at].immediate as u32 as u64) << 32;
                    registers[to] = if from == 0 { high | i.immediate as u32 as u64 } else { 0 };
                    at += 1;
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
    fn only_our_threads_events_are_stored() {
        let ours = 7 << 32 | 0x8000_0001;
        let fault = program(Event::PageFault, ours, 3, 100);
        assert_eq!(run(&fault, [0x1234, 0], ours, 0), [1, 77, 0x1234]);
        assert_eq!(run(&fault, [0x1234, 0], ours + 1, 0), [0; 3]);
        let syscall = program(Event::Syscall, ours, 3, 100);
        assert_eq!(run(&syscall, [0x5000, CALL], ours, 9), [1, 77, 9]);
        assert_eq!(run(&syscall, [0x5000, CALL + 1], ours, 9), [0; 3]);
    }

    #[test]
    fn a_full_map_takes_no_more() {
        assert_eq!(run(&program(Event::PageFault, 1, 3, 0), [5, 0], 1, 0), [0; 3]);
    }
}
