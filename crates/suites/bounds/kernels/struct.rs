//! Same as struct.c, with a slice of structs that hold an array.

mod harness;
use harness::{at, known_elsewhere, main as start, ticks, Timed};

#[derive(Clone, Copy)]
#[repr(C)]
struct Item {
    x: i32,
    a: [i32; 2],
    y: i32,
}

/// Untouched zero pages from the system.
fn items(count: usize) -> Vec<Item> {
    if count == 0 {
        return Vec::new();
    }
    let layout = std::alloc::Layout::array::<Item>(count).expect("an array");
    // SAFETY: the layout has a size above zero wherever there is an item.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!memory.is_null(), "no memory");
    // SAFETY: made by this allocator with this layout; zeros are items.
    unsafe { Vec::from_raw_parts(memory.cast(), count, count) }
}

fn kernel(size: usize, passes: usize) -> Timed {
    let mut timed = Timed::default();
    let count = size / 8;
    let mut s = items(count);
    known_elsewhere(&s);
    for _ in 0..passes {
        let begin = ticks();
        for i in 0..count {
            for j in 0..2 {
                *at(&mut at(&mut s, i).a, j) = i as i32 + j as i32;
            }
        }
        timed.passes.push(ticks() - begin);
    }
    for item in &s {
        // The members next to the array are unchanged.
        assert!(item.x == 0 && item.y == 0);
        timed.checksum += item.a.iter().map(|value| u64::from(*value as u32)).sum::<u64>();
    }
    timed.operations = 2 * count as u64;
    timed
}

fn main() {
    start();
}
