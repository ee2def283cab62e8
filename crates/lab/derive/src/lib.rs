//! Derives `lab::method::Params` from a struct with a field per factor, and `lab::factor::LevelType` from an enum with a
//! variant per level.

mod levels;
mod params;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives the levels of a factor from an enum without fields.
///
/// A level is its variant in kebab case (`DriftAndStalls` is `drift-and-stalls`), or the name given with
/// `#[level("name")]`. Adds `ALL` and `name`, and implements `LevelType` and `Display`.
#[proc_macro_derive(LevelType, attributes(level))]
pub fn derive_level_type(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    levels::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives the factors of a method from a struct.
///
/// Each field is a factor: its name is the field's, its description the first line of the field's documentation.
/// `#[factor(default = "64 KiB")]` is required and gives the level of points that name none.
/// `#[factor(flatten)]` on a field whose type is `Params` itself adds its factors, which several methods may share.
/// `#[factor(levels = Levels::Bytes(1, 1 << 30))]` replaces the levels of the field's type, `#[factor(name = "use")]` the
/// name.
#[proc_macro_derive(Params, attributes(factor))]
pub fn derive_params(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    params::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
