//! What is called over the wire with arguments: tools and extensions.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::Type;
use syn::spanned::Spanned;

use super::super::model::{Extension, Tool};
use super::call::{Call, call, finish, future, line_of, local, located};
use crate::card::optional;

pub(super) fn tool(self_ty: &Type, index: usize, tool: &Tool) -> (TokenStream, TokenStream) {
    let label = format!("tool_{index}");
    let Call { statics, schema, take, call } = call(self_ty, &tool.method, &label, "refuse_tool");
    let finish = finish(
        &tool.method,
        &call,
        &quote!(::agentenv_protocol::__private::Returned(()).tool_result()),
        |at, value| quote_spanned!(at=> ::agentenv_protocol::__private::Returned(#value).tool_result()),
        |at, error| quote_spanned!(at=> ::agentenv_protocol::__private::tool_failed(#error)),
    );
    let (env, input, function) = (local("__env"), local("__input"), format_ident!("__{label}"));
    let cfgs = &tool.method.cfgs;
    let at = located(tool.method.ident.span());
    let future = future(at, &finish);
    let code = quote! {
        #statics
        #(#cfgs)*
        fn #function<'a>(
            #env: &'a #self_ty,
            mut #input: ::agentenv_protocol::__private::Input<'a>,
        ) -> ::agentenv_protocol::__private::BoxFuture<'a, ::agentenv_protocol::__private::ToolResult> {
            let _ = #env;
            #take
            #future
        }
    };
    let Tool { name, hidden_by_default, .. } = tool;
    let (title, description) = (optional(tool.title.as_ref()), optional(tool.description.as_ref()));
    let [read_only, destructive, idempotent, open_world] =
        [tool.read_only, tool.destructive, tool.idempotent, tool.open_world].map(optional);
    let meta = optional(tool.meta.as_ref().map(|json| quote!(|| #json)));
    let input_schema = optional(tool.input_schema.as_ref());
    let output = optional(tool.output_schema.as_ref().map(|ty| {
        let at = located(ty.span());
        quote_spanned!(at=> ::agentenv_protocol::__private::output_schema::<#ty>)
    }));
    let line = line_of(&tool.method);
    let capability = optional(tool.requires_client_capability.as_ref());
    let row = quote! {
        #(#cfgs)*
        ::agentenv_protocol::__private::ToolEntry {
            spec: ::agentenv_protocol::__private::ToolSpec {
                name: #name,
                title: #title,
                description: #description,
                read_only: #read_only,
                destructive: #destructive,
                idempotent: #idempotent,
                open_world: #open_world,
                hidden_by_default: #hidden_by_default,
                meta: #meta,
                requires_client_capability: #capability,
                input: |__schema| { let _ = &__schema; #schema },
                input_schema: #input_schema,
                output: #output,
                line: #line,
            },
            call: #function,
        }
    };
    (code, row)
}

pub(super) fn extension(self_ty: &Type, index: usize, extension: &Extension) -> (TokenStream, TokenStream) {
    let label = format!("extension_{index}");
    let Call { statics, schema, take, call } = call(self_ty, &extension.method, &label, "refuse_extension");
    let finish = finish(
        &extension.method,
        &call,
        &quote!(::agentenv_protocol::__private::Returned(()).extension_answer()),
        |at, value| quote_spanned!(at=> ::agentenv_protocol::__private::Returned(#value).extension_answer()),
        |at, error| quote_spanned!(at=> ::agentenv_protocol::__private::extension_failed(#error)),
    );
    let (env, input, function) = (local("__env"), local("__input"), format_ident!("__{label}"));
    let cfgs = &extension.method.cfgs;
    let at = located(extension.method.ident.span());
    let future = future(at, &finish);
    let code = quote! {
        #statics
        #(#cfgs)*
        fn #function<'a>(
            #env: &'a #self_ty,
            mut #input: ::agentenv_protocol::__private::Input<'a>,
        ) -> ::agentenv_protocol::__private::BoxFuture<'a, ::agentenv_protocol::__private::ExtensionAnswer> {
            let _ = #env;
            #take
            #future
        }
    };
    let Extension { uri, method, .. } = extension;
    let handler = syn::ext::IdentExt::unraw(&method.ident).to_string();
    let verb = format_ident!("{}", extension.verb);
    let (op, path) = (optional(extension.op.as_ref()), optional(extension.path.as_ref()));
    let (description, required) = (optional(extension.description.as_ref()), optional(extension.required));
    let params = optional(extension.params.as_ref().map(|json| quote!(|| #json)));
    let line = line_of(method);
    let row = quote! {
        #(#cfgs)*
        ::agentenv_protocol::__private::ExtensionEntry {
            spec: ::agentenv_protocol::__private::ExtensionSpec {
                uri: #uri,
                op: #op,
                handler: #handler,
                verb: ::agentenv_protocol::__private::Verb::#verb,
                path: #path,
                description: #description,
                required: #required,
                params: #params,
                input: |__schema| { let _ = &__schema; #schema },
                line: #line,
            },
            call: #function,
        }
    };
    (code, row)
}
