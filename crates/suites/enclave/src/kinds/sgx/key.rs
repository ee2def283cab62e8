//! The key that signs enclaves: RSA of 3072 bits with exponent 3, as SGX requires.
//!
//! The key vouches for nothing: the kernel's driver starts enclaves of any key, and no one attests to this one. It is
//! generated once per host and kept with the artefacts.

use std::path::Path;

use lab::artefact::{self, Recipe};
use lab::sample::Failure;
use rsa::PrivateKey;
use rsa::pkcs8::{DecodePrivateKey, EncodePrivateKey, LineEnding};

/// The public exponent.
pub(super) const EXPONENT: u32 = 3;
/// The length of the modulus, in bits.
const BITS: usize = 3072;
/// The file that stores the key.
const FILE: &str = "key.pem";

/// Returns the host's key; generates it if there is none.
///
/// # Errors
/// Returns an error if the key cannot be generated, stored or read.
pub(super) fn of_host() -> Result<PrivateKey, Failure> {
    let folder = artefact::prepare(&Recipe {
        name: "sgx-key".into(),
        inputs: vec![b"RSA of 3072 bits with exponent 3, PKCS #8".into()],
        make: |_, folder| {
            let stored = generate()?.write_pkcs8_pem_file(folder.join(FILE), LineEnding::LF);
            stored.map_err(|why| Failure::failed(format!("store the key for SGX enclaves: {why}")))
        },
    })?;
    read(&folder.join(FILE))
}

fn read(file: &Path) -> Result<PrivateKey, Failure> {
    PrivateKey::read_pkcs8_pem_file(file).map_err(|why| {
        let file = file.display();
        Failure::failed(format!("the key for SGX enclaves, {file}: {why}; delete it"))
    })
}

/// Generates a key.
///
/// # Errors
/// Returns an error if the system has no random numbers.
pub(super) fn generate() -> Result<PrivateKey, Failure> {
    PrivateKey::new_with_exp(&mut rand::rng(), BITS, EXPONENT.into())
        .map_err(|why| Failure::failed(format!("generate a key for SGX enclaves: {why}")))
}

#[cfg(test)]
mod tests {
    use rsa::traits::PublicKeyParts;

    use super::*;

    #[test]
    fn a_host_has_one_key() {
        assert_eq!(of_host().unwrap(), of_host().unwrap());
    }

    #[test]
    fn a_stored_key_is_read_and_a_damaged_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert!(read(&file).unwrap_err().why.contains(FILE));
        let key = generate().unwrap();
        assert_eq!((key.n().bit_width(), key.e_bytes()), (3072, [3].into()));
        key.write_pkcs8_pem_file(&file, LineEnding::LF).unwrap();
        assert_eq!(read(&file).unwrap(), key);
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, &text[..text.len() / 2]).unwrap();
        let why = read(&file).unwrap_err().why;
        assert!(why.contains("key.pem") && why.contains("delete it"), "{why}");
    }
}
