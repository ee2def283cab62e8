//! Images composed byte by byte, and malformed ones.

use proptest::prelude::*;

use super::*;
use crate::conf::Conf;
use crate::region::{Region, Sharing};

/// Returns a file with a code page and a data page, which contains one relocation and two words of TLS.
fn image() -> Vec<u8> {
    let mut file = vec![0u8; 0x2100];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &3u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(24, &0x1010u64.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &5u16.to_le_bytes());
    let headers: [(u32, u32, [u64; 6]); 5] = [
        (PT_LOAD, 5, [0x1000, 0x1000, 0, 0x100, 0x100, 0x1000]),
        (PT_LOAD, 6, [0x2000, 0x2000, 0, 0x100, 0x1800, 0x1000]),
        (PT_DYNAMIC, 6, [0x2000, 0x2000, 0, 0x40, 0x40, 8]),
        (PT_TLS, 4, [0x2080, 0x2080, 0, 8, 16, 16]),
        (PT_GNU_STACK, 6, [0; 6]),
    ];
    for (number, (kind, flags, words)) in headers.into_iter().enumerate() {
        let at = 64 + number * 56;
        put(at, &kind.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (word, value) in words.into_iter().enumerate() {
            put(at + 8 + word * 8, &value.to_le_bytes());
        }
    }
    let dynamic = [DT_RELA, 0x2040, DT_RELASZ, 24, 0, 0, 0, 0];
    let relocation = [0x2090, R_X86_64_RELATIVE.into(), 0x1010];
    for (at, words) in [(0x2000, &dynamic[..]), (0x2040, &relocation[..]), (0x2080, &[7][..])] {
        for (word, value) in words.iter().enumerate() {
            put(at + word * 8, &value.to_le_bytes());
        }
    }
    file
}

fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = image();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn why(file: &[u8]) -> String {
    let why = Elf::parse(file).unwrap_err().to_string();
    assert!(!why.contains('\n'), "{why}");
    why
}

#[test]
fn a_static_pie_is_parsed() {
    let file = image();
    let elf = Elf::parse(&file).unwrap();
    assert_eq!((elf.entry, elf.length), (0x1010, 0x4000));
    assert_eq!(elf.relocations, [(0x2090, 0x1010)]);
    let [code, data] = &elf.segments[..] else { panic!("{:?}", elf.segments) };
    assert_eq!((code.address, code.length, code.access), (0x1000, 0x100, Access::Execute));
    assert_eq!((data.address, data.length, data.access), (0x2000, 0x1800, Access::Write));
    assert_eq!(data.bytes, &file[0x2000..0x2100]);
    let tls = elf.tls.unwrap();
    assert_eq!((tls.bytes, tls.length, tls.align), (&file[0x2080..0x2088], 16, 16));
}

#[test]
fn any_other_file_is_refused_in_one_line() {
    let header = |number: usize| 64 + number * 56;
    for (file, expected) in [
        (vec![], "not a position-independent ELF file"),
        (with(16, &[2]), "not a position-independent ELF file"),
        (with(18, &[183]), "not a position-independent ELF file"),
        (with(54, &[55]), "unreadable program headers: Invalid ELF program header entry size"),
        (with(header(0) + 4, &[7]), "writable and executable segment"),
        (with(header(0), &3u32.to_le_bytes()), "program header of unsupported type 0x3"),
        (with(header(1) + 16, &0x1800u64.to_le_bytes()), "on a page of the previous segment"),
        (with(header(1) + 40, &(1u64 << 31).to_le_bytes()), "a segment of 2147483648 bytes"),
        (with(header(1) + 40, &8u64.to_le_bytes()), "a segment of 8 bytes"),
        (with(header(3) + 48, &48u64.to_le_bytes()), "PT_TLS aligned to 48"),
        (with(header(4) + 4, &[7]), "executable stack"),
        (with(24, &0x2010u64.to_le_bytes()), "entered at 0x2010, which is not executable"),
        (with(0x2000, &[1]), "needs a shared library"),
        (with(0x2000, &[35]), "relocations by dynamic entry 35"),
        (with(0x2008, &[0, 0x30]), "relocations at 0x3000, outside"),
        (with(0x2048, &[6]), "a relocation of type 6 at 0x2090"),
        (with(0x2040, &0x3ff9u64.to_le_bytes()), "a relocation at 0x3ff9, outside"),
        (image()[..0x20ff].to_vec(), "ends before"),
    ] {
        assert!(why(&file).contains(expected), "{expected}: {}", why(&file));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_it(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Elf::parse(&bytes);
    }

    /// The segments and relocations of an accepted file are inside the image.
    #[test]
    fn no_broken_image_panics_it(changes in proptest::collection::vec((0usize..2, 0usize..344, any::<u8>()), 1..6)) {
        let mut file = image();
        for (half, at, byte) in changes {
            file[if half == 0 { at } else { 0x2000 + at % 0x60 }] = byte;
        }
        if let Ok(elf) = Elf::parse(&file) {
            for part in &elf.segments {
                prop_assert!(part.bytes.len() <= part.length && part.address + part.length <= elf.length);
            }
            for (at, _) in elf.relocations {
                prop_assert!(elf.segments.iter().any(|part| contains(part, at, 8)));
            }
        }
    }

    /// An accepted file can be loaded: its bytes are copied, its words relocated and its template copied.
    #[test]
    fn no_accepted_image_is_loaded_outside_its_region(
        fields in proptest::collection::vec((0usize..35, prop_oneof![any::<u64>(), 0u64..0x6000, Just(u64::MAX)]), 1..4),
        tail in proptest::collection::vec((0x2000usize..0x2060, any::<u8>()), 0..3),
    ) {
        let mut file = image();
        for (field, word) in fields {
            // A word of a program header.
            let at = 64 + field * 8;
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, byte) in tail {
            file[at] = byte;
        }
        let Ok(elf) = Elf::parse(Vec::leak(file)) else { return Ok(()) };
        let conf = Conf { heap_pages: 1, stack_pages: 1, tcs: 2, debug: false };
        let thread = elf.tls.map_or(0, |tls| tls.length);
        // Larger images would only take longer.
        if elf.length + 2 * thread <= 16 << 20 {
            let region = Region::load(&elf, &conf, Sharing::Private).unwrap();
            region.reset_tls(1);
        }
    }
}

/// A template without bytes in the file may have any address.
#[test]
fn an_empty_template_is_never_read() {
    let header = 64 + 3 * 56;
    let mut file = with(header + 32, &[0; 8]);
    file[header + 16..header + 24].copy_from_slice(&(u64::MAX - 15).to_le_bytes());
    let elf = Elf::parse(Vec::leak(file)).unwrap();
    let conf = Conf { heap_pages: 1, stack_pages: 1, tcs: 1, debug: false };
    Region::load(&elf, &conf, Sharing::Private).unwrap().reset_tls(0);
}
