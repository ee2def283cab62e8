//! An enclave's image: a static PIE with only relative relocations.

use lab::sample::Failure;
use object::LittleEndian as LE;
use object::elf::{
    DT_NEEDED, DT_NULL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_RELRSZ, DT_RELSZ, EM_X86_64, ET_DYN,
    FileHeader64, PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_GNU_PROPERTY, PT_GNU_RELRO,
    PT_GNU_STACK, PT_LOAD, PT_NOTE, PT_NULL, PT_PHDR, PT_TLS, ProgramHeader64, R_X86_64_RELATIVE,
    Rela64,
};
use object::pod::slice_from_all_bytes;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::conf::PAGE;

/// The maximum length of a loaded image, in bytes.
const MAX_IMAGE_BYTES: u64 = 1 << 30;

/// A program header.
type Header = ProgramHeader64<LE>;

/// The rights of a segment's pages besides reading; never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only reading.
    Read,
    /// Writing.
    Write,
    /// Execution.
    Execute,
}

/// A segment of the image. Addresses are relative to the image's first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The first byte.
    pub address: usize,
    /// The length in memory; bytes that the file does not contain are zero.
    pub length: usize,
    /// The bytes in the file.
    pub bytes: &'a [u8],
    /// The pages' rights.
    pub access: Access,
}

/// The template of the thread-local variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The address in the image, where it is relocated.
    pub address: usize,
    /// The bytes in the file, which are inside one segment.
    pub bytes: &'a [u8],
    /// The length in memory.
    pub length: usize,
    /// The alignment: a power of two, at most a page.
    pub align: usize,
}

/// An image that can be loaded.
#[derive(Debug, Clone)]
pub struct Elf<'a> {
    /// The loaded segments, in address order; no two share a page.
    pub segments: Vec<Segment<'a>>,
    /// The template of the thread-local variables, if there are any.
    pub tls: Option<Tls<'a>>,
    /// Words to relocate: the location, and the value to which the image's address is added.
    pub relocations: Vec<(usize, u64)>,
    /// The entry point.
    pub entry: usize,
    /// The length in memory: whole pages.
    pub length: usize,
}

impl<'a> Elf<'a> {
    /// Parses an image.
    ///
    /// # Errors
    /// Returns one line if the file is not such a static PIE.
    pub fn parse(file: &'a [u8]) -> Result<Self, Failure> {
        parse(file).map_err(|why| {
            Failure::failed(format!(
                "the enclave's image {why}; link it with -static-pie -nostdlib for x86-64"
            ))
        })
    }
}

fn parse(file: &[u8]) -> Result<Elf<'_>, String> {
    let is_pie = |header: &FileHeader64<LE>| {
        header.is_little_endian()
            && (header.e_type(LE), header.e_machine(LE)) == (ET_DYN, EM_X86_64)
    };
    let header = FileHeader64::parse(file).ok().filter(|header| is_pie(header));
    let header = header.ok_or("is not a position-independent ELF file for x86-64")?;
    let headers = header
        .program_headers(LE, file)
        .map_err(|why| format!("has unreadable program headers: {why}"))?;
    let mut elf = Elf { segments: vec![], tls: None, relocations: vec![], entry: 0, length: 0 };
    let mut tls_header = None;
    for header in headers {
        match header.p_type(LE) {
            PT_LOAD => elf.segments.push(segment(file, header, &mut elf.length)?),
            PT_TLS if tls_header.is_some() => return Err("has two PT_TLS headers".into()),
            PT_TLS => tls_header = Some(header),
            PT_GNU_STACK if header.p_flags(LE) & PF_X != 0 => {
                return Err("requires an executable stack".into());
            }
            PT_GNU_STACK | PT_DYNAMIC => {}
            // They need no action by a loader.
            PT_NULL | PT_NOTE | PT_PHDR | PT_GNU_EH_FRAME | PT_GNU_RELRO | PT_GNU_PROPERTY => {}
            kind => {
                return Err(format!("has a program header of unsupported type {kind:#x}"));
            }
        }
    }
    elf.tls = tls_header.map(|header| tls(file, header, &elf.segments)).transpose()?;
    for header in headers {
        relocations(file, header, &mut elf)?;
    }
    elf.entry = usize::try_from(header.e_entry(LE)).unwrap_or(usize::MAX);
    let enters = |part: &Segment| part.access == Access::Execute && contains(part, elf.entry, 1);
    if !elf.segments.iter().any(enters) {
        return Err(format!("is entered at {:#x}, which is not executable", elf.entry));
    }
    Ok(elf)
}

