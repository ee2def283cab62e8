//! The key that signs enclaves: RSA of 3072 bits with exponent 3, as SGX requires.
//!
//! The key vouches for nothing: the kernel's driver starts enclaves of any key, and no one attests to this one. It is
//! generated once per host and kept with the artefacts. The primes come from `crypto-primes`; the crate `rsa` is not
//! used because its release 0.9 has an open advisory (RUSTSEC-2023-0071) and 0.10 is a release candidate.

use std::path::Path;

use crypto_bigint::U1536;
use crypto_primes::{Flavor, random_prime};
use lab::artefact::{self, Recipe};
use lab::sample::Failure;
use num_bigint::BigUint;

/// The public exponent.
pub(super) const EXPONENT: u32 = 3;
/// The length of a prime, in bytes.
const PRIME: usize = 192;
/// The file that stores the primes.
const FILE: &str = "primes";

/// An RSA key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// The modulus.
    pub(super) modulus: BigUint,
    /// The private exponent.
    private: BigUint,
}

impl Key {
    /// Returns the host's key; generates it if there is none.
    ///
    /// # Errors
    /// Returns an error if the key cannot be stored or read.
    pub(super) fn of_host() -> Result<Self, Failure> {
        let folder = artefact::prepare(&Recipe {
            name: "sgx-key".into(),
            inputs: vec![b"two primes of 1536 bits, the lowest byte first".into()],
            make: |_, folder| std::fs::write(folder.join(FILE), primes()).map_err(Failure::from),
        })?;
        Self::read(&folder.join(FILE))
    }

    fn read(file: &Path) -> Result<Self, Failure> {
        let wrong = |why: String| {
            Failure::failed(format!(
                "the key for SGX enclaves, {}: {why}: delete it",
                file.display()
            ))
        };
        let bytes = std::fs::read(file).map_err(|why| wrong(why.to_string()))?;
        match bytes.split_at_checked(PRIME) {
            Some((p, q)) if q.len() == PRIME => Ok(Self::of(p, q)),
            _ => Err(wrong(format!("{} bytes, expected {}", bytes.len(), 2 * PRIME))),
        }
    }

    /// Computes the key of two primes, each of which is 2 modulo 3.
    fn of(p: &[u8], q: &[u8]) -> Self {
        let (p, q) = (BigUint::from_bytes_le(p), BigUint::from_bytes_le(q));
        let order = (&p - 1u32) * (&q - 1u32);
        // Both factors are 1 modulo 3, so 2 * order + 1 is a multiple of 3.
        Self { modulus: p * q, private: (order * 2u32 + 1u32) / EXPONENT }
    }

    /// Generates a key for a test.
    #[cfg(test)]
    pub(super) fn new() -> Self {
        let primes = primes();
        Self::of(&primes[..PRIME], &primes[PRIME..])
    }

    /// Returns the number whose cube is `number` modulo the key's modulus.
    pub(super) fn sign(&self, number: &BigUint) -> BigUint {
        number.modpow(&self.private, &self.modulus)
    }
}

/// Generates two primes whose product has 3072 bits; returns their bytes, least significant first.
fn primes() -> Vec<u8> {
    loop {
        let (p, q) = (prime(), prime());
        if p != q && (&p * &q).bits() == 2 * 8 * PRIME as u64 {
            return [p, q].iter().flat_map(BigUint::to_bytes_le).collect();
        }
    }
}

/// Generates a random prime of 1536 bits that is 2 modulo 3, so that 3 has an inverse modulo the key's order.
fn prime() -> BigUint {
    loop {
        let prime: U1536 = random_prime(&mut rand::rng(), Flavor::Any, 8 * PRIME as u32);
        let prime = BigUint::from_bytes_be(&prime.to_be_bytes());
        if &prime % EXPONENT == BigUint::from(2u32) {
            return prime;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_of_a_signature_is_the_signed_number() {
        let key = Key::new();
        assert_eq!(key.modulus.bits(), 3072);
        for number in [2u32, 3, 0xdead_beef] {
            let signed = key.sign(&BigUint::from(number));
            assert_ne!(signed, BigUint::from(number));
            assert_eq!(signed.modpow(&EXPONENT.into(), &key.modulus), BigUint::from(number));
        }
    }

    #[test]
    fn a_truncated_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert!(Key::read(&file).unwrap_err().why.contains(FILE));
        std::fs::write(&file, [1; PRIME]).unwrap();
        assert!(Key::read(&file).unwrap_err().why.contains("192 bytes, expected 384"));
        let primes = primes();
        std::fs::write(&file, &primes).unwrap();
        let key = Key::read(&file).unwrap();
        assert_eq!(key.modulus, Key::of(&primes[..PRIME], &primes[PRIME..]).modulus);
    }
}
