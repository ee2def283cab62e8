//! Structures, measurements and signatures of every image, compared with the crates `sgx-isa` and `sgxs`.
//!
//! The tests record what the driver receives while an enclave is created: the bytes that the CPU reads.

use std::ops::Range;
use std::sync::{LazyLock, Mutex};
use std::{io, ptr, slice};

use rsa::traits::{PublicKeyParts, SignatureScheme};
use rsa::{BoxedUint, Pkcs1v15Sign, PrivateKey};
use sgx_isa::{AttributesFlags, Miscselect, PageType, Secinfo, Sigstruct, Tcs};
use sgxs::crypto::{SgxHashOps, SgxRsaOps};
use sgxs::sgxs::{CanonicalSgxsReader, Meas, MeasECreate, SecinfoTruncated, SgxsWrite};
use sgxs::sigstruct::{self, EnclaveHash, Signer};
use sha2::{Digest, Sha256};

use super::driver::Driver;
use super::initialized::InitializedEnclave;
use super::layout::{Content, FRAMES};
use super::pages::{self, Page, Pages};
use super::processor::Processor;
use super::structures::{Plain, SecInfo, Secs, SigStruct, WRITE};
use super::{key, signature};
use crate::conf::{Conf, PAGE};
use crate::elf::Elf;
use crate::images;

/// The hash that `sgxs` leaves to its user.
struct Hash(Sha256);

impl SgxHashOps for Hash {
    fn new() -> Self {
        Self(Sha256::new())
    }

