//! The six bugs of bugs.c with slices. With `unchecked` there are no index checks.
//!
//! Safe Rust does not compile a use after free: it is in this program only with `unchecked`, or with
//! `rejected`, which makes the compiler reject the program.

use std::hint::black_box;

const LENGTH: usize = 16;

/// Reads and writes back.
#[inline(never)]
fn touch(array: &mut [u8], index: usize) {
    let index = black_box(index);
    #[cfg(unchecked)]
    // SAFETY: unsound on purpose: this is the bug.
    unsafe {
        let place = array.as_mut_ptr().add(index);
        place.write_volatile(place.read_volatile());
    }
    #[cfg(not(unchecked))]
    {
        let value = black_box(array[index]);
        array[index] = value;
    }
}

fn heap_overflow(planted: usize) {
    let mut block = vec![0; LENGTH];
    touch(&mut block, LENGTH - 1 + planted);
}

fn stack_overflow(planted: usize) {
    let mut array = [0; LENGTH];
    touch(&mut array, LENGTH - 1 + planted);
}

#[derive(Default)]
#[repr(C)]
struct Record {
    name: [u8; LENGTH],
    rank: [u8; LENGTH],
}

fn inside_struct(planted: usize) {
    let mut record = Box::new(Record::default());
    touch(&mut record.name, LENGTH - 1 + planted);
    black_box(&record.rank);
}

fn far_overflow(planted: usize) {
    let (mut block, other) = (vec![0_u8; 4096], vec![0_u8; 4096]);
    let distance = (other.as_ptr() as usize).wrapping_sub(block.as_ptr() as usize);
    touch(&mut block, distance.wrapping_mul(planted).wrapping_add(8));
    black_box(other);
}

#[cfg(rejected)]
fn use_after_free(_: usize) {
    let block = vec![0_u8; LENGTH];
    let kept = &block[8];
    drop(block);
    black_box(*kept);
}

#[cfg(all(unchecked, not(rejected)))]
fn use_after_free(planted: usize) {
    let mut block = black_box(vec![0_u8; LENGTH]);
    let kept = block.as_ptr();
    if planted == 1 {
        block = Vec::new();
    }
    // SAFETY: unsound on purpose: this is the bug.
    black_box(unsafe { kept.add(8).read_volatile() });
    black_box(block);
}

#[cfg(not(any(unchecked, rejected)))]
fn use_after_free(planted: usize) {
    assert!(planted == 0, "does not compile");
    let block = vec![0_u8; LENGTH];
    let kept = &block[8];
    black_box(*kept);
    drop(block);
}

fn through_memcpy(planted: usize) {
    let source = [0_u8; 2 * LENGTH];
    let mut block = vec![0_u8; LENGTH];
    let length = black_box(LENGTH + planted);
    #[cfg(unchecked)]
    // SAFETY: unsound on purpose: this is the bug.
    unsafe {
        std::ptr::copy_nonoverlapping(source.as_ptr(), block.as_mut_ptr(), length);
    }
    #[cfg(not(unchecked))]
    block[..length].copy_from_slice(&source[..length]);
    black_box(block);
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (bug, planted) = match &words[..] {
        [_, bug, form] => (bug.as_str(), usize::from(form == "planted")),
        _ => ("", 0),
    };
    match bug {
        "heap" => heap_overflow(planted),
        "stack" => stack_overflow(planted),
        "struct" => inside_struct(planted),
        "far" => far_overflow(planted),
        "use-after-free" => use_after_free(planted),
        "memcpy" => through_memcpy(planted),
        _ => {
            eprintln!("arguments: BUG planted|control");
            std::process::exit(2);
        }
    }
    println!("ran to its end");
}
