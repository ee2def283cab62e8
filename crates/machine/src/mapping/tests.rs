use super::*;
use crate::caching::Caching;
use crate::setting::Setting;
use crate::usage::Usage;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Set if a test may change a system setting temporarily, as in `scripts/test`.
const CHANGES_SETTINGS: &str = "TOLLGATE_TEST_SETTINGS";

fn write_and_read(mapping: &Mapping) {
    for index in (0..mapping.len()).step_by(1009) {
        // SAFETY: the index is inside the mapping, which only this test uses.
        unsafe { mapping.as_mut_ptr().add(index).write_volatile(index as u8) };
    }
    for index in (0..mapping.len()).step_by(1009) {
        // SAFETY: see above.
        let byte = unsafe { mapping.as_ptr().add(index).read_volatile() };
        assert_eq!(byte, index as u8);
    }
}

#[test]
fn anonymous_memory_keeps_written_values() {
    let mapping = Mapping::anonymous(1 << 20).unwrap();
    mapping.prefault().unwrap();
    write_and_read(&mapping);
    mapping.madvise_dontneed();
    // SAFETY: inside the mapping, which only this test uses.
    let byte = unsafe { mapping.as_ptr().add(1009).read_volatile() };
    assert_eq!(byte, 0);
}

#[test]
fn reserved_addresses_become_memory_when_touched() {
    // More than most machines have, so it cannot have been committed.
    let mapping = match Mapping::reserved(64 << 30) {
        Ok(mapping) => mapping,
        Err(why) => {
            crate::untested::note("reserved address space", &why);
            return;
        }
    };
    // SAFETY: both bytes are inside the mapping, which only this test uses.
    let sum = unsafe {
        mapping.as_mut_ptr().write_volatile(1);
        let last = mapping.as_mut_ptr().add(mapping.len() - 1);
        last.write_volatile(2);
        mapping.as_ptr().read_volatile() + last.read_volatile()
    };
    assert_eq!(sum, 3);
}

#[test]
fn prefaulted_pages_do_not_fault_again() {
    let pages = 4096;
    let faults = |mapping: &Mapping| {
        let before = Usage::of_thread();
        write_and_read(mapping);
        Usage::of_thread().since(before).minor_faults
    };
    let [cold, warm] = [(); 2].map(|()| {
        let mapping = Mapping::anonymous(pages * PAGE).unwrap();
        // Pages shared with a child of another test would fault again, to be copied.
        mapping.madvise_dontfork().unwrap();
        mapping
    });
    warm.prefault().unwrap();
    let (cold, warm) = (faults(&cold), faults(&warm));
    assert!(cold >= pages as u64, "{cold} faults");
    // A busy kernel may have reclaimed some pages.
    assert!(warm < pages as u64 / 2, "{warm} faults");
}

#[test]
fn touching_keeps_the_contents_of_pages() {
    let mapping = Mapping::anonymous(64 * PAGE).unwrap();
    write_and_read(&mapping);
    mapping.touch();
    // SAFETY: inside the mapping, which only this test uses.
    let byte = unsafe { mapping.as_ptr().add(1009).read_volatile() };
    assert_eq!(byte, 1009u16 as u8);
}

#[test]
fn transparent_huge_is_aligned() {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        let refusal = Mapping::transparent_huge(3 << 20).unwrap_err().to_string();
        assert!(refusal.contains("CONFIG_TRANSPARENT_HUGEPAGE"), "{refusal}");
        return;
    }
    let mapping = Mapping::transparent_huge(3 << 20).unwrap();
    assert_eq!(mapping.as_ptr() as usize % huge_pages::SIZE, 0);
    assert_eq!(mapping.len(), 3 << 20);
    mapping.prefault().unwrap();
    write_and_read(&mapping);
}