    fn update(&mut self, data: &[u8]) {
        Digest::update(&mut self.0, data);
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The RSA operations that `sgxs` leaves to its user.
struct Rsa(PrivateKey);

impl SgxRsaOps for Rsa {
    type Error = rsa::Error;

    fn len(&self) -> usize {
        self.0.n().bit_width() as usize
    }

    fn sign_sha256_pkcs1v1_5_with_q1_q2<H: AsRef<[u8]>>(
        &self,
        hash: H,
    ) -> Result<(Vec<u8>, Vec<u8>, Vec<u8>), rsa::Error> {
        let signature = self.0.sign(Pkcs1v15Sign::new::<Sha256>(), hash.as_ref())?;
        // Long enough for all products.
        let [s, n] = [signature.as_slice(), &self.0.n_bytes()]
            .map(|number| BoxedUint::from_be_slice_truncated(number, 4 * 3072));
        let modulus = self.0.n();
        let q1 = s.wrapping_square().wrapping_div_vartime(modulus);
        let cube = s.wrapping_square().wrapping_mul(&s);
        let q2 =
            cube.wrapping_sub(q1.wrapping_mul(&s).wrapping_mul(&n)).wrapping_div_vartime(modulus);
        let [s, q1, q2] = [s, q1, q2].map(|number| number.to_le_bytes_trimmed_vartime().into());
        Ok((s, q1, q2))
    }

    fn verify_sha256_pkcs1v1_5<S: AsRef<[u8]>, H: AsRef<[u8]>>(
        &self,
        signature: S,
        hash: H,
    ) -> Result<(), rsa::Error> {
        let signature: Vec<u8> = signature.as_ref().iter().rev().copied().collect();
        Pkcs1v15Sign::new::<Sha256>().verify(self.0.as_ref(), hash.as_ref(), &signature)
    }

    fn e(&self) -> Vec<u8> {
        self.0.e().to_le_bytes_trimmed_vartime().into()
    }

    fn n(&self) -> Vec<u8> {
        self.0.n().to_le_bytes().into()
    }
}

static KEY: LazyLock<Rsa> = LazyLock::new(|| Rsa(key::generate().unwrap()));

/// Data that a driver received: structures of `sgx-isa`, and a stream of `sgxs` with all pages.
#[derive(Default)]
struct Received {
    secs: sgx_isa::Secs,
    tcs: Vec<(u64, Tcs)>,
    stream: Vec<u8>,
    signature: Sigstruct,
}

impl Received {
    /// Returns the measurement that `sgxs` computes.
    fn measurement(&self) -> [u8; 32] {
        let mut stream = self.stream.as_slice();
        let mut canonical = CanonicalSgxsReader::new(&mut stream);
        EnclaveHash::from_stream::<_, Hash>(&mut canonical).unwrap().hash()
    }
}

/// A driver that records what it receives.
#[derive(Default)]
struct Recorder(Mutex<Received>);

impl Driver for &Recorder {
    fn create(&self, secs: &Secs) -> io::Result<()> {
        let mut received = self.0.lock().unwrap();
        received.secs = sgx_isa::Secs::try_copy_from(secs.bytes()).unwrap();
        let (ssaframesize, size) = (received.secs.ssaframesize, received.secs.size);
        let create = Meas::ECreate(MeasECreate { ssaframesize, size });
        received.stream.write_meas(&create).unwrap();
        Ok(())
    }

    fn add(
        &self,
        offset: usize,
        mut bytes: &[u8],
        information: &SecInfo,
        measured: bool,
    ) -> io::Result<()> {
        let mut received = self.0.lock().unwrap();
        let flags = Secinfo::try_copy_from(information.bytes()).unwrap().flags;
        if flags.page_type() == PageType::Tcs as u8 {
            received.tcs.push((offset as u64, Tcs::try_copy_from(bytes).unwrap()));
        }
        let count = bytes.len() / PAGE;
        let content = measured.then_some(&mut bytes);
        let information = SecinfoTruncated { flags };
        received.stream.write_pages(content, count, offset as u64, information).unwrap();
        Ok(())
    }

    fn init(&self, signature: &SigStruct) -> io::Result<()> {
        self.0.lock().unwrap().signature = Sigstruct::try_copy_from(signature.bytes()).unwrap();
        Ok(())
    }

    fn map(&self, _: Range<usize>, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Returns what the driver receives for an enclave.
fn received(pages: &Pages) -> Received {
    let recorder = Recorder::default();
    InitializedEnclave::new(pages, &recorder).unwrap();
    recorder.0.into_inner().unwrap()
}

const CONF: Conf = Conf { heap_pages: 100, stack_pages: 3, tcs: 2, debug: false };
const PROCESSOR: Processor =
    Processor { xfrm: 0xe7, frame_pages: 2, largest: 1 << 36, epc: 1 << 32 };

/// Returns the signed pages of every image, by allocator.
fn enclaves(conf: Conf, processor: Processor) -> impl Iterator<Item = (&'static str, Pages)> {
    images::all().iter().map(move |image| {
        let elf = Elf::parse(image.bytes).unwrap();
        (image.allocator, Pages::new(&elf, &conf, &processor, &KEY.0).unwrap())
    })
}

#[test]
fn the_driver_receives_what_was_measured_and_signed() {
    let other = Conf { heap_pages: 16, stack_pages: 16, tcs: 1, debug: true };
    let small = Processor { xfrm: 7, frame_pages: 1, ..PROCESSOR };
    for (conf, processor) in [(CONF, PROCESSOR), (other, small)] {
        for (name, pages) in enclaves(conf, processor) {
            let received = received(&pages);
            let Received { secs, tcs, signature, .. } = &received;
            let layout = &pages.layout;
            assert_eq!(signature.enclavehash, received.measurement(), "{name}");
            assert_eq!(sigstruct::verify::<_, Hash>(signature, &*KEY), Ok(()), "{name}");

            let debug = if conf.debug { AttributesFlags::DEBUG } else { AttributesFlags::empty() };
            assert_eq!(secs.attributes.flags, AttributesFlags::MODE64BIT | debug, "{name}");
            assert_eq!(secs.attributes.xfrm, processor.xfrm, "{name}");
            assert_eq!(secs.attributes, signature.attributes, "{name}");
            assert_eq!(secs.miscselect, Miscselect::empty(), "{name}");
            assert_eq!(secs.size, layout.length() as u64, "{name}");
            assert!(secs.baseaddr.is_multiple_of(secs.size), "{name}");
            assert_eq!(secs.ssaframesize, processor.frame_pages, "{name}");

            assert_eq!(tcs.len(), conf.tcs, "{name}");
            for (number, (at, tcs)) in tcs.iter().enumerate() {
                assert_eq!(*at, layout.tcs_page(number) as u64, "{name}");
                assert_eq!(tcs.ossa, layout.frames(number).start as u64, "{name}");
                assert_eq!((tcs.cssa, tcs.nssa), (0, FRAMES as u32), "{name}");
                assert_eq!(tcs.oentry, layout.code_start() as u64, "{name}");
                assert_eq!(tcs.ofsbasgx, layout.block(number) as u64, "{name}");
                assert_eq!((tcs.fslimit, tcs.gslimit), (u32::MAX, u32::MAX), "{name}");
            }
        }
    }
}

#[test]
fn a_changed_byte_right_or_extent_changes_both_measurements() {
    for (name, mut pages) in enclaves(CONF, PROCESSOR) {
        let signed = pages.signature.body.measurement;
        let differs = |pages: &Pages, what: &str| {
            let ours = pages::measure(&pages.parts, pages.frame_pages, pages.layout.length());
            assert_eq!(ours, received(pages).measurement(), "{name}: {what}");
            assert_ne!(ours, signed, "{name}: {what}");
        };
        for part in 0..pages.parts.len() {
            let content = pages.parts[part].0.content;
            if let Some(count) = pages.parts[part].1.as_ref().map(Vec::len) {
                let (page, at) = (rand::random_range(0..count), rand::random_range(0..PAGE));
                let flip = |pages: &mut Pages| {
                    pages.parts[part].1.as_mut().unwrap()[page].0[at] ^= 1;
                };
                flip(&mut pages);
                differs(&pages, &format!("byte {at} of page {page} of {content:?}"));
                flip(&mut pages);
            } else {
                let count = pages.parts[part].0.range.len() / PAGE;
                pages.parts[part].1 = Some(vec![Page([0; PAGE]); count]);
                differs(&pages, &format!("measured zeros of {content:?}"));
                pages.parts[part].1 = None;
            }
            // A TCS with rights is not canonical.
            if !matches!(content, Content::SgxTcs(_)) {
                pages.parts[part].0.flags ^= WRITE;
                differs(&pages, &format!("right to write {content:?}"));
                pages.parts[part].0.flags ^= WRITE;
            }
        }
        pages.frame_pages += 1;
        differs(&pages, "length of a frame");
        pages.frame_pages -= 1;
        let last = pages.parts.pop().unwrap();
        differs(&pages, "a missing part");
        pages.parts.push(last);
        assert_eq!(received(&pages).measurement(), signed, "{name}: unchanged");
    }
}

#[test]
fn every_image_has_the_signature_that_sgxs_makes() {
    for (name, pages) in enclaves(CONF, PROCESSOR) {
        let mut signer = Signer::new(EnclaveHash::new(received(&pages).measurement()));
        signer
            .date(0, 0, 0)
            .attributes_flags(AttributesFlags::MODE64BIT, !0)
            .attributes_xfrm(PROCESSOR.xfrm, !0);
        let theirs = signer.sign::<_, Hash>(&*KEY).unwrap();
        let mut pairs = pages.signature.bytes().iter().zip(theirs.as_ref());
        assert_eq!(pairs.len(), Sigstruct::UNPADDED_SIZE, "{name}");
        assert_eq!(pairs.position(|(ours, theirs)| ours != theirs), None, "{name}: wrong byte");
    }
}

#[test]
fn a_signature_with_any_bit_changed_is_invalid() {
    let (_, pages) = enclaves(CONF, PROCESSOR).next().unwrap();
    let mut signed = pages.signature;
    assert!(signature::is_valid(&signed));
    // Header and body are signed; the signature fails itself.
    let length = signed.bytes().len();
    let covered = |at: usize| at < 128 || (516..1028).contains(&at);
    for at in 0..length {
        let bit = 1 << rand::random_range(0..8);
        let flip = |signed: &mut SigStruct| {
            // SAFETY: a SIGSTRUCT consists of its bytes, and any bytes are a valid value.
            let bytes =
                unsafe { slice::from_raw_parts_mut(ptr::from_mut(signed).cast::<u8>(), length) };
            bytes[at] ^= bit;
        };
        flip(&mut signed);
        assert!(!signature::is_valid(&signed), "byte {at}, bit {bit:#x}");
        let theirs = Sigstruct::try_copy_from(signed.bytes()).unwrap();
        let verified = sigstruct::verify::<_, Hash>(&theirs, &*KEY);
        assert_eq!(verified.is_err(), covered(at), "byte {at}, bit {bit:#x}");
        flip(&mut signed);
    }
    assert!(signature::is_valid(&signed));
}
