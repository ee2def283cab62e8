//! The kernel's own functions that every process has mapped: found by name.

use std::mem::size_of;

/// The way into an enclave.
const ENTER: &str = "__vdso_sgx_enter_enclave";

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
/// Where a program header says the place of its part: in the file, and in memory.
const OFFSET: u64 = 8;
const ADDRESS: u64 = 16;
/// The bytes of a symbol.
const SYMBOL: u64 = 24;

/// The address of the kernel's function that enters enclaves; none where it has none.
pub(super) fn enter() -> Option<usize> {
    find(ENTER)
}

fn find(name: &str) -> Option<usize> {
    // SAFETY: reads the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    (base != 0).then(|| Image { base }.symbol(name))?
}

/// An ELF image as the kernel mapped it. What it says of itself is the kernel's word.
struct Image {
    base: u64,
}

impl Image {
    /// The address of a symbol that is defined.
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
        // Addresses count from where the image was linked.
        let linked = self.header(PT_LOAD, ADDRESS)? - self.header(PT_LOAD, OFFSET)?;
        let (names, symbols) = (names? - linked, symbols? - linked);
        // SAFETY: the table of symbols has as many as the hash table counts.
        let count = unsafe {
            match (hash, gnu_hash) {
                (Some(hash), _) => self.at::<u32>(hash - linked + 4),
                (None, Some(hash)) => self.count(hash - linked),
                (None, None) => return None,
            }
        };
        (0..u64::from(count)).map(|number| symbols + number * SYMBOL).find_map(|symbol| {
            // SAFETY: it is one of the table; its name is one of the table of names.
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

    /// How many symbols a GNU hash table counts: one more than the last of its longest chain.
    ///
    /// # Safety
    /// The table must be one.
    unsafe fn count(&self, table: u64) -> u32 {
        // SAFETY: the caller's; buckets name the first symbol of a chain, whose last word is odd.
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

    /// A field of the first program header of a type.
    fn header(&self, kind: u32, field: u64) -> Option<u64> {
        // SAFETY: the image begins with its header, which says where the program headers are.
        unsafe {
            let (first, count) = (self.at::<u64>(32), self.at::<u16>(56));
            let mut headers = (0..u64::from(count)).map(|number| first + number * 56);
            let header = headers.find(|header| self.at::<u32>(*header) == kind)?;
            Some(self.at(header + field))
        }
    }

    /// A number at so many bytes from the image's first.
    ///
    /// # Safety
    /// It must lie in the image.
    unsafe fn at<T: Copy>(&self, offset: u64) -> T {
        const { assert!(size_of::<T>() <= 8) };
        // SAFETY: the caller's.
        unsafe { ((self.base + offset) as *const T).read_unaligned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clock_is_found_and_tells_the_time() {
        let clock = find("__vdso_clock_gettime").expect("every kernel for this processor has it");
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
    fn the_way_into_enclaves_is_there_where_the_kernel_has_it() {
        // A kernel has it with CONFIG_X86_SGX, whatever its processor; both are right.
        match enter() {
            Some(address) => assert!(address > 0x1000),
            None => machine::untested::note(ENTER, &"this kernel's vDSO has no such function"),
        }
    }
}
