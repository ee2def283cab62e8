//! The key that enclaves are signed with: RSA of 3072 bits with the exponent 3, as the processor wants it.
//!
//! It vouches for nothing: the kernel's driver starts enclaves of any key, and nobody attests to ours. It is
//! made once a host and kept with the artefacts.

use std::path::Path;

use lab::artefact::{self, Recipe};
use lab::sample::Failure;
use num_bigint::BigUint;
use rand::Rng;

/// The exponent.
pub(super) const EXPONENT: u32 = 3;
/// The bytes of a prime.
const PRIME: usize = 192;
/// The file that keeps the primes.
const FILE: &str = "primes";
/// Small primes, by which most numbers are no primes: those below this.
const SMALL: u32 = 2000;
/// Rounds of Miller and Rabin's test. For random numbers of this length one would do.
const WITNESSES: u32 = 8;

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// What numbers are taken modulo.
    pub(super) modulus: BigUint,
    /// What undoes the exponent.
    private: BigUint,
}

impl Key {
    /// The host's, made where there is none yet.
    ///
    /// # Errors
    /// It cannot be kept or read.
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
            Failure::failed(format!("the key of enclaves {}: {why}: remove it", file.display()))
        };
        let bytes = std::fs::read(file).map_err(|why| wrong(why.to_string()))?;
        match bytes.split_at_checked(PRIME) {
            Some((p, q)) if q.len() == PRIME => Ok(Self::of(p, q)),
            _ => Err(wrong(format!("it has {} bytes, not {}", bytes.len(), 2 * PRIME))),
        }
    }

    /// Of two primes, each one more than no multiple of 3.
    fn of(p: &[u8], q: &[u8]) -> Self {
        let (p, q) = (BigUint::from_bytes_le(p), BigUint::from_bytes_le(q));
        let order = (&p - 1u32) * (&q - 1u32);
        // Both factors are 1 modulo 3, so 2 * order + 1 is a multiple of it.
        Self { modulus: p * q, private: (order * 2u32 + 1u32) / EXPONENT }
    }

    /// A key of a test's own.
    #[cfg(test)]
    pub(super) fn new() -> Self {
        let primes = primes();
        Self::of(&primes[..PRIME], &primes[PRIME..])
    }

    /// The number whose cube is this one.
    pub(super) fn sign(&self, number: &BigUint) -> BigUint {
        number.modpow(&self.private, &self.modulus)
    }
}

/// Two primes, the lowest byte first.
fn primes() -> Vec<u8> {
    let one = prime();
    let other = loop {
        let other = prime();
        if other != one {
            break other;
        }
    };
    [one, other].iter().flat_map(BigUint::to_bytes_le).collect()
}

/// A random prime of 1536 bits, the highest two of which are set: the product of two has all its bits.
fn prime() -> BigUint {
    let small: Vec<u32> = (3..SMALL).filter(|n| (2..*n).all(|by| n % by != 0)).collect();
    loop {
        let mut bytes = [0; PRIME];
        rand::rng().fill_bytes(&mut bytes);
        bytes[0] |= 1;
        bytes[PRIME - 1] |= 0xc0;
        let number = BigUint::from_bytes_le(&bytes);
        let divided = small.iter().any(|by| &number % *by == BigUint::ZERO);
        if !divided && &number % EXPONENT == BigUint::from(2u32) && is_prime(&number) {
            return number;
        }
    }
}

/// Miller and Rabin's test of an odd number.
fn is_prime(number: &BigUint) -> bool {
    let one = BigUint::from(1u32);
    let less = number - 1u32;
    let twos = less.trailing_zeros().unwrap_or(0);
    let odd = &less >> twos;
    (0..WITNESSES).all(|_| {
        let mut bytes = vec![0; number.to_bytes_le().len()];
        rand::rng().fill_bytes(&mut bytes);
        let witness = BigUint::from_bytes_le(&bytes) % number;
        let mut power = witness.modpow(&odd, number);
        if power == one || power == less || witness == BigUint::ZERO {
            return true;
        }
        (1..twos).any(|_| {
            power = power.modpow(&BigUint::from(2u32), number);
            power == less
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_told_from_products() {
        let primes = (3..2000u32).step_by(2).filter(|n| is_prime(&BigUint::from(*n)));
        let divided = (3..2000u32).step_by(2).filter(|n| (2..*n).all(|by| n % by != 0));
        assert!(primes.eq(divided));
        // Of Carmichael, and of Fermat (2^128 + 1), by whose own test they would be primes.
        for product in [561u128, 41041, 825_265, (1 << 64) + 1] {
            assert!(!is_prime(&BigUint::from(product)), "{product}");
        }
        assert!(is_prime(&((BigUint::from(1u32) << 521) - 1u32)), "Mersenne's");
    }

    #[test]
    fn what_is_signed_comes_back_by_its_cube() {
        let key = Key::new();
        assert_eq!(key.modulus.bits(), 3072);
        for number in [2u32, 3, 0xdead_beef] {
            let signed = key.sign(&BigUint::from(number));
            assert_ne!(signed, BigUint::from(number));
            assert_eq!(signed.modpow(&EXPONENT.into(), &key.modulus), BigUint::from(number));
        }
    }

    #[test]
    fn a_key_that_is_half_there_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert!(Key::read(&file).unwrap_err().why.contains(FILE));
        std::fs::write(&file, [1; PRIME]).unwrap();
        assert!(Key::read(&file).unwrap_err().why.contains("192 bytes, not 384"));
        let primes = primes();
        std::fs::write(&file, &primes).unwrap();
        let key = Key::read(&file).unwrap();
        assert_eq!(key.modulus, Key::of(&primes[..PRIME], &primes[PRIME..]).modulus);
    }
}
