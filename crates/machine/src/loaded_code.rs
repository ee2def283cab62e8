//! The code of a function that is loaded in this process, found by an address in it.
//!
//! A function of a library has no symbol if the library is stripped, or if the loader chose one of several variants for
//! this CPU, e.g. of `memcpy`. Its extent is in the table by which exceptions are unwound.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::slice;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, NativeEndian, UnwindSection as _};

/// Maximum length of a function, in bytes: a larger one is a fault in the table.
const MAX_BYTES: u64 = 1 << 20;

/// The code of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedCode {
    /// The file of the program or library that contains it; empty for the program.
    pub object: PathBuf,
    /// The address of its first byte.
    pub address: u64,
    /// The same address in the file.
    pub address_in_file: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it is part of the program, and not of a library.
    pub is_of_program: bool,
}

impl LoadedCode {
    /// Returns the function that contains an address; `None` if no table of a loaded object lists it.
    pub fn at(address: *const u8) -> Option<Self> {
        let mut search = Search { address: address.addr() as u64, found: None };
        // SAFETY: the callback is called with the search as its argument, and only during this call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        search.found
    }

    /// Returns the offset of its first byte from the start of a page.
    pub fn page_offset(&self) -> usize {
        self.address as usize % crate::mapping::PAGE
    }
}

/// An address, and the function that contains it.
struct Search {
    address: u64,
    found: Option<LoadedCode>,
}

/// Looks for the address in one object; stops the iteration at the object that contains it.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid object, and `LoadedCode::at` its search.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: the loader states the address and number of the object's program headers.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let object = Object { base: info.dlpi_addr, headers };
    if object.segment(search.address).is_none() {
        return 0;
    }
    // SAFETY: the loader states a name that ends with zero, or none.
    let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    let name = PathBuf::from(OsStr::from_bytes(name.unwrap_or_default().to_bytes()));
    search.found = object.function(search.address).map(|(address, bytes)| LoadedCode {
        object: name,
        address,
        address_in_file: address.wrapping_sub(object.base),
        bytes: bytes.to_vec(),
        is_of_program: object.segment(visit as *const () as u64).is_some(),
    });
    1
}

/// A loaded program or library.
struct Object<'a> {
    /// What is added to the addresses in its file.
    base: u64,
    headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Object<'a> {
    /// Returns the bytes from an address to the end of its segment; `None` if the object has no readable segment there.
    fn segment(&self, address: u64) -> Option<&'a [u8]> {
        let is_readable = |one: &&libc::Elf64_Phdr| {
            one.p_type == libc::PT_LOAD && one.p_flags & libc::PF_R == libc::PF_R
        };
        let extent = |one: &libc::Elf64_Phdr| {
            let start = self.base.wrapping_add(one.p_vaddr);
            start..start.saturating_add(one.p_memsz)
        };
        let mut segments = self.headers.iter().filter(is_readable).map(extent);
        let segment = segments.find(|segment| segment.contains(&address))?;
        let length = usize::try_from(segment.end - address).ok()?;
        // SAFETY: the loader has mapped the segment for reading. It stays mapped while the loader calls `visit`.
        Some(unsafe { slice::from_raw_parts(address as *const u8, length) })
    }

    /// Returns the first address and the bytes of the function that contains an address.
    fn function(&self, address: u64) -> Option<(u64, &'a [u8])> {
        let header = self.headers.iter().find(|one| one.p_type == libc::PT_GNU_EH_FRAME)?;
        let header = self.base.wrapping_add(header.p_vaddr);
        let bases = BaseAddresses::default().set_eh_frame_hdr(header);
        let parsed = EhFrameHdr::new(self.segment(header)?, NativeEndian).parse(&bases, 8).ok()?;
        let frames = parsed.eh_frame_ptr().direct().ok()?;
        let bases = bases.set_eh_frame(frames);
        let unwinding = EhFrame::new(self.segment(frames)?, NativeEndian);
        let table = parsed.table()?;
        let entry =
            table.fde_for_address(&unwinding, &bases, address, EhFrame::cie_from_offset).ok()?;
        let (start, length) = (entry.initial_address(), entry.len());
        let bytes = self.segment(start)?.get(..usize::try_from(length).ok()?)?;
        (length <= MAX_BYTES).then_some((start, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address of memcpy as the loader resolved it.
    fn memcpy() -> *const u8 {
        // SAFETY: the name ends with zero, and libc.so.6 is loaded.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr()).cast() }
    }

    #[test]
    fn memcpy_is_found_from_its_first_byte_to_its_last() {
        let code = LoadedCode::at(memcpy()).unwrap();
        assert_eq!(code.address, memcpy().addr() as u64);
        assert!(!code.is_of_program);
        assert!(code.object.to_string_lossy().contains("libc.so"), "{}", code.object.display());
        // SAFETY: the function is loaded.
        let loaded = unsafe { slice::from_raw_parts(memcpy(), code.bytes.len()) };
        assert_eq!(code.bytes, loaded);
        // ret
        assert!(code.bytes.contains(&0xC3) && code.bytes.len() > 32, "{:x?}", code.bytes);
        // The next function begins behind its last byte.
        let last = memcpy().wrapping_add(code.bytes.len() - 1);
        assert_eq!(LoadedCode::at(last).as_ref(), Some(&code));
        let next = (1..4096).find_map(|after| LoadedCode::at(last.wrapping_add(after))).unwrap();
        assert!(next.address >= code.address + code.bytes.len() as u64, "{next:x?}");
        // The file has the same bytes at the same address.
        let file = std::fs::read(&code.object).unwrap();
        let found = file.windows(code.bytes.len()).any(|window| window == code.bytes);
        assert!(found, "{}", code.object.display());
    }

    #[inline(never)]
    fn loaded_by_this_test(number: u64) -> u64 {
        std::hint::black_box(number) + 1
    }

    #[test]
    fn a_function_of_the_program_is_known_as_such() {
        assert_eq!(loaded_by_this_test(1), 2);
        let start = loaded_by_this_test as *const () as *const u8;
        for address in [start, start.wrapping_add(1)] {
            let code = LoadedCode::at(address).unwrap();
            assert_eq!((code.address, code.is_of_program), (start.addr() as u64, true));
        }
    }

    #[test]
    fn an_address_without_code_has_no_function() {
        let data = Box::new(7_u64);
        assert_eq!(LoadedCode::at((&raw const *data).cast()), None);
        assert_eq!(LoadedCode::at(std::ptr::null()), None);
        static CONSTANT: [u8; 64] = [7; 64];
        assert_eq!(LoadedCode::at(CONSTANT.as_ptr()), None);
    }
}
