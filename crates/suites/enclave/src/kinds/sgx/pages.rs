//! An enclave before its creation: its pages, and the signature of their measurement. Both depend only on image and
//! configuration, not on the enclave's address, so they are computed once for each.

use std::sync::{Arc, Mutex, PoisonError};

use enclave_interface::ThreadBlock;
use lab::sample::Failure;
use rsa::PrivateKey;

use super::code::{self, Block};
use super::key;
use super::layout::{Content, Layout, Part};
use super::measurement::Measurement;
use super::processor::Processor;
use super::signature;
use super::structures::{Attributes, DEBUG, GprSgx, MODE64, Plain, SecInfo, SgxTcs, SigStruct};
use crate::conf::{Conf, PAGE};
use crate::elf::{Access, Elf};

/// Length of a relocation in the tables: a location and a value.
const RELOCATION: usize = 16;

/// A page.
#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; PAGE]);

/// Returns the bytes of pages.
pub(super) fn bytes(pages: &[Page]) -> &[u8] {
    // SAFETY: a page consists of its bytes.
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
}

/// The content of an enclave that can be created.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) layout: Layout,
    /// All parts with their content. `None` is a part of zeros, whose bytes are not measured.
    pub(super) parts: Vec<(Part, Option<Vec<Page>>)>,
    pub(super) attributes: Attributes,
    pub(super) frame_pages: u32,
    pub(super) signature: Box<SigStruct>,
}

impl Pages {
    /// Returns the pages of an image that lives as long as the program, signed with the host's key. They are computed
    /// at first use.
    ///
    /// # Errors
    /// As [`Self::new`], or if there is no key.
    pub(super) fn of(
        elf: &Elf<'static>,
        conf: &Conf,
        processor: &Processor,
    ) -> Result<Arc<Self>, Failure> {
        static MADE: Mutex<Vec<(usize, Conf, Arc<Pages>)>> = Mutex::new(Vec::new());
        // Each image has its own bytes, at a constant address.
        let image = elf.segments.first().map_or(0, |segment| segment.bytes.as_ptr() as usize);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., pages)) = made.iter().find(|one| (one.0, one.1) == (image, *conf)) {
            return Ok(Arc::clone(pages));
        }
        let pages = Arc::new(Self::new(elf, conf, processor, &key::of_host()?)?);
        made.push((image, *conf, Arc::clone(&pages)));
        Ok(pages)
    }

    /// Fills the pages and signs them.
    ///
    /// # Errors
    /// Returns an error if the image has relocations in read-only pages, or if the enclave exceeds a limit of the CPU
    /// or its memory.
    pub(super) fn new(
        elf: &Elf<'_>,
        conf: &Conf,
        processor: &Processor,
        key: &PrivateKey,
    ) -> Result<Self, Failure> {
        let tables = tables(elf)?;
        let frame_pages = processor.frame_pages;
        let code = code::code();
        let layout = Layout::new(elf, conf, code.len(), tables.len(), frame_pages as usize)?;
        let (length, largest) = (layout.length(), processor.largest);
        if length as u64 > largest {
            return Err(Failure::unavailable(
                format!("an enclave of {length} bytes exceeds this CPU's limit of {largest}"),
                "use fewer pages",
            ));
        }
        let parts = layout.parts(elf);
        let used = epc_bytes(&parts);
        if used > processor.epc {
            return Err(Failure::unavailable(
                format!(
                    "the enclave requires {used} bytes of SGX memory (EPC) of {}, so the kernel would swap its pages",
                    processor.epc
                ),
                "use fewer pages, or raise the size of the SGX memory (PRMRR, EPC) in the firmware",
            ));
        }
        let fill = |part: Part| {
            let content = match part.content {
                Content::Segment(number) => {
                    let segment = &elf.segments[number];
                    Some(pages(&part, segment.address - part.range.start, segment.bytes))
                }
                Content::Code => Some(pages(&part, 0, code)),
                Content::Tables => Some(pages(&part, 0, &tables)),
                Content::SgxTcs(tcs) => Some(pages(&part, 0, tcs_page(&layout, tcs).bytes())),
                Content::Thread(tcs) => {
                    let block = block(elf, &layout, tcs, frame_pages as usize);
                    Some(pages(&part, layout.block(tcs) - part.range.start, code::bytes(&block)))
                }
                Content::Heap | Content::Stack | Content::Frames => None,
            };
            (part, content)
        };
        let parts: Vec<_> = parts.into_iter().map(fill).collect();
        let debug = if conf.debug { DEBUG } else { 0 };
        let attributes = Attributes { flags: MODE64 | debug, xfrm: processor.xfrm };
        let measured = measure(&parts, frame_pages, length);
        let signature = signature::sign(key, measured, attributes)?;
        Ok(Self { layout, parts, attributes, frame_pages, signature })
    }
}

