//! Markers where there is no block to read them.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{FnArg, ImplItemFn};

use crate::docs::is_doc;

/// The markers, which an `#[environment]` block reads and takes away.
pub(crate) const MARKERS: [&str; 8] =
    ["tool", "extension", "reset_data", "add_data", "get_data", "before_call", "on_start", "on_stop"];

/// A marker that no block has read.
pub(crate) fn stray(name: &str, item: TokenStream) -> TokenStream {
    let article = if name.starts_with(['a', 'e', 'o']) { "an" } else { "a" };
    let message = format!(
        "{article} `#[{name}]` method belongs in an `#[environment]` block: put `#[environment]` on the `impl` block around it"
    );
    let error = syn::Error::new(Span::call_site(), message).into_compile_error();
    let item = match syn::parse2::<ImplItemFn>(item.clone()) {
        Ok(mut method) => {
            strip_parameters(&mut method);
            quote!(#method)
        }
        Err(_) => item,
    };
    quote!(#error #item)
}

/// Takes from a method's parameters what only the block can read.
pub(crate) fn strip_parameters(method: &mut ImplItemFn) {
    for parameter in &mut method.sig.inputs {
        if let FnArg::Typed(parameter) = parameter {
            parameter.attrs.retain(|attribute| !is_doc(attribute) && !attribute.path().is_ident("arg"));
        }
    }
}
