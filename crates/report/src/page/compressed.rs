//! Data within a page: JSON, compressed by zlib, in base64, which cannot end an element. Browsers decompress it themselves.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::PageError;

/// An element with data for the scripts.
pub(super) struct CompressedData {
    /// ID of the element.
    id: String,
    text: String,
}

impl CompressedData {
    /// Encodes a value.
    ///
    /// # Errors
    /// Returns an error if the value cannot be encoded.
    pub(super) fn new(id: impl Into<String>, value: &impl Serialize) -> Result<Self, PageError> {
        let error = |why: &dyn std::fmt::Display| PageError::Encode(why.to_string());
        let json = serde_json::to_vec(value).map_err(|why| error(&why))?;
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&json).map_err(|why| error(&why))?;
        let bytes = encoder.finish().map_err(|why| error(&why))?;
        Ok(Self { id: id.into(), text: STANDARD.encode(bytes) })
    }

    /// Returns the size of the element's text in bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Renders the element.
    pub(super) fn html(&self) -> Markup {
        html! { script id=(self.id) type="application/octet-stream" { (PreEscaped(&self.text)) } }
    }
}
