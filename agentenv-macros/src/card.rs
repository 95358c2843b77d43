//! `#[environment_card]`: the head of a card.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Field, Fields, Generics, Ident, Index, Item, LitStr, Member};

use crate::attr::Options;
use crate::errors::Errors;

const OPTIONS: [&str; 4] = ["name", "tool_access", "version", "extension"];
const EXTENSION_OPTIONS: [&str; 4] = ["uri", "description", "required", "params"];

pub(crate) fn environment_card(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut item = match syn::parse2::<Item>(item.clone()) {
        Ok(item) => item,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #item);
        }
    };
    let head = Head::parse(options, &mut errors);
    let mut none = Fields::Unit;
    let (ident, generics, fields) = match &mut item {
        Item::Struct(item) => (item.ident.clone(), item.generics.clone(), &mut item.fields),
        Item::Enum(item) => (item.ident.clone(), item.generics.clone(), &mut none),
        _ => {
            let message =
                "`#[environment_card]` goes on the struct; `#[environment]` goes on its `impl` blocks";
            let error = syn::Error::new(Span::call_site(), message).into_compile_error();
            return quote!(#error #item);
        }
    };
    refuse_generics(&generics, &mut errors);
    let brought = brought(fields, &mut errors);
    let code = if generics.params.is_empty() { head.expand(&ident, &brought) } else { TokenStream::new() };
    let errors = errors.into_tokens();
    quote!(#item #code #errors)
}

/// An environment is found by its type, so there can be no generic one.
pub(crate) fn refuse_generics(generics: &Generics, errors: &mut Errors) {
    if !generics.params.is_empty() {
        let message = "an environment cannot be generic; write one for the type that it is used with";
        errors.at(&generics.params, message);
    }
}

/// What the attribute says.
struct Head {
    name: Option<LitStr>,
    version: Option<LitStr>,
    tool_access: bool,
    extensions: Vec<TokenStream>,
}

impl Head {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Options::parse(tokens, "an environment's card", &OPTIONS, &["extension"], errors);
        let name = options.text("name", errors);
        if let Some(name) = &name
            && name.value().trim().is_empty()
        {
            errors.at(name, "an environment's name cannot be blank");
        }
        let version = options.text("version", errors);
        let tool_access = options.flag("tool_access", errors);
        let extensions = options.lists("extension", errors);
        let extensions =
            extensions.into_iter().filter_map(|(at, tokens)| declared(&at, tokens, errors)).collect();
        Self { name, version, tool_access, extensions }
    }

    fn expand(&self, ident: &Ident, brought: &[TokenStream]) -> TokenStream {
        let Self { tool_access, extensions, .. } = self;
        let name = optional(self.name.as_ref());
        let version = match &self.version {
            Some(version) => quote!(#version),
            None => quote!(::core::env!("CARGO_PKG_VERSION")),
        };
        let type_name = ident.to_string();
        let fields = Ident::new("__fields", Span::mixed_site());
        quote! {
            #[automatically_derived]
            impl ::agentenv_protocol::__private::Component for #ident {}

            #[automatically_derived]
            impl ::agentenv_protocol::__private::Environment for #ident {
                const HEAD: ::agentenv_protocol::__private::CardHead = ::agentenv_protocol::__private::CardHead {
                    name: #name,
                    type_name: #type_name,
                    version: #version,
                    tool_access: #tool_access,
                    extensions: &[#(#extensions),*],
                };

                fn fields(#fields: &mut ::agentenv_protocol::__private::Fields<Self>) {
                    let _ = &#fields;
                    #(#brought)*
                }
            }

            const _: () = {
                ::agentenv_protocol::__private::inventory::submit! {
                    ::agentenv_protocol::__private::LinkedEnv {
                        head: <#ident as ::agentenv_protocol::__private::Environment>::HEAD,
                        constructor: || {
                            #[allow(unused_imports)]
                            use ::agentenv_protocol::__private::NoConstructor as _;
                            ::agentenv_protocol::__private::Probe::<#ident>::new().constructor()
                        },
                    }
                }
            };
        }
    }
}

/// `extension(…)`: an extension without a handler.
fn declared(at: &Ident, tokens: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let mut options = Options::parse(tokens, "a declared extension", &EXTENSION_OPTIONS, &[], errors);
    let uri = options.text("uri", errors);
    let description = optional(options.text("description", errors));
    let required = optional(options.hint("required", errors));
    let params = optional(options.json("params", errors).map(|json| quote!(|| #json)));
    let Some(uri) = uri else {
        errors.at(at, "an extension needs its `uri = \"…\"`");
        return None;
    };
    Some(quote! {
        ::agentenv_protocol::__private::DeclaredExtension {
            uri: #uri,
            description: #description,
            required: #required,
            params: #params,
        }
    })
}

/// Reads the fields' markers and takes them away.
fn brought(fields: &mut Fields, errors: &mut Errors) -> Vec<TokenStream> {
    let into = Ident::new("__fields", Span::mixed_site());
    let mut calls = Vec::new();
    let mut has_data = false;
    for (index, field) in fields.iter_mut().enumerate() {
        let (data, component) = (take_marker(field, "data", errors), take_marker(field, "component", errors));
        let member = match &field.ident {
            Some(name) => Member::Named(name.clone()),
            None => Member::Unnamed(Index {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                span: field.ty.span(),
            }),
        };
        let at = Span::mixed_site().located_at(field.ty.span());
        let ty = &field.ty;
        match (data, component) {
            (Some(first), Some(_)) => errors.at(&first, "a field is `#[data]` or a `#[component]`, not both"),
            (Some(marker), None) if has_data => {
                errors.at(&marker, "an environment has one `#[data]` field; put all its state in one value");
            }
            (Some(_), None) => {
                has_data = true;
                calls.push(quote_spanned!(at=> #into.data(|__env| -> &#ty { &__env.#member });));
            }
            (None, Some(_)) => {
                calls.push(quote_spanned!(at=> #into.component::<#ty>(|__env| &__env.#member);));
            }
            (None, None) => {}
        }
    }
    calls
}

fn take_marker(field: &mut Field, name: &str, errors: &mut Errors) -> Option<Attribute> {
    let at = field.attrs.iter().position(|attribute| attribute.path().is_ident(name))?;
    let marker = field.attrs.remove(at);
    if marker.meta.require_path_only().is_err() {
        errors.at(&marker, format!("`#[{name}]` has no options"));
    }
    Some(marker)
}

/// An `Option` as code.
pub(crate) fn optional(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