/// Returns how much EPC an enclave needs: its pages, a SECS, and the driver's version arrays of 512 pages each.
fn epc_bytes(parts: &[Part]) -> u64 {
    let pages = 1 + parts.iter().map(|part| part.range.len() / PAGE).sum::<usize>();
    ((pages + pages.div_ceil(512)) * PAGE) as u64
}

/// Returns the measurement that the enclave will have.
pub(super) fn measure(
    parts: &[(Part, Option<Vec<Page>>)],
    frame_pages: u32,
    length: usize,
) -> [u8; 32] {
    let mut measured = Measurement::begin(frame_pages, length as u64);
    for (part, content) in parts {
        let information = SecInfo::new(part.flags);
        for (number, at) in part.range.clone().step_by(PAGE).enumerate() {
            measured.add(at as u64, &information);
            if let Some(content) = content {
                measured.extend(at as u64, &content[number].0);
            }
        }
    }
    measured.end()
}

/// Returns the pages of a part with `bytes` at offset `at`, and zeros elsewhere.
fn pages(part: &Part, at: usize, bytes: &[u8]) -> Vec<Page> {
    let mut pages = vec![Page([0; PAGE]); part.range.len() / PAGE];
    let mut rest = bytes;
    let mut within = at;
    for page in pages.iter_mut().skip(at / PAGE) {
        let start = within % PAGE;
        let (now, later) = rest.split_at(rest.len().min(PAGE - start));
        page.0[start..start + now.len()].copy_from_slice(now);
        (rest, within) = (later, 0);
    }
    pages
}

/// Returns the table of relocations.
fn tables(elf: &Elf<'_>) -> Result<Vec<u8>, Failure> {
    let mut tables = Vec::with_capacity(elf.relocations.len() * RELOCATION);
    for (at, addend) in &elf.relocations {
        // Code inside writes them, so that the measurement does not depend on the enclave's address.
        let written = elf.segments.iter().any(|segment| {
            segment.access == Access::Write
                && (segment.address..segment.address + segment.length).contains(at)
        });
        if !written {
            return Err(Failure::failed(format!(
                "the enclave's image has a relocation at {at:#x} in a read-only page: link it with -z norelro"
            )));
        }
        tables.extend((*at as u64).to_le_bytes());
        tables.extend(addend.to_le_bytes());
    }
    Ok(tables)
}

fn tcs_page(layout: &Layout, tcs: usize) -> SgxTcs {
    let mut made = SgxTcs::zero();
    made.frames = layout.frames(tcs).start as u64;
    made.frame_count = super::layout::FRAMES as u32;
    made.entry = layout.code_start() as u64;
    // GS is not used inside, but must have a valid value.
    made.fs = layout.block(tcs) as u64;
    made.gs = made.fs;
    made.fs_limit = u32::MAX;
    made.gs_limit = u32::MAX;
    made
}

fn block(elf: &Elf<'_>, layout: &Layout, tcs: usize, frame_pages: usize) -> Block {
    let (template, template_length, variables) = elf.tls.map_or((0, 0, 0), |tls| {
        (tls.address, tls.bytes.len(), tls.length.next_multiple_of(tls.align))
    });
    let [own, host_stack, ocall, host_fs, host_gs] = [0; 5];
    let [base, exit, host_frame, inside] = [0; 4];
    Block {
        thread: ThreadBlock {
            own,
            host_stack,
            ocall,
            number: tcs as u64,
            host_fs,
            host_gs,
            reserved: [0; 10],
        },
        tcs_page: layout.tcs_page(tcs) as u64,
        own: layout.block(tcs) as u64,
        stack: layout.stack(tcs).end as u64,
        entry: elf.entry as u64,
        // At the end of the first frame.
        saved: (layout.frames(tcs).start + frame_pages * PAGE - size_of::<GprSgx>()) as u64,
        relocations: layout.tables_start() as u64,
        relocation_count: elf.relocations.len() as u64,
        template: template as u64,
        template_length: template_length as u64,
        variables: (layout.block(tcs) - variables) as u64,
        base,
        exit,
        host_frame,
        inside,
    }
}