#[test]
fn huge_pages_work_once_reserved_or_the_remedy_is_given() {
    let _alone = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let grown = more_huge_pages(4);
    let refused = grown.as_ref().err().map(ToString::to_string).unwrap_or_default();
    match huge_pages::free() {
        Ok(free) if free >= 4 => write_and_read(&Mapping::huge(5 << 20).unwrap()),
        free => crate::untested::note("2 MiB pages", &format!("{free:?} free; {refused}")),
    }
    drop(grown);
    let refusal = Mapping::huge(1 << 45).unwrap_err().to_string();
    assert!(refusal.contains("nr_hugepages") && !refusal.contains('\n'), "{refusal}");
}

/// One test at a time changes the pool.
static POOL: Mutex<()> = Mutex::new(());

/// Enlarges the pool until the result is dropped, if tests may change settings.
fn more_huge_pages(count: usize) -> std::io::Result<Setting> {
    if std::env::var_os(CHANGES_SETTINGS).is_none() {
        let why = format!("a test changes nr_hugepages only with {CHANGES_SETTINGS}=1");
        return Err(std::io::Error::other(why));
    }
    let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    let pool = Setting::record(pool)?;
    let now: usize = pool.original().parse().map_err(std::io::Error::other)?;
    pool.set(&(now + count).to_string())?;
    Ok(pool)
}

#[test]
fn shared_is_seen_through_both_mappings() {
    let memfd = Memfd::create("test", 10_000).unwrap();
    let (one, other) =
        (Mapping::shared(&memfd, 10_000).unwrap(), Mapping::shared(&memfd, 10_000).unwrap());
    // SAFETY: inside the mappings, which only this test uses.
    unsafe {
        one.as_mut_ptr().add(9_999).write_volatile(7);
        assert_eq!(other.as_ptr().add(9_999).read_volatile(), 7);
    }
    assert!(Mapping::shared(&memfd, 10_001).unwrap_err().to_string().contains("10000 B"));
}

#[test]
fn an_open_file_is_written_and_read() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(9000).unwrap();
    write_and_read(&Mapping::open_file(&file, 9000, Sharing::SharedWritable).unwrap());
    let read_only = Mapping::open_file(&file, 9000, Sharing::Shared).unwrap();
    assert!(!read_only.is_writable());
    read_only.prefault().unwrap();
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 2018).unwrap();
    assert_eq!(byte, [2018u16 as u8]);
}

#[test]
fn impossible_lengths_are_refused() {
    assert!(Mapping::anonymous(0).is_err());
    assert!(Mapping::anonymous(usize::MAX).is_err());
    assert!(Mapping::transparent_huge(usize::MAX - 4096).is_err());
    assert!(
        Mapping::physical(u64::MAX - 10, 4096, false, Caching::Uncached)
            .unwrap_err()
            .to_string()
            .contains("52-bit")
    );
}

#[test]
fn system_ram_is_never_mapped_for_writing() {
    let iomem = std::fs::read_to_string("/proc/iomem").unwrap_or_default();
    let ram = iomem.lines().find_map(|line| line.strip_suffix(" : System RAM"));
    let first = ram.and_then(|range| u64::from_str_radix(range.split('-').next()?, 16).ok());
    // If the addresses are hidden, every one is refused.
    let refusal =
        Mapping::physical(first.unwrap_or(0x10_0000), 4096, true, Caching::Uncached).unwrap_err();
    let refusal = refusal.to_string();
    assert!(refusal.contains("physical memory at 0x"), "{refusal}");
    assert_eq!(refusal.lines().count(), 1);
    if !Path::new("/dev/mem").exists() {
        assert!(refusal.contains("CONFIG_DEVMEM"), "{refusal}");
    }
}

#[test]
fn absent_devices_are_refused() {
    assert!(
        Mapping::resource(Path::new("/sys/bus/pci/devices/none/resource0"), 4096, false).is_err()
    );
    assert!(Mapping::dax(Path::new("/dev/dax99.99"), 4096, true).is_err());
}

