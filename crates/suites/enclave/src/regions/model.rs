//! All orders in which handlers may see regions that are added and removed, as loom tries them, over the file
//! that the program is built of: only the atomics are loom's.
#![allow(dead_code, reason = "the file has more than is tried here")]
#![allow(clippy::duplicate_mod, reason = "that is the point")]

use loom::sync::Arc;
use loom::thread;

use sync::AtomicU64;
use table::Regions;

#[path = "table.rs"]
mod table;

/// Loom's in place of the real ones.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[test]
fn a_handler_never_sees_parts_of_two_regions() {
    loom::model(|| {
        let regions = Arc::new(Regions::<2>(std::array::from_fn(|_| AtomicU64::new(0))));
        let stays = regions.add(0x50_0000..0x51_0000).expect("a slot");
        // One region, then another in its slot, by one thread; a handler on another.
        let loads = Arc::clone(&regions);
        let loads = thread::spawn(move || {
            for start in [0x10_0000, 0x90_0000] {
                let slot = loads.add(start..start + 0x1_0000).expect("a slot");
                assert!(loads.contains(start), "its own thread sees it");
                loads.remove(slot);
            }
        });
        assert!(regions.contains(0x50_8000), "a region that stays is always seen");
        for address in [0x1000, 0x30_0000, 0x95_0000] {
            assert!(!regions.contains(address), "{address:#x} is in none");
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
