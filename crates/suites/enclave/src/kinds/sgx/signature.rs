//! The signature without which the CPU initialises no enclave: SIGSTRUCT.
//!
//! Source: Intel SDM, volume 3D, "Enclave signature structure" and the operation of EINIT.

use num_bigint::BigUint;
use sha2::{Digest, Sha256};

use super::key::{EXPONENT, Key};
use super::structures::{Attributes, Large, Plain, SigStruct, SignedBody, SignedHeader};

/// The header's two constants, from the manual.
const FIRST: [u8; 16] = [6, 0, 0, 0, 0xe1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
const SECOND: [u8; 16] = [1, 1, 0, 0, 0x60, 0, 0, 0, 0x60, 0, 0, 0, 1, 0, 0, 0];

/// The prefix that identifies SHA-256. Source: RFC 8017, section 9.2, note 1.
const SHA_256: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];

/// Signs an enclave with exactly these attributes. The date is 0, because nothing checks it.
pub(super) fn sign(key: &Key, measurement: [u8; 32], attributes: Attributes) -> Box<SigStruct> {
    let mut made = Box::new(SigStruct::zero());
    made.header.first = FIRST;
    made.header.second = SECOND;
    made.modulus = large(&key.modulus);
    made.exponent = EXPONENT;
    made.body.misc_mask = u32::MAX;
    made.body.attributes = attributes.words();
    made.body.attributes_mask = [u32::MAX; 4];
    made.body.measurement = measurement;
    let signed = key.sign(&padded(&made.header, &made.body));
    let square = &signed * &signed;
    let q1 = &square / &key.modulus;
    let q2 = &signed * (square - &q1 * &key.modulus) / &key.modulus;
    made.signature = large(&signed);
    made.q1 = large(&q1);
    made.q2 = large(&q2);
    made
}

/// Returns the number to sign: the hash, padded to the length of the modulus. Source: RFC 8017, section 9.2.
fn padded(header: &SignedHeader, body: &SignedBody) -> BigUint {
    let hash = Sha256::new().chain_update(header.bytes()).chain_update(body.bytes()).finalize();
    let tail = [&SHA_256[..], &hash].concat();
    let mut bytes = [0xff; size_of::<Large>()];
    let end = bytes.len() - tail.len();
    bytes[..2].copy_from_slice(&[0, 1]);
    bytes[end - 1] = 0;
    bytes[end..].copy_from_slice(&tail);
    BigUint::from_bytes_be(&bytes)
}

/// Returns the bytes of a number below the modulus, least significant first.
fn large(number: &BigUint) -> Large {
    let mut large = [0; size_of::<Large>()];
    let bytes = number.to_bytes_le();
    large[..bytes.len()].copy_from_slice(&bytes);
    large
}

/// Checks a signature as EINIT does, by multiplications only. For tests and the emulation.
#[cfg(test)]
pub(super) fn is_valid(signed: &SigStruct) -> bool {
    let number = |bytes: &Large| BigUint::from_bytes_le(bytes);
    let (modulus, signature) = (number(&signed.modulus), number(&signed.signature));
    let (q1, q2) = (number(&signed.q1), number(&signed.q2));
    let square = &signature * &signature;
    if q1 > &square / &modulus || &q1 * &modulus > square {
        return false;
    }
    let rest = &signature * (square - &q1 * &modulus);
    signed.exponent == EXPONENT
        && signed.header.first == FIRST
        && signed.header.second == SECOND
        && &q2 * &modulus <= rest
        && rest - &q2 * &modulus == padded(&signed.header, &signed.body)
}

#[cfg(test)]
mod tests {
    use super::super::structures::{DEBUG, MODE64};
    use super::*;

    #[test]
    fn a_signature_is_valid_only_for_the_signed_data() {
        let key = Key::new();
        let attributes = Attributes { flags: MODE64 | DEBUG, xfrm: 7 };
        let signed = sign(&key, [7; 32], attributes);
        assert!(is_valid(&signed));
        // With the public key, without the quotients.
        let signature = BigUint::from_bytes_le(&signed.signature);
        let cube = signature.modpow(&EXPONENT.into(), &BigUint::from_bytes_le(&signed.modulus));
        assert_eq!(cube, padded(&signed.header, &signed.body));
        let change = |change: fn(&mut SigStruct)| {
            let mut other = signed.clone();
            change(&mut other);
            is_valid(&other)
        };
        assert!(!change(|other| other.body.measurement[0] ^= 1));
        assert!(!change(|other| other.body.attributes[0] ^= 2));
        assert!(!change(|other| other.signature[9] ^= 1));
        assert!(!change(|other| other.q1[9] ^= 1));
        assert!(!change(|other| other.q2[9] ^= 1));
        assert!(!change(|other| other.modulus[9] ^= 4));
        assert!(!change(|other| other.exponent = 5));
    }
}
