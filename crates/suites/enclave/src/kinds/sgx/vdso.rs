//! Lookup of the functions of the vDSO, which the kernel maps into every process.

use std::mem::size_of;

/// The function that enters an enclave.
const ENTER: &str = "__vdso_sgx_enter_enclave";

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
/// Offsets of the fields of a program header: the part's offset in the file, and its address.
const OFFSET: u64 = 8;
const ADDRESS: u64 = 16;
/// Length of a symbol, in bytes.
const SYMBOL: u64 = 24;

/// Returns the address of the kernel's function that enters enclaves, or `None` if the kernel has none.
pub(super) fn enter() -> Option<usize> {
    find(ENTER)
}

fn find(name: &str) -> Option<usize> {
    // SAFETY: it reads the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    (base != 0).then(|| Image { base }.symbol(name))?
}

/// An ELF image mapped by the kernel, which guarantees that it is well-formed.
struct Image {
    base: u64,
}

impl Image {
    /// Returns the address of a defined symbol.
    fn symbol(&self, name: &str) -> Option<usize> {
        let (mut names, mut symbols, mut hash, mut gnu_hash) = (None, None, None, None);
        let mut entry = self.header(PT_DYNAMIC, OFFSET)?;
        loop {
            // SAFETY: the dynamic section ends with an entry of tag 0.
            let (tag, value) = unsafe { (self.at::<u64>(entry), self.at::<u64>(entry + 8)) };
            match tag {
                0 => break,
                DT_STRTAB => names = Some(value),
                DT_SYMTAB => symbols = Some(value),
                DT_HASH => hash = Some(value),
                DT_GNU_HASH => gnu_hash = Some(value),
                _ => {}
            }
            entry += 16;
        }
        // Addresses are relative to the address at which the image was linked.
        let linked = self.header(PT_LOAD, ADDRESS)? - self.header(PT_LOAD, OFFSET)?;
        let (names, symbols) = (names? - linked, symbols? - linked);
        // SAFETY: the symbol table has as many entries as the hash table counts.
        let count = unsafe {
            match (hash, gnu_hash) {
                (Some(hash), _) => self.at::<u32>(hash - linked + 4),
                (None, Some(hash)) => self.count(hash - linked),
                (None, None) => return None,
            }
        };
        (0..u64::from(count)).map(|number| symbols + number * SYMBOL).find_map(|symbol| {
            // SAFETY: the symbol is in the table, and its name is in the table of names.
            let (place, section, value, called) = unsafe {
                let place = self.at::<u32>(symbol);
                let called = self.base + names + u64::from(place);
                let called = std::ffi::CStr::from_ptr(called as *const std::ffi::c_char);
                (place, self.at::<u16>(symbol + 6), self.at::<u64>(symbol + 8), called)
            };
            let defined = place != 0 && section != 0 && called.to_bytes() == name.as_bytes();
            defined.then_some((self.base + value - linked) as usize)
        })
    }

    /// Returns the number of symbols of a GNU hash table: one more than the last index of any chain.
    ///
    /// # Safety
    /// `table` must be the offset of a GNU hash table.
    unsafe fn count(&self, table: u64) -> u32 {
        // SAFETY: the caller guarantees that the table is valid. A bucket contains the first symbol of a chain, and
        // the last word of a chain is odd.
        unsafe {
            let [buckets, first, words] = [0, 4, 8].map(|at| self.at::<u32>(table + at));
            let buckets_at = table + 16 + u64::from(words) * 8;
            let chains = buckets_at + u64::from(buckets) * 4;
            let bucket = |number: u32| self.at::<u32>(buckets_at + u64::from(number) * 4);
            let mut last = (0..buckets).map(bucket).max().unwrap_or(0);
            if last < first {
                return first;
            }
            while self.at::<u32>(chains + u64::from(last - first) * 4) & 1 == 0 {
                last += 1;
            }
            last + 1
        }
    }

    /// Returns a field of the first program header of a type.
    fn header(&self, kind: u32, field: u64) -> Option<u64> {
        // SAFETY: the image begins with its header, which contains the offset of the program headers.
        unsafe {
            let (first, count) = (self.at::<u64>(32), self.at::<u16>(56));
            let mut headers = (0..u64::from(count)).map(|number| first + number * 56);
            let header = headers.find(|header| self.at::<u32>(*header) == kind)?;
            Some(self.at(header + field))
        }
    }

    /// Reads a number at an offset from the image's first byte.
    ///
    /// # Safety
    /// The number must be inside the image.
    unsafe fn at<T: Copy>(&self, offset: u64) -> T {
        const { assert!(size_of::<T>() <= 8) };
        // SAFETY: the caller guarantees that the number is inside the image.
        unsafe { ((self.base + offset) as *const T).read_unaligned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clock_is_found_and_returns_the_time() {
        let clock = find("__vdso_clock_gettime").expect("every kernel for this CPU has it");
        // SAFETY: it is the kernel's function, with the C library's types.
        let clock: extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32 =
            unsafe { std::mem::transmute(clock) };
        let time = |clock: &dyn Fn(libc::clockid_t, *mut libc::timespec) -> i32| {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            assert_eq!(clock(libc::CLOCK_MONOTONIC, &raw mut time), 0);
            (time.tv_sec, time.tv_nsec)
        };
        // SAFETY: it writes the time.
        let system = |which, into| unsafe { libc::clock_gettime(which, into) };
        let before = time(&system);
        let between = time(&|which, into| clock(which, into));
        assert!(before <= between && between <= time(&system));
        assert_eq!(find("__vdso_clock_gettim"), None);
        assert_eq!(find("__vdso_no_such_function"), None);
    }

    #[test]
    fn the_entry_function_is_found_if_the_kernel_has_it() {
        // A kernel has it if built with CONFIG_X86_SGX, regardless of the CPU; both outcomes are valid.
        match enter() {
            Some(address) => assert!(address > 0x1000),
            None => machine::untested::note(ENTER, &"this kernel's vDSO has no such function"),
        }
    }
}
