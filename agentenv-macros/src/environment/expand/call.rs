//! Calling a method: describing and taking its arguments, and what becomes of what it gives.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Type;
use syn::spanned::Spanned;

use super::super::model::{Argument, Method, Output, Parameter};
use crate::card::optional;

/// A place in the author's source, with names that are ours.
pub(super) fn located(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

pub(super) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// A method's arguments: statics that describe them, and the code around its call.
pub(super) struct Call {
    pub(super) statics: TokenStream,
    /// Adds each to a schema.
    pub(super) schema: TokenStream,
    /// Takes each from the call, or returns the refusal.
    pub(super) take: TokenStream,
    /// The call itself.
    pub(super) call: TokenStream,
}

pub(super) fn call(self_ty: &Type, method: &Method, label: &str, refuse: &str) -> Call {
    let (input, context) = (local("__input"), local("__context"));
    let cfgs = &method.cfgs;
    let (mut statics, mut schema, mut take) = (TokenStream::new(), TokenStream::new(), TokenStream::new());
    let (mut patterns, mut values, mut passed) = (Vec::new(), Vec::new(), Vec::new());
    let mut asks = false;
    for (index, parameter) in method.parameters.iter().enumerate() {
        match parameter {
            Parameter::Context { by_ref } => {
                asks = true;
                passed.push(if *by_ref { quote!(&#context) } else { quote!(#context.clone()) });
            }
            Parameter::Value(argument) => {
                let parameter = format_ident!("__PARAMETER_{}_{index}", label.to_uppercase());
                let value = local(&format!("__value_{index}"));
                statics.extend(describe(cfgs, &parameter, argument));
                schema.extend(quote!(__schema.add(&#parameter);));
                take.extend(quote!(let #value = #input.take(&#parameter);));
                patterns.push(quote!(::core::option::Option::Some(#value)));
                passed.push(if argument.by_ref { quote!(&#value) } else { quote!(#value) });
                values.push(value);
            }
        }
    }
    if asks {
        take.extend(quote!(let #context = #input.context();));
    }
    let refuse = format_ident!("{refuse}");
    take.extend(quote! {
        let (true, #(#patterns,)*) = (#input.fits(), #(#values,)*) else {
            return #input.#refuse();
        };
    });
    Call { statics, schema, take, call: invoke(self_ty, method, &passed) }
}

/// `<Type>::method(env, …)`, awaited if it is async.
pub(super) fn invoke(self_ty: &Type, method: &Method, passed: &[TokenStream]) -> TokenStream {
    let (env, ident) = (local("__env"), &method.ident);
    let receiver = method.takes_self.then(|| quote!(#env,));
    let wait = method.is_async.then(|| quote!(.await));
    quote!(<#self_ty>::#ident(#receiver #(#passed),*) #wait)
}

fn describe(cfgs: &[syn::Attribute], parameter: &Ident, argument: &Argument) -> TokenStream {
    let Argument { name, ty, description, default, .. } = argument;
    let description = optional(description.as_ref());
    let at = located(ty.span());
    match default {
        None => quote_spanned! {at=>
            #(#cfgs)*
            static #parameter: ::agentenv_protocol::__private::Param<#ty> =
                ::agentenv_protocol::__private::param::<#ty>(#name, #description);
        },
        Some(default) => quote_spanned! {at=>
            #(#cfgs)*
            static #parameter: ::agentenv_protocol::__private::Param<#ty> =
                ::agentenv_protocol::__private::param_with_default::<#ty>(#name, #description, || -> #ty { #default });
        },
    }
}

/// What becomes of what a method gave: its value, nothing, or its error.
pub(super) fn finish(
    method: &Method,
    call: &TokenStream,
    nothing: &TokenStream,
    value: impl Fn(Span, TokenStream) -> TokenStream,
    error: impl Fn(Span, TokenStream) -> TokenStream,
) -> TokenStream {
    // The names stand where the types do, so that what the compiler says of a value it says there.
    let named = |name: &str, span: Span| {
        let ident = Ident::new(name, located(span));
        (located(span), ident)
    };
    match &method.output {
        Output::Nothing => quote!(#call; #nothing),
        Output::Value(ty) => {
            let (at, given) = named("__given", ty.span());
            let value = value(at, quote!(#given));
            quote!(let #given = #call; #value)
        }
        Output::Result { nothing: is_nothing, written, ok } => {
            let (at, given) = named("__given", ok.as_ref().unwrap_or(written).span());
            let value =
                if *is_nothing { quote!({ let () = #given; #nothing }) } else { value(at, quote!(#given)) };
            let (at, failed) = named("__failed", error_span(written));
            let error = error(at, quote!(#failed));
            quote! {
                match #call {
                    ::core::result::Result::Ok(#given) => #value,
                    ::core::result::Result::Err(#failed) => #error,
                }
            }
        }
    }
}

/// Where a `Result`'s error is written, or the `Result` itself.
fn error_span(written: &Type) -> Span {
    let Type::Path(path) = written else { return written.span() };
    match path.path.segments.last().map(|last| &last.arguments) {
        Some(syn::PathArguments::AngleBracketed(arguments)) if arguments.args.len() == 2 => {
            arguments.args[1].span()
        }
        _ => written.span(),
    }
}

/// The boxed future that a handler is.
pub(super) fn future(at: Span, finish: &TokenStream) -> TokenStream {
    quote_spanned! {at=>
        ::std::boxed::Box::pin(async move {
            #[allow(unused_imports)]
            use ::agentenv_protocol::__private::ReturnedValue as _;
            #finish
        })
    }
}

/// The line that a method stands on.
pub(super) fn line_of(method: &Method) -> TokenStream {
    quote_spanned!(method.ident.span()=> ::core::line!())
}
