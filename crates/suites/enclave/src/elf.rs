//! An enclave's image: a static PIE with only relative relocations.

use lab::sample::Failure;

use crate::conf::PAGE;

/// The maximum length of a loaded image, in bytes.
const MAX_IMAGE_BYTES: u64 = 1 << 30;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_TLS: u32 = 7;
const PT_GNU_STACK: u32 = 0x6474_e551;
/// Headers that need no action by a loader: PT_NULL, PT_NOTE, PT_PHDR, and GNU's eh_frame, relro and property.
const IGNORED_HEADERS: [u32; 6] = [0, 4, 6, 0x6474_e550, 0x6474_e552, 0x6474_e553];
const DT_NEEDED: u64 = 1;
const DT_PLTRELSZ: u64 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_RELSZ: u64 = 18;
const DT_RELRSZ: u64 = 35;
const R_X86_64_RELATIVE: u64 = 8;

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
                "the enclave's image {why}: link it with -static-pie -nostdlib for x86-64"
            ))
        })
    }
}

/// A program header.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file: u64,
    memory: u64,
    align: u64,
}

fn parse(file: &[u8]) -> Result<Elf<'_>, String> {
    // 64-bit, little-endian, version 1; then ET_DYN for x86-64.
    if file.get(..7) != Some(b"\x7fELF\x02\x01\x01")
        || u16_at(file, 16)? != 3
        || u16_at(file, 18)? != 62
    {
        return Err("is not a position-independent ELF file for x86-64".into());
    }
    let headers = headers(file)?;
    let mut elf = Elf { segments: vec![], tls: None, relocations: vec![], entry: 0, length: 0 };
    let mut tls_header = None;
    for header in &headers {
        match header.kind {
            PT_LOAD => elf.segments.push(segment(file, header, &mut elf.length)?),
            PT_TLS if tls_header.is_some() => return Err("has two PT_TLS headers".into()),
            PT_TLS => tls_header = Some(header),
            PT_GNU_STACK if header.flags & 1 != 0 => {
                return Err("requires an executable stack".into());
            }
            PT_GNU_STACK | PT_DYNAMIC => {}
            kind if IGNORED_HEADERS.contains(&kind) => {}
            kind => {
                return Err(format!("has a program header of unsupported type {kind:#x}"));
            }
        }
    }
    elf.tls = tls_header.map(|header| tls(file, header, &elf.segments)).transpose()?;
    for header in headers.iter().filter(|header| header.kind == PT_DYNAMIC) {
        relocations(file, header, &mut elf)?;
    }
    elf.entry = usize::try_from(u64_at(file, 24)?).unwrap_or(usize::MAX);
    let enters = |part: &Segment| part.access == Access::Execute && contains(part, elf.entry, 1);
    if !elf.segments.iter().any(enters) {
        return Err(format!("is entered at {:#x}, which is not executable", elf.entry));
    }
    Ok(elf)
}

fn headers(file: &[u8]) -> Result<Vec<Header>, String> {
    let (first, size, count) = (u64_at(file, 32)?, u16_at(file, 54)?, u16_at(file, 56)?);
    if size != 56 {
        return Err(format!("has program headers of {size} bytes"));
    }
    (0..u64::from(count))
        .map(|number| {
            let at =
                first.checked_add(number * 56).ok_or("has its program headers outside the file")?;
            Ok(Header {
                kind: u32_at(file, at)?,
                flags: u32_at(file, at.saturating_add(4))?,
                offset: u64_at(file, at.saturating_add(8))?,
                address: u64_at(file, at.saturating_add(16))?,
                file: u64_at(file, at.saturating_add(32))?,
                memory: u64_at(file, at.saturating_add(40))?,
                align: u64_at(file, at.saturating_add(48))?,
            })
        })
        .collect()
}

