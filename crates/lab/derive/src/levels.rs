//! `#[derive(LevelType)]`

use heck::ToKebabCase;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result, Variant};

/// Returns the implementation for an enum without fields.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(
            name,
            "LevelType requires an enum with one variant per level",
        ));
    };
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let levels = data.variants.iter().map(level).collect::<Result<Vec<_>>>()?;
    let (visibility, count) = (&input.vis, variants.len());
    Ok(quote! {
        impl #name {
            /// All levels, in the order of their declaration.
            #[allow(dead_code)]
            #visibility const ALL: [Self; #count] = [#(Self::#variants),*];

            /// Returns the name of the level in TOML, on the command line and in the journal.
            #visibility const fn name(self) -> &'static str {
                match self {
                    #(Self::#variants => #levels,)*
                }
            }
        }

        impl ::lab::factor::LevelType for #name {
            const LEVELS: ::lab::factor::Levels = ::lab::factor::Levels::Names(&[#(#levels),*]);

            fn from_level(level: &str) -> ::core::option::Option<Self> {
                match level {
                    #(#levels => ::core::option::Option::Some(Self::#variants),)*
                    _ => ::core::option::Option::None,
                }
            }
        }

        impl ::core::fmt::Display for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.name())
            }
        }
    })
}

/// Returns the level of a variant: its name in kebab case, or the name in `#[level("...")]`.
fn level(variant: &Variant) -> Result<String> {
    if !matches!(variant.fields, Fields::Unit) {
        return Err(Error::new_spanned(variant, "a level must not have fields"));
    }
    let given = variant.attrs.iter().find(|attribute| attribute.path().is_ident("level"));
    match given {
        Some(attribute) => Ok(attribute.parse_args::<LitStr>()?.value()),
        None => Ok(variant.ident.to_string().to_kebab_case()),
    }
}
