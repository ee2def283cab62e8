//! The signature without which the CPU initialises no enclave: SIGSTRUCT.
//!
//! Source: Intel SDM, volume 3D, "Enclave signature structure" and the operation of EINIT.

use lab::sample::Failure;
use rsa::traits::PublicKeyParts;
use rsa::{BoxedUint, Pkcs1v15Sign, PrivateKey};
use sha2::{Digest, Sha256};

use super::key::EXPONENT;
use super::structures::{Attributes, Large, Plain, SigStruct};

/// Length of a product, in bits.
const PRODUCT: u32 = 2 * 8 * size_of::<Large>() as u32;

/// The header's two constants, from the manual.
const FIRST: [u8; 16] = [6, 0, 0, 0, 0xe1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
const SECOND: [u8; 16] = [1, 1, 0, 0, 0x60, 0, 0, 0, 0x60, 0, 0, 0, 1, 0, 0, 0];

/// Signs an enclave with exactly these attributes. The date is 0, because nothing checks it.
///
/// # Errors
/// Returns an error if the system has no random numbers, which blind the signing.
pub(super) fn sign(
    key: &PrivateKey,
    measurement: [u8; 32],
    attributes: Attributes,
) -> Result<Box<SigStruct>, Failure> {
    let mut made = Box::new(SigStruct::zero());
    made.header.first = FIRST;
    made.header.second = SECOND;
    made.modulus = large(key.n());
    made.exponent = EXPONENT;
    made.body.misc_mask = u32::MAX;
    made.body.attributes = attributes.words();
    made.body.attributes_mask = [u32::MAX; 4];
    made.body.measurement = measurement;
    let signature = key
        .sign(Pkcs1v15Sign::new::<Sha256>(), &hash(&made))
        .map_err(|why| Failure::failed(format!("sign an SGX enclave: {why}")))?;
    let signature = BoxedUint::from_be_slice_truncated(&signature, PRODUCT);
    let (q1, q2) = quotients(&signature, key);
    made.signature = large(&signature);
    made.q1 = large(&q1);
    made.q2 = large(&q2);
    Ok(made)
}

/// Hashes the signed parts.
fn hash(signed: &SigStruct) -> [u8; 32] {
    Sha256::new()
        .chain_update(signed.header.bytes())
        .chain_update(signed.body.bytes())
        .finalize()
        .into()
}

/// Returns Q1 and Q2 of a signature, which has the length of a product.
fn quotients(signature: &BoxedUint, key: &impl PublicKeyParts) -> (BoxedUint, BoxedUint) {
    let (q1, rest) = signature.wrapping_square().div_rem_vartime(key.n());
    // signature^3 - Q1 * signature * modulus is signature * rest.
    (q1, signature.wrapping_mul(&rest).wrapping_div_vartime(key.n()))
}

/// Returns the bytes of a number below the modulus, least significant first.
fn large(number: &BoxedUint) -> Large {
    let mut large = [0; size_of::<Large>()];
    let bytes = number.to_le_bytes_trimmed_vartime();
    large[..bytes.len()].copy_from_slice(&bytes);
    large
}

/// Checks a signature as EINIT does. For tests and the emulation.
#[cfg(test)]
pub(super) fn is_valid(signed: &SigStruct) -> bool {
    let modulus = BoxedUint::from_le_slice_vartime(&signed.modulus);
    let Ok(key) = rsa::PublicKey::new(modulus, EXPONENT.into()) else { return false };
    let mut bytes = signed.signature;
    bytes.reverse();
    if key.verify(Pkcs1v15Sign::new::<Sha256>(), &hash(signed), &bytes).is_err() {
        return false;
    }
    let signature = BoxedUint::from_le_slice_truncated(&signed.signature, PRODUCT);
    let (q1, q2) = quotients(&signature, &key);
    signed.exponent == EXPONENT
        && signed.header.first == FIRST
        && signed.header.second == SECOND
        && signed.unsigned == [0; 12]
        && (signed.q1, signed.q2) == (large(&q1), large(&q2))
}
