//! A loom model of all interleavings of signal handlers with the addition and removal of regions. It compiles the
//! same file as the program, with loom's atomics.
#![allow(dead_code, reason = "the model does not use the whole file")]
#![allow(clippy::duplicate_mod, reason = "the model compiles the file with other atomics")]

use loom::sync::Arc;
use loom::thread;

use sync::AtomicU64;
use table::Regions;

#[path = "table.rs"]
mod table;

/// Loom's atomics in place of the standard library's.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[test]
fn a_handler_never_mixes_two_regions() {
    loom::model(|| {
        let regions = Arc::new(Regions::<2>(std::array::from_fn(|_| AtomicU64::new(0))));
        let stays = regions.add(0x50_0000..0x51_0000).expect("a slot");
        // One thread adds a region, then another one in its slot; a handler runs on another thread.
        let loads = Arc::clone(&regions);
        let loads = thread::spawn(move || {
            for start in [0x10_0000, 0x90_0000] {
                let slot = loads.add(start..start + 0x1_0000).expect("a slot");
                assert!(loads.contains(start), "its own thread sees it");
                loads.remove(slot);
            }
        });
        assert!(regions.contains(0x50_8000), "a permanent region is always seen");
        for address in [0x1000, 0x30_0000, 0x95_0000] {
            assert!(!regions.contains(address), "{address:#x} is in no region");
        }
        loads.join().expect("it ends");
        regions.remove(stays);
        assert!(!regions.contains(0x50_8000));
    });
}

#[test]
fn two_enclaves_never_share_a_slot() {
    loom::model(|| {
        let regions = Arc::new(Regions::<2>(std::array::from_fn(|_| AtomicU64::new(0))));
        let other = Arc::clone(&regions);
        let other = thread::spawn(move || other.add(0x10_0000..0x11_0000).expect("a slot"));
        let slot = regions.add(0x90_0000..0x91_0000).expect("a slot");
        assert_ne!(other.join().expect("it ends"), slot);
        assert!(regions.contains(0x10_0000) && regions.contains(0x90_0000));
        regions.remove(slot);
        assert!(regions.contains(0x10_0000) && !regions.contains(0x90_0000));
    });
}