fn segment<'a>(file: &'a [u8], header: &Header, length: &mut usize) -> Result<Segment<'a>, String> {
    let flags = header.p_flags(LE);
    let access = match (flags & PF_X != 0, flags & PF_W != 0) {
        (true, true) => return Err("has a writable and executable segment".into()),
        (true, false) => Access::Execute,
        (false, true) => Access::Write,
        (false, false) => Access::Read,
    };
    let (address, memory) = (header.p_vaddr(LE), header.p_memsz(LE));
    let end = address.checked_add(memory).filter(|end| *end <= MAX_IMAGE_BYTES);
    let (Some(end), true) = (end, header.p_filesz(LE) <= memory) else {
        return Err(format!("has a segment of {memory} bytes at {address:#x}"));
    };
    let (address, end) = (address as usize, end as usize);
    if address / PAGE * PAGE < *length {
        return Err(format!("has a segment at {address:#x} on a page of the previous segment"));
    }
    *length = end.next_multiple_of(PAGE);
    Ok(Segment { address, length: end - address, bytes: bytes(file, header)?, access })
}

fn tls<'a>(file: &'a [u8], header: &Header, parts: &[Segment<'_>]) -> Result<Tls<'a>, String> {
    let (align, memory) = (header.p_align(LE).max(1), header.p_memsz(LE));
    let fits =
        align.is_power_of_two() && align <= PAGE as u64 && header.p_vaddr(LE).is_multiple_of(align);
    if !fits || header.p_filesz(LE) > memory || memory > MAX_IMAGE_BYTES {
        return Err(format!("has {memory} bytes of PT_TLS aligned to {align}"));
    }
    let bytes = bytes(file, header)?;
    let address = usize::try_from(header.p_vaddr(LE)).unwrap_or(usize::MAX);
    // Without bytes in the file, the address is never read and may have any value.
    let address = if bytes.is_empty() { 0 } else { address };
    if !bytes.is_empty() && !parts.iter().any(|part| contains(part, address, bytes.len())) {
        return Err(format!("has PT_TLS at {address:#x}, outside its segments"));
    }
    Ok(Tls { address, bytes, length: memory as usize, align: align as usize })
}

/// Reads the relocations that a header of type PT_DYNAMIC references.
fn relocations(file: &[u8], header: &Header, elf: &mut Elf<'_>) -> Result<(), String> {
    let entries = header.dynamic(LE, file).map_err(|why| format!("cannot be relocated: {why}"))?;
    let (mut table, mut size) = (0, 0);
    for entry in entries.unwrap_or_default() {
        let (tag, value) = (entry.d_tag(LE), entry.d_val(LE));
        match tag {
            DT_NULL => break,
            DT_NEEDED => return Err("needs a shared library".into()),
            DT_PLTRELSZ | DT_RELSZ | DT_RELRSZ if value != 0 => {
                return Err(format!("has relocations by dynamic entry {tag}, not by DT_RELA"));
            }
            DT_RELA => table = value,
            DT_RELASZ => size = value,
            _ => {}
        }
    }
    if size == 0 {
        return Ok(());
    }
    let range = (usize::try_from(table), usize::try_from(size));
    let bytes = match range {
        (Ok(table), Ok(size)) => elf.segments.iter().find_map(|part| {
            let from = table.checked_sub(part.address)?;
            part.bytes.get(from..from.checked_add(size)?)
        }),
        _ => None,
    };
    let entries = bytes.and_then(|bytes| slice_from_all_bytes::<Rela64<LE>>(bytes).ok());
    let entries = entries
        .ok_or_else(|| format!("has its relocations at {table:#x}, outside its segments"))?;
    for entry in entries {
        let (at, kind) = (entry.r_offset.get(LE), entry.r_type(LE, false));
        if kind != R_X86_64_RELATIVE || entry.r_sym(LE, false) != 0 {
            return Err(format!(
                "has a relocation of type {kind} at {at:#x}, not R_X86_64_RELATIVE"
            ));
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if !elf.segments.iter().any(|part| contains(part, at, 8)) {
            return Err(format!("has a relocation at {at:#x}, outside its segments"));
        }
        elf.relocations.push((at, entry.r_addend.get(LE) as u64));
    }
    Ok(())
}

/// Returns whether a range of addresses is inside a segment.
fn contains(part: &Segment<'_>, address: usize, bytes: usize) -> bool {
    address
        .checked_sub(part.address)
        .and_then(|from| from.checked_add(bytes))
        .is_some_and(|end| end <= part.length)
}

/// Returns the bytes of the file that a header references.
fn bytes<'a>(file: &'a [u8], header: &Header) -> Result<&'a [u8], String> {
    let (offset, length) = header.file_range(LE);
    let ends = |()| format!("ends before the {length} bytes at {offset:#x} that it references");
    header.data(LE, file).map_err(ends)
}

#[cfg(test)]
mod tests;
