//! Files of other programs, with their digests.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use lab::format::hexadecimal;
use machine::file;
use sha2::{Digest as _, Sha256};

use crate::error::ExchangeError;

/// Maximum size of a file that is read whole. The largest known dump of InstLatX64 has 600 KB.
const MAX_BYTES: u64 = 16 << 20;

/// Content of a file that was read whole.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    /// Name of the file.
    pub(crate) file: String,
    /// Content. Bytes that are not UTF-8 are replaced: dumps contain names of CPUs in any encoding.
    pub(crate) text: String,
    /// Digest of its bytes.
    pub(crate) digest: Digest,
}

/// Size and SHA-256 digest of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest {
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Digest in hexadecimal digits.
    pub(crate) sha256: String,
}

/// Returns the path and the name of an input; `-` is standard input.
pub(crate) fn named(path: &Path) -> (PathBuf, String) {
    match path.to_str() {
        Some("-") => ("/dev/stdin".into(), "standard input".into()),
        _ => (path.into(), path.display().to_string()),
    }
}

impl Input {
    /// Reads a file, or standard input for `-`.
    ///
    /// # Errors
    /// Returns an error if it cannot be read or has more than 16 MiB.
    pub(crate) fn read(path: &Path) -> Result<Self, ExchangeError> {
        let (path, file) = named(path);
        let bytes = file::read_input(&path, MAX_BYTES);
        let bytes = bytes.map_err(|why| ExchangeError::Read { file: file.clone(), why })?;
        Ok(Self::of(file, &bytes))
    }

    /// Returns an input of some bytes.
    pub(crate) fn of(file: String, bytes: &[u8]) -> Self {
        let digest =
            Digest { bytes: bytes.len() as u64, sha256: hexadecimal(&Sha256::digest(bytes)) };
        // A byte order mark is no part of the text.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        Self { file, text: String::from_utf8_lossy(bytes).into_owned(), digest }
    }

    /// Returns the lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }
}

/// Reader that computes the digest of the bytes that pass it. It refuses a file that is too large, and a part between two
/// delimiters that is too large, because a parser keeps such a part in memory.
pub(crate) struct DigestingReader<R> {
    inner: R,
    hasher: Sha256,
    bytes: u64,
    max_bytes: u64,
    delimiter: u8,
    since_delimiter: usize,
    max_part: usize,
}

impl<R: Read> DigestingReader<R> {
    pub(crate) fn new(inner: R, max_bytes: u64, delimiter: u8, max_part: usize) -> Self {
        let (hasher, bytes, since_delimiter) = (Sha256::new(), 0, 0);
        Self { inner, hasher, bytes, max_bytes, delimiter, since_delimiter, max_part }
    }

    /// Returns the digest of what was read.
    pub(crate) fn digest(&self) -> Digest {
        let sha256 = hexadecimal(&self.hasher.clone().finalize());
        Digest { bytes: self.bytes, sha256 }
    }
}

impl<R: Read> Read for DigestingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let read = &buffer[..count];
        self.hasher.update(read);
        self.bytes += count as u64;
        if self.bytes > self.max_bytes {
            let why = format!("has more than {} MiB", self.max_bytes >> 20);
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        for byte in read {
            self.since_delimiter =
                if *byte == self.delimiter { 0 } else { self.since_delimiter + 1 };
            if self.since_delimiter > self.max_part {
                let delimiter = char::from(self.delimiter);
                let why = format!("has no '{delimiter}' within {} KiB", self.max_part >> 10);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_bytes() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest = Input::of(String::new(), b"").digest;
        assert_eq!(digest, Digest { bytes: 0, sha256: empty.into() });
        let text = b"\xef\xbb\xbfAMD\xae\n";
        let input = Input::of(String::new(), text);
        assert_eq!((input.text.as_str(), input.digest.bytes), ("AMD\u{fffd}\n", 8));
        let mut reader = DigestingReader::new(&text[..], 100, b'\n', 100);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.digest(), input.digest);
    }

    #[test]
    fn large_files_and_parts_are_refused() {
        let read = |bytes: &[u8]| {
            let mut reader = DigestingReader::new(bytes, 4 << 20, b'>', 1 << 10);
            io::copy(&mut reader, &mut io::sink()).map_err(|why| why.to_string())
        };
        assert!(read(&[b'>'; 4 << 20]).is_ok());
        assert_eq!(read(&[b'>'; (4 << 20) + 1]), Err("has more than 4 MiB".into()));
        assert_eq!(read(&[b'x'; 1025]), Err("has no '>' within 1 KiB".into()));
        let error = Input::read(Path::new("/nonexistent/file")).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/file: "), "{error}");
    }
}
