//! Same as mallocs.c, with vectors.

mod harness;
use harness::{at, main as start, ticks, Timed};

const LIVING: usize = 16;

fn kernel(size: usize, passes: usize) -> Timed {
    let mut timed = Timed::default();
    let count = size / 64;
    for _ in 0..passes {
        let mut ring: [Vec<u8>; LIVING] = Default::default();
        let mut sum = 0;
        let begin = ticks();
        for i in 0..count {
            let slot = at(&mut ring, i % LIVING);
            if !slot.is_empty() {
                sum += u64::from(*at(slot, 0));
            }
            let length = 100 + i % 5 * 10;
            *slot = vec![0; length];
            *at(slot, 0) = i as u8;
            *at(slot, length - 1) = i as u8;
        }
        timed.passes.push(ticks() - begin);
        sum +=
            ring.iter().filter_map(|block| block.first()).map(|byte| u64::from(*byte)).sum::<u64>();
        timed.checksum = sum;
    }
    timed.operations = count as u64;
    timed
}

fn main() {
    start();
}