fn segment<'a>(file: &'a [u8], header: &Header, length: &mut usize) -> Result<Segment<'a>, String> {
    let access = match header.flags & 7 {
        flags if flags & 3 == 3 => return Err("has a writable and executable segment".into()),
        flags if flags & 1 != 0 => Access::Execute,
        flags if flags & 2 != 0 => Access::Write,
        _ => Access::Read,
    };
    let end = header.address.checked_add(header.memory).filter(|end| *end <= MAX_IMAGE_BYTES);
    let (Some(end), true) = (end, header.file <= header.memory) else {
        return Err(format!("has a segment of {} bytes at {:#x}", header.memory, header.address));
    };
    let (address, end) = (header.address as usize, end as usize);
    if address / PAGE * PAGE < *length {
        return Err(format!("has a segment at {address:#x} on a page of the previous segment"));
    }
    *length = end.next_multiple_of(PAGE);
    Ok(Segment {
        address,
        length: end - address,
        bytes: range(file, header.offset, header.file)?,
        access,
    })
}

fn tls<'a>(file: &'a [u8], header: &Header, parts: &[Segment<'_>]) -> Result<Tls<'a>, String> {
    let align = header.align.max(1);
    let fits =
        align.is_power_of_two() && align <= PAGE as u64 && header.address.is_multiple_of(align);
    if !fits || header.file > header.memory || header.memory > MAX_IMAGE_BYTES {
        return Err(format!("has {} bytes of PT_TLS aligned to {}", header.memory, header.align));
    }
    let bytes = range(file, header.offset, header.file)?;
    let address = usize::try_from(header.address).unwrap_or(usize::MAX);
    // Without bytes in the file, the address is never read and may have any value.
    let address = if bytes.is_empty() { 0 } else { address };
    if !bytes.is_empty() && !parts.iter().any(|part| contains(part, address, bytes.len())) {
        return Err(format!("has PT_TLS at {address:#x}, outside its segments"));
    }
    Ok(Tls { address, bytes, length: header.memory as usize, align: align as usize })
}

/// Reads the relocations that PT_DYNAMIC references.
fn relocations(file: &[u8], header: &Header, elf: &mut Elf<'_>) -> Result<(), String> {
    let (mut table, mut size) = (0, 0);
    for entry in range(file, header.offset, header.file)?.chunks_exact(16) {
        let (tag, value) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
        match tag {
            0 => break,
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
    let place = (usize::try_from(table), usize::try_from(size));
    let bytes = match place {
        (Ok(table), Ok(size)) => elf.segments.iter().find_map(|part| {
            let from = table.checked_sub(part.address)?;
            part.bytes.get(from..from.checked_add(size)?)
        }),
        _ => None,
    };
    let bytes =
        bytes.ok_or_else(|| format!("has its relocations at {table:#x}, outside its segments"))?;
    for entry in bytes.chunks_exact(24) {
        let (at, info, addend) = (u64_at(entry, 0)?, u64_at(entry, 8)?, u64_at(entry, 16)?);
        if info != R_X86_64_RELATIVE {
            return Err(format!(
                "has a relocation of type {} at {at:#x}, not R_X86_64_RELATIVE",
                info as u32
            ));
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if !elf.segments.iter().any(|part| contains(part, at, 8)) {
            return Err(format!("has a relocation at {at:#x}, outside its segments"));
        }
        elf.relocations.push((at, addend));
    }
    Ok(())
}

/// Whether a range of addresses is inside a segment.
fn contains(part: &Segment<'_>, address: usize, bytes: usize) -> bool {
    address
        .checked_sub(part.address)
        .and_then(|from| from.checked_add(bytes))
        .is_some_and(|end| end <= part.length)
}

/// Returns bytes of the file.
fn range(file: &[u8], offset: u64, length: u64) -> Result<&[u8], String> {
    let end = offset.checked_add(length).and_then(|end| usize::try_from(end).ok());
    end.and_then(|end| file.get(offset as usize..end))
        .ok_or_else(|| format!("ends before the {length} bytes at {offset:#x} that it references"))
}

fn u16_at(bytes: &[u8], at: u64) -> Result<u16, String> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: u64) -> Result<u32, String> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: u64) -> Result<u64, String> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: u64) -> Result<[u8; N], String> {
    let mut taken = [0; N];
    taken.copy_from_slice(range(bytes, at, N as u64)?);
    Ok(taken)
}

#[cfg(test)]
mod tests;
