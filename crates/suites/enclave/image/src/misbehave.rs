//! What is forbidden, done for the tests.

use crate::arch;

/// Does what is forbidden; the numbers are the interface's.
pub fn misbehave(how: u64) -> u64 {
    match how {
        0 => arch::system_call(),
        1 => arch::below_stack(),
        2 => {
            // SAFETY: none: it is meant to fault.
            unsafe { core::ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
            0
        }
        3 => arch::trap(),
        4 => loop {
            core::hint::spin_loop();
        },
        _ => u64::MAX,
    }
}