#[test]
fn binds_to_the_first_node_and_to_no_absent_one() {
    let mapping = Mapping::anonymous(PAGE).unwrap();
    if crate::topology::Topology::detect().nodes.iter().any(|node| node.id == 0) {
        mapping.bind(0).unwrap();
    }
    assert!(mapping.bind(999).is_err());
    assert!(mapping.bind(1 << 20).is_err());
}

#[test]
fn wrapped_data_is_contiguous() {
    let memfd = Memfd::create("ring", 8192).unwrap();
    let ring = Mapping::mirrored(&memfd).unwrap();
    ring.prefault().unwrap();
    assert_eq!(ring.len(), 16384);
    for index in 0..8192 {
        // SAFETY: both bytes are in the mapping, which only this test uses.
        let seen = unsafe {
            ring.as_mut_ptr().add(index).write_volatile(index as u8 ^ 0x5a);
            ring.as_ptr().add(index + 8192).read_volatile()
        };
        assert_eq!(seen, index as u8 ^ 0x5a);
    }
    assert!(Mapping::mirrored(&Memfd::create("odd", 100).unwrap()).is_err());
}

#[test]
fn each_part_is_mirrored_separately() {
    let memfd = Memfd::create("rings", 3 * 8192).unwrap();
    let rings = Mapping::mirrored_rings(&memfd, 8192).unwrap();
    assert_eq!(rings.len(), 6 * 8192);
    for ring in 0..3 {
        // SAFETY: all bytes are in the mapping, which only this test uses.
        let seen = unsafe {
            let start = rings.as_mut_ptr().add(ring * 2 * 8192);
            start.write_volatile(ring as u8 + 1);
            (start.add(8192).read_volatile(), start.add(2 * 8192 - 1).read_volatile())
        };
        assert_eq!(seen, (ring as u8 + 1, 0));
    }
    for part in [0, 100, 16384, 5 * 4096] {
        assert!(Mapping::mirrored_rings(&memfd, part).is_err(), "{part}");
    }
}

#[test]
fn rings_on_huge_pages_are_mirrored_or_the_remedy_is_given() {
    let _alone = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let page = huge_pages::SIZE;
    let memfd = match Memfd::sealed_huge("rings", 2 * page) {
        Ok(memfd) => memfd,
        Err(why) => return crate::untested::note("rings on huge pages", &why),
    };
    assert_eq!(memfd.page().unwrap(), page);
    let odd = Mapping::mirrored_rings(&memfd, PAGE).unwrap_err();
    assert!(odd.to_string().contains("not whole pages"), "{odd}");
    let grown = more_huge_pages(2);
    let rings = match Mapping::mirrored_rings(&memfd, page) {
        Ok(rings) => rings,
        Err(why) => {
            assert!(why.to_string().contains("nr_hugepages"), "{why}");
            let refused = grown.err().map(|why| why.to_string()).unwrap_or_default();
            return crate::untested::note("rings on huge pages", &format!("{why}; {refused}"));
        }
    };
    assert_eq!(rings.len(), 4 * page);
    assert!(rings.as_ptr().addr().is_multiple_of(page));
    for ring in 0..2 {
        // SAFETY: all bytes are in the mapping, which only this test uses.
        let seen = unsafe {
            let start = rings.as_mut_ptr().add(ring * 2 * page);
            start.write_volatile(ring as u8 + 1);
            (start.add(page).read_volatile(), start.add(2 * page - 1).read_volatile())
        };
        assert_eq!(seen, (ring as u8 + 1, 0));
    }
    drop(rings);
    drop(grown);
    let all = Memfd::sealed_huge("rings", 1 << 45).unwrap();
    let refusal = Mapping::mirrored_rings(&all, 1 << 45).unwrap_err().to_string();
    assert!(refusal.contains("nr_hugepages") && !refusal.contains('\n'), "{refusal}");
}
