//! Same as funccalls.c: a slice, which carries its length, is passed to a function.

mod harness;
use harness::{at, known_elsewhere, main as start, ticks, Timed};

#[inline(never)]
fn add(counters: &mut [u32], mut index: usize, value: u32) {
    // Hides the function's purpose from the caller's optimiser.
    // SAFETY: the assembly is empty.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) index) };
    let counter = at(counters, index);
    *counter = counter.wrapping_add(value);
}

fn kernel(size: usize, passes: usize) -> Timed {
    let mut timed = Timed::default();
    let count = size / 8;
    let mut counters = vec![0_u32; 1024];
    known_elsewhere(&counters);
    for _ in 0..passes {
        counters.fill(0);
        let begin = ticks();
        for i in 0..count {
            add(&mut counters, i % 1024, i as u32);
        }
        timed.passes.push(ticks() - begin);
    }
    timed.checksum = counters.iter().map(|counter| u64::from(*counter)).sum();
    timed.operations = count as u64;
    timed
}

fn main() {
    start();
}
