//! As funccalls.c: a slice, which carries its length, is passed to a function.

mod harness;
use harness::{at, main as start, ticks, Timed};

#[inline(never)]
fn add(counters: &mut [u32], mut index: usize, value: u32) {
    // The caller does not know what it is called for.
    // SAFETY: no instruction at all.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) index) };
    let counter = at(counters, index);
    *counter = counter.wrapping_add(value);
}

fn kernel(size: usize, first: i32) -> Timed {
    let mut timed = Timed::default();
    let count = size / 8;
    let mut counters = vec![0_u32; 1024];
    for _ in first..2 {
        counters.fill(0);
        timed.begin = ticks();
        for i in 0..count {
            add(&mut counters, i % 1024, i as u32);
        }
        timed.end = ticks();
    }
    timed.checksum = counters.iter().map(|counter| u64::from(*counter)).sum();
    timed.operations = count as u64;
    timed
}

fn main() {
    start();
}
