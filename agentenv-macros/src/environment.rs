//! `#[environment]`: an impl block read (`parse`, `method`), modelled (`model`) and written out as a table (`expand`).

mod expand;
mod method;
mod model;
mod parse;

use proc_macro2::{Span, TokenStream};
use quote::quote;

use crate::attr::Options;
use crate::errors::Errors;

pub(crate) fn environment(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    Options::parse(options, "an `#[environment]` block", &[], &[], &mut errors);
    let Ok(mut block) = syn::parse2::<syn::ItemImpl>(item.clone()) else {
        let message = "`#[environment]` goes on an `impl` block; `#[environment_card]` goes on the struct";
        let error = match syn::parse2::<syn::Item>(item.clone()) {
            Ok(_) => syn::Error::new(Span::call_site(), message),
            Err(error) => error,
        };
        let error = error.into_compile_error();
        return quote!(#error #item);
    };
    let model = parse::parse(&mut block, &mut errors);
    // A table with holes in it would only add errors that say nothing new.
    let table = if errors.is_empty() { expand::expand(&model) } else { TokenStream::new() };
    let errors = errors.into_tokens();
    quote!(#block #table #errors)
}
