//! `#[derive(Params)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Lit, LitStr, Meta, Result,
};

/// Returns the implementation for a struct with named fields, and `AsRef` for each flattened field.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => {
                return Err(Error::new_spanned(name, "Params requires one named field per factor"));
            }
        },
        _ => {
            return Err(Error::new_spanned(
                name,
                "Params requires a struct with one field per factor",
            ));
        }
    };
    let (flattened, factors): (Vec<_>, Vec<_>) =
        fields.iter().partition(|field| is_flattened(field));
    let factors = factors.into_iter().map(Factor::of).collect::<Result<Vec<_>>>()?;
    let entries = factors.iter().map(Factor::entry);
    let flattened_types: Vec<_> = flattened.iter().map(|field| &field.ty).collect();
    let read_flattened = flattened.iter().map(|Field { ident, ty, .. }| {
        quote!(#ident: <#ty as ::lab::method::Params>::from_point(point)?)
    });
    let read_factors = factors.iter().enumerate().map(|(index, factor)| factor.read(index));
    let read = read_flattened.chain(read_factors);
    let references = flattened.iter().map(|Field { ident, ty, .. }| {
        quote! {
            impl ::core::convert::AsRef<#ty> for #name {
                fn as_ref(&self) -> &#ty {
                    &self.#ident
                }
            }
        }
    });
    Ok(quote! {
        #(#references)*

        impl #name {
            const OWN_FACTORS: &'static [::lab::factor::Factor] = &[#(#entries),*];
        }

        impl ::lab::method::Params for #name {
            const FACTORS: &'static [::lab::factor::Factor] = {
                const PARTS: &[&[::lab::factor::Factor]] = &[
                    #(<#flattened_types as ::lab::method::Params>::FACTORS,)*
                    #name::OWN_FACTORS,
                ];
                const ALL: [::lab::factor::Factor; ::lab::factor::count(PARTS)] =
                    ::lab::factor::concat(PARTS);
                &ALL
            };

            fn from_point(
                point: &::lab::point::Point,
            ) -> ::core::result::Result<Self, ::lab::sample::Failure> {
                ::core::result::Result::Ok(Self { #(#read),* })
            }
        }
    })
}

/// Returns whether a field has `#[factor(flatten)]`.
fn is_flattened(field: &Field) -> bool {
    let mut flattened = false;
    for attribute in field.attrs.iter().filter(|one| one.path().is_ident("factor")) {
        // Other errors in the attribute are reported when the factor is read.
        let _ = attribute.parse_nested_meta(|meta| {
            flattened |= meta.path.is_ident("flatten");
            Ok(())
        });
    }
    flattened
}

/// A factor, declared by a field.
struct Factor<'a> {
    field: &'a Field,
    name: String,
    about: String,
    default: LitStr,
    /// Empty if there is none.
    unit: String,
    levels: Option<Expr>,
}

impl<'a> Factor<'a> {
    fn of(field: &'a Field) -> Result<Self> {
        let mut name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let (mut default, mut levels, mut unit) = (None, None, String::new());
        for attribute in field.attrs.iter().filter(|one| one.path().is_ident("factor")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("default") {
                    default = Some(meta.value()?.parse::<LitStr>()?);
                } else if meta.path.is_ident("unit") {
                    unit = meta.value()?.parse::<LitStr>()?.value();
                } else if meta.path.is_ident("levels") {
                    levels = Some(meta.value()?.parse::<Expr>()?);
                } else if meta.path.is_ident("name") {
                    name = meta.value()?.parse::<LitStr>()?.value();
                } else {
                    return Err(meta.error("expected `default`, `levels`, `name` or `unit`"));
                }
                Ok(())
            })?;
        }
        let missing = || Error::new_spanned(field, "add #[factor(default = \"LEVEL\")]");
        let about = about(&field.attrs).ok_or_else(|| {
            Error::new_spanned(field, "add a doc comment that describes the factor")
        })?;
        Ok(Self { field, name, about, default: default.ok_or_else(missing)?, unit, levels })
    }

    /// Returns the entry in `FACTORS`.
    fn entry(&self) -> TokenStream {
        let Self { field, name, about, default, unit, levels } = self;
        let kind = &field.ty;
        let levels = levels.as_ref().map_or_else(
            || quote!(<#kind as ::lab::factor::LevelType>::LEVELS),
            |levels| quote!(#levels),
        );
        quote! {
            ::lab::factor::Factor {
                name: #name,
                about: #about,
                unit: #unit,
                levels: #levels,
                default: #default,
            }
        }
    }

    /// Returns the field of the struct expression in `from_point`.
    fn read(&self, index: usize) -> TokenStream {
        let field = &self.field.ident;
        quote!(#field: ::lab::method::level(point, &Self::OWN_FACTORS[#index])?)
    }
}

/// Returns the first paragraph of a documentation comment in one line, without its full stop.
fn about(attributes: &[Attribute]) -> Option<String> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let paragraph: Vec<String> =
        lines.map(|line| line.trim().to_owned()).take_while(|line| !line.is_empty()).collect();
    let about = paragraph.join(" ").trim_end_matches('.').to_owned();
    (!about.is_empty()).then_some(about)
}
