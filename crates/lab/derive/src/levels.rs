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
            "LevelType is derived for enums: a variant per level",
        ));
    };
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let levels = data.variants.iter().map(level).collect::<Result<Vec<_>>>()?;
    let (visibility, count) = (&input.vis, variants.len());
    Ok(quote! {
        impl #name {
            /// Every level, in the order of the declaration.
            #[allow(dead_code)]
            #visibility const ALL: [Self; #count] = [#(Self::#variants),*];

            /// The level as TOML, the command line and the journal spell it.
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

/// The level of a variant: its name in kebab case, or that of `#[level("...")]`.
fn level(variant: &Variant) -> Result<String> {
    if !matches!(variant.fields, Fields::Unit) {
        return Err(Error::new_spanned(variant, "a level has no fields"));
    }
    let given = variant.attrs.iter().find(|attribute| attribute.path().is_ident("level"));
    match given {
        Some(attribute) => Ok(attribute.parse_args::<LitStr>()?.value()),
        None => Ok(variant.ident.to_string().to_kebab_case()),
    }
}
