//! Writing the table out: what each method is called and with what, and functions that take the arguments and call it.
//! Everything else is in functions of `agentenv_protocol::__private`.

mod around;
mod call;
mod wire;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use self::around::{hook, lifecycle, operation};
use self::call::located;
use self::wire::{extension, tool};
use super::model::Block;

pub(super) fn expand(block: &Block) -> TokenStream {
    let self_ty = &block.self_ty;
    let at = located(self_ty.span());
    let card = quote_spanned!(at=> const _: () = __has_card::<#self_ty>(););
    let tools = entries(&block.tools, |index, it| tool(self_ty, index, it));
    let extensions = entries(&block.extensions, |index, it| extension(self_ty, index, it));
    let operations = entries(&block.operations, |index, it| operation(self_ty, index, it));
    let hooks = entries(&block.hooks, |index, it| hook(self_ty, index, it));
    let starts = entries(&block.starts, |index, it| lifecycle(self_ty, &format!("start_{index}"), it));
    let stops = entries(&block.stops, |index, it| lifecycle(self_ty, &format!("stop_{index}"), it));
    let code = [&tools, &extensions, &operations, &hooks, &starts, &stops].map(|entries| &entries.code);
    let [tools, extensions, operations, hooks, starts, stops] =
        [&tools, &extensions, &operations, &hooks, &starts, &stops].map(|entries| &entries.rows);
    quote! {
        #[allow(clippy::all, clippy::pedantic, unreachable_code)]
        const _: () = {
            const fn __has_card<C: ::agentenv_protocol::__private::Component>() {}
            #card
            #(#code)*

            static __BLOCK: ::agentenv_protocol::__private::Block<#self_ty> = ::agentenv_protocol::__private::Block {
                file: ::core::file!(),
                line: ::core::line!(),
                column: ::core::column!(),
                tools: &[#tools],
                extensions: &[#extensions],
                operations: &[#operations],
                hooks: &[#hooks],
                start: &[#starts],
                stop: &[#stops],
            };

            ::agentenv_protocol::__private::inventory::submit! {
                ::agentenv_protocol::__private::BlockEntry(&__BLOCK)
            }
        };
    }
}

/// What a list of methods becomes: items, and rows of the table.
#[derive(Default)]
struct Entries {
    code: TokenStream,
    rows: TokenStream,
}

fn entries<T>(list: &[T], expand: impl Fn(usize, &T) -> (TokenStream, TokenStream)) -> Entries {
    let mut entries = Entries::default();
    for (index, it) in list.iter().enumerate() {
        let (code, row) = expand(index, it);
        entries.code.extend(code);
        entries.rows.extend(quote!(#row,));
    }
    entries
}
