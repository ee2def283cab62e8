//! Adding, finding and removing regions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use loom::sync::Arc;

use super::table::Regions;

/// The same file with loom's atomics, for models of all interleavings of signal handlers with the addition and removal
/// of regions.
#[allow(dead_code, reason = "the models do not use the whole file")]
#[allow(clippy::duplicate_mod, reason = "compiled a second time with loom's atomics")]
#[path = "table.rs"]
mod modelled;

/// Loom's atomics in place of the standard library's.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

fn table() -> Regions<3> {
    Regions([const { AtomicU64::new(0) }; 3])
}

#[test]
fn a_region_contains_its_addresses_until_it_is_removed() {
    let regions = table();
    let top = 0x7fff_ffff_f000;
    let first = regions.add(0x10_0000..0x10_3000).unwrap();
    let last = regions.add(top - 0x1000..top).unwrap();
    for address in [0x10_0000, 0x10_2fff, top - 0x1000, top - 1] {
        assert!(regions.contains(address), "{address:#x}");
    }
    for address in [0, 0xf_ffff, 0x10_3000, top - 0x1001, top, usize::MAX] {
        assert!(!regions.contains(address), "{address:#x}");
    }
    regions.remove(first);
    assert!(!regions.contains(0x10_0000) && regions.contains(top - 1));
    regions.remove(last);
    assert!(!regions.contains(top - 1));
}

#[test]
fn a_region_that_cannot_be_encoded_or_stored_is_refused() {
    let regions = table();
    assert_eq!(regions.add(0x1000..0x1000), None);
    assert_eq!(regions.add(1 << 48..(1 << 48) + 0x1000), None);
    assert_eq!(regions.add(0x1000..0x1000 + (1 << 40)), None);
    for slot in 0..3 {
        assert_eq!(regions.add(0x1000..0x2000), Some(slot));
    }
    assert_eq!(regions.add(0x1000..0x2000), None, "all are taken");
}

/// Tests more addresses than a model can; the model covers all interleavings of a few.
#[test]
fn no_address_between_regions_is_ever_in_one() {
    let (regions, done) = (table(), AtomicBool::new(false));
    // One region is permanent; the addresses below, between and above the regions are in none.
    regions.add(0x500_0000..0x501_0000).unwrap();
    std::thread::scope(|scope| {
        for start in [0x100_0000, 0x900_0000] {
            let (regions, done) = (&regions, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let slot = regions.add(start..start + 0x10_0000);
                    regions.remove(slot.expect("three slots are enough"));
                }
            });
        }
        let checked = std::panic::catch_unwind(|| {
            for _ in 0..100_000 {
                assert!(regions.contains(0x500_8000));
                for address in [0x1000, 0x80_0000, 0x300_0000, 0x700_0000, 0xa00_0000] {
                    assert!(!regions.contains(address), "{address:#x}");
                }
            }
        });
        done.store(true, Ordering::Relaxed);
        checked.expect("no address is in a region that never had it");
    });
}

fn modelled() -> modelled::Regions<2> {
    modelled::Regions(std::array::from_fn(|_| sync::AtomicU64::new(0)))
}

#[test]
fn a_handler_never_mixes_two_regions() {
    loom::model(|| {
        let regions = Arc::new(modelled());
        let stays = regions.add(0x50_0000..0x51_0000).expect("a slot");
        // One thread adds a region, then another one in its slot; a handler runs on another thread.
        let loads = Arc::clone(&regions);
        let loads = loom::thread::spawn(move || {
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
        let regions = Arc::new(modelled());
        let other = Arc::clone(&regions);
        let other = loom::thread::spawn(move || other.add(0x10_0000..0x11_0000).expect("a slot"));
        let slot = regions.add(0x90_0000..0x91_0000).expect("a slot");
        assert_ne!(other.join().expect("it ends"), slot);
        assert!(regions.contains(0x10_0000) && regions.contains(0x90_0000));
        regions.remove(slot);
        assert!(regions.contains(0x10_0000) && !regions.contains(0x90_0000));
    });
}
