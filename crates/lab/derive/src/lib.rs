//! Derives `lab::method::Params` for a struct with one field per factor, and
//! `lab::factor::LevelType` for an enum with one variant per level.

mod levels;
mod params;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `LevelType` for an enum without fields.
///
/// A level is its variant in kebab case (`DriftAndStalls` is `drift-and-stalls`), or the name in
/// `#[level("name")]`. Adds `ALL` and `name`, and implements `LevelType` and `Display`.
#[proc_macro_derive(LevelType, attributes(level))]
pub fn derive_level_type(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    levels::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `Params` for a struct.
///
/// Each field is a factor with the name of the field; its description is the first paragraph of the
/// field's documentation.
///
/// - `#[factor(default = "64 KiB")]`: the level in points that do not name the factor; required
/// - `#[factor(levels = Levels::Bytes(1, 1 << 30))]`: the levels [default: those of the field's type]
/// - `#[factor(unit = "Gbps")]`: the unit of levels that are plain numbers [default: none]
/// - `#[factor(name = "use")]`: the name [default: that of the field]
/// - `#[factor(flatten)]`: adds the factors of the field's type, which derives `Params` and may be shared by methods
#[proc_macro_derive(Params, attributes(factor))]
pub fn derive_params(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    params::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
