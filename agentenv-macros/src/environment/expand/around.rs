//! What is called around the tools: the data plane's operations, hooks, starts and stops.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Type;
use syn::spanned::Spanned;

use super::super::model::{Kind, Method, Operation, Parameter};
use super::call::{finish, invoke, local, located};

pub(super) fn operation(self_ty: &Type, index: usize, operation: &Operation) -> (TokenStream, TokenStream) {
    let method = &operation.method;
    let (parts, seed) = (local("__parts"), local("__seed"));
    let by_ref =
        method.parameters.iter().any(|it| matches!(it, Parameter::Value(argument) if argument.by_ref));
    let pass = |it: &Ident| if by_ref { quote!(&#it) } else { quote!(#it) };
    let done = quote!(::agentenv_protocol::__private::data_done());
    let failed = |at, error| quote_spanned!(at=> ::agentenv_protocol::__private::data_failed(#error));
    let nothing = |_, _| done.clone();
    let (kind, body) = match &operation.kind {
        Kind::Reset => ("Reset", finish(method, &invoke(self_ty, method, &[]), &done, nothing, failed)),
        Kind::AddParts => {
            let call = invoke(self_ty, method, &[pass(&parts)]);
            ("Add", finish(method, &call, &done, nothing, failed))
        }
        Kind::AddAll(ty) => {
            let body = finish(method, &invoke(self_ty, method, &[pass(&seed)]), &done, nothing, failed);
            ("Add", seeds(ty, &body))
        }
        Kind::AddEach(ty) => {
            let call = invoke(self_ty, method, &[pass(&seed)]);
            let failed = |at, error| {
                let failed = failed(at, error);
                quote!(return #failed)
            };
            let body = finish(method, &call, &quote!({}), |_, _| quote!({}), failed);
            ("Add", seeds(ty, &quote!(for #seed in #seed { #body } #done)))
        }
        Kind::GetParts => {
            let value = |at, value| quote_spanned!(at=> ::agentenv_protocol::__private::data_parts(#value));
            ("Get", finish(method, &invoke(self_ty, method, &[]), &done, value, failed))
        }
        Kind::GetState => {
            let value = |at, value| quote_spanned!(at=> ::agentenv_protocol::__private::data_state(#value));
            ("Get", finish(method, &invoke(self_ty, method, &[]), &done, value, failed))
        }
    };
    let (env, function, kind) =
        (local("__env"), format_ident!("__operation_{index}"), format_ident!("{kind}"));
    let cfgs = &method.cfgs;
    let at = located(method.ident.span());
    let future = quote_spanned!(at=> ::std::boxed::Box::pin(async move { #body }));
    let code = quote! {
        #(#cfgs)*
        fn #function<'a>(
            #env: &'a #self_ty,
            #parts: ::std::vec::Vec<::agentenv_protocol::__private::Part>,
        ) -> ::agentenv_protocol::__private::BoxFuture<'a, ::agentenv_protocol::__private::DataAnswer> {
            let _ = (#env, &#parts);
            #future
        }
    };
    let row = quote!(#(#cfgs)* (::agentenv_protocol::__private::Operation::#kind, #function));
    (code, row)
}

/// Reads every part before the body sees any.
fn seeds(ty: &Type, body: &TokenStream) -> TokenStream {
    let (parts, seed, unread) = (local("__parts"), local("__seed"), local("__unread"));
    let at = located(ty.span());
    let read = quote_spanned!(at=> ::agentenv_protocol::__private::seeds::<#ty>(#parts).await);
    quote! {
        match #read {
            ::core::result::Result::Ok(#seed) => { #body }
            ::core::result::Result::Err(#unread) => #unread,
        }
    }
}

pub(super) fn hook(self_ty: &Type, index: usize, method: &Method) -> (TokenStream, TokenStream) {
    let (env, context, function) = (local("__env"), local("__context"), format_ident!("__hook_{index}"));
    let by_ref = !matches!(method.parameters.as_slice(), [Parameter::Context { by_ref: false }]);
    let pass = if by_ref { quote!(#context) } else { quote!(#context.clone()) };
    let finish = finish(
        method,
        &invoke(self_ty, method, &[pass]),
        &quote!(::core::option::Option::None),
        |at, value| quote_spanned!(at=> ::agentenv_protocol::__private::hook_answer(#value)),
        |at, error| quote_spanned!(at=> ::agentenv_protocol::__private::hook_failed(#error)),
    );
    let cfgs = &method.cfgs;
    let at = located(method.ident.span());
    let future = quote_spanned!(at=> ::std::boxed::Box::pin(async move { #finish }));
    let code = quote! {
        #(#cfgs)*
        fn #function<'a>(
            #env: &'a #self_ty,
            #context: &'a ::agentenv_protocol::__private::ToolContext,
        ) -> ::agentenv_protocol::__private::BoxFuture<
            'a,
            ::core::option::Option<::agentenv_protocol::__private::ToolResult>,
        > {
            let _ = #env;
            #future
        }
    };
    (code, quote!(#(#cfgs)* #function))
}

pub(super) fn lifecycle(self_ty: &Type, label: &str, method: &Method) -> (TokenStream, TokenStream) {
    let (env, function) = (local("__env"), format_ident!("__{label}"));
    let done = quote!(::agentenv_protocol::__private::lifecycle_done());
    let finish = finish(
        method,
        &invoke(self_ty, method, &[]),
        &done,
        |_, value| quote!({ let _ = #value; #done }),
        |at, error| quote_spanned!(at=> ::agentenv_protocol::__private::lifecycle_failed(#error)),
    );
    let cfgs = &method.cfgs;
    let at = located(method.ident.span());
    let future = quote_spanned!(at=> ::std::boxed::Box::pin(async move { #finish }));
    let code = quote! {
        #(#cfgs)*
        fn #function<'a>(
            #env: &'a #self_ty,
        ) -> ::agentenv_protocol::__private::BoxFuture<'a, ::agentenv_protocol::__private::Outcome> {
            let _ = #env;
            #future
        }
    };
    (code, quote!(#(#cfgs)* #function))
}
