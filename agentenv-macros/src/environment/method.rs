//! A method's signature: what it takes from a call, and what it gives.

use quote::quote;
use syn::ext::IdentExt;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{
    FnArg, GenericArgument, GenericParam, ImplItemFn, Lifetime, LitStr, Pat, PatType, PathArguments,
    Receiver, ReceiverKind, ReturnType, Safety, Type, TypeReference,
};

use super::model::{Argument, Method, Output, Parameter};
use crate::attr::Options;
use crate::docs::description;
use crate::errors::Errors;

const ARG_OPTIONS: [&str; 3] = ["name", "default", "description"];

/// Reads a method, whose marker is `what`.
pub(super) fn method(method: &ImplItemFn, what: &str, self_ty: &Type, errors: &mut Errors) -> Method {
    let signature = &method.sig;
    for parameter in &signature.generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            errors.at(parameter, format!("{what} cannot be generic: its types are written on the card"));
        }
    }
    if !matches!(signature.safety, Safety::Default) {
        errors.at(&signature.safety, format!("{what} cannot be unsafe"));
    }
    let mut takes_self = false;
    let mut parameters = Vec::new();
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                takes_self = true;
                check_receiver(receiver, what, errors);
            }
            FnArg::Typed(parameter) => parameters.extend(self::parameter(parameter, self_ty, errors)),
        }
    }
    let mut names: Vec<String> = Vec::new();
    for parameter in &parameters {
        let Parameter::Value(argument) = parameter else { continue };
        if names.contains(&argument.name.value()) {
            errors.at(&argument.name, format!("two parameters are named `{}`", argument.name.value()));
        }
        names.push(argument.name.value());
    }
    Method {
        ident: signature.ident.clone(),
        cfgs: method.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect(),
        is_async: signature.asyncness.is_some(),
        takes_self,
        parameters,
        output: output(&signature.output, self_ty, errors),
    }
}

fn check_receiver(receiver: &Receiver, what: &str, errors: &mut Errors) {
    match &receiver.kind {
        ReceiverKind::Reference(_, _, None) => {}
        ReceiverKind::Reference(_, _, Some(_)) => errors.at(
            receiver,
            format!(
                "{what} takes `&self`: calls run side by side, so state sits behind a lock of your own, a database, or `Data<T>`"
            ),
        ),
        _ => errors.at(receiver, format!("{what} takes `&self`")),
    }
}

fn parameter(parameter: &PatType, self_ty: &Type, errors: &mut Errors) -> Option<Parameter> {
    let Pat::Ident(pattern) = &*parameter.pat else {
        errors.at(&parameter.pat, "a parameter needs a plain name: it is the argument's name on the wire");
        return None;
    };
    if let Some(by_ref) = &pattern.by_ref {
        errors.at(by_ref, "a parameter needs a plain name: it is the argument's name on the wire");
    }
    let mut options = Vec::new();
    for attribute in parameter.attrs.iter().filter(|attribute| attribute.path().is_ident("arg")) {
        match attribute.meta.require_list() {
            Ok(list) => options.push(list.tokens.clone()),
            Err(error) => errors.add(error),
        }
    }
    let options = options.into_iter().reduce(|all, more| quote!(#all, #more)).unwrap_or_default();
    let mut options = Options::parse(options, "`#[arg]`", &ARG_OPTIONS, &[], errors);

    let (mut ty, by_ref) = match &*parameter.ty {
        Type::Reference(reference) => {
            if let Some(mutability) = &reference.mutability {
                errors.at(mutability, "an argument comes over the wire: there is nothing to change in it");
            }
            (owned(&reference.elem), true)
        }
        ty => (ty.clone(), false),
    };
    if is_last_segment(&ty, "ToolContext") {
        return Some(Parameter::Context { by_ref });
    }
    check_wire_type(&ty, errors);
    replace_self(&mut ty, self_ty);
    let name = options.text("name", errors).unwrap_or_else(|| {
        let ident = pattern.ident.unraw();
        LitStr::new(&ident.to_string(), pattern.ident.span())
    });
    let described = options.text("description", errors).map(|text| text.value());
    let default = options.expression("default").map(|(_, value)| match value {
        None => quote!(::core::default::Default::default()),
        // So that `"hard"` will do for a `String`.
        Some(value) if syn::parse2::<LitStr>(value.clone()).is_ok() => {
            quote!(::core::convert::Into::into(#value))
        }
        Some(value) => value,
    });
    let description = described.or_else(|| description(&parameter.attrs));
    Some(Parameter::Value(Box::new(Argument { name, ty, by_ref, description, default })))
}

/// The owned type that is read where a method takes a reference.
fn owned(ty: &Type) -> Type {
    match ty {
        Type::Slice(slice) => {
            let item = &slice.elem;
            syn::parse_quote!(::std::vec::Vec<#item>)
        }
        ty if is_last_segment(ty, "str") => syn::parse_quote!(::std::string::String),
        ty => ty.clone(),
    }
}

/// Types that no value on the wire can be of, whatever traits there are.
fn check_wire_type(ty: &Type, errors: &mut Errors) {
    let why = match ty {
        Type::ImplTrait(_) => "`impl Trait` has no schema; name the type",
        Type::TraitObject(_) => "a trait object has no schema; name the type",
        Type::FnPtr(_) => "a function cannot come over the wire",
        Type::Ptr(_) => "a pointer cannot come over the wire",
        Type::Never(_) | Type::Infer(_) => "the type must be written out",
        ty => {
            let mut borrows = Borrows(Errors::default());
            borrows.visit_type(ty);
            errors.append(borrows.0);
            return;
        }
    };
    errors.at(ty, why);
}

/// What is borrowed in a parameter's type, where a reference around all of it is left out.
struct Borrows(Errors);

impl Visit<'_> for Borrows {
    fn visit_lifetime(&mut self, lifetime: &Lifetime) {
        if lifetime.ident != "static" {
            self.0.at(lifetime, "a parameter is read from JSON and owned: leave the lifetime out");
        }
    }

    fn visit_type_reference(&mut self, reference: &TypeReference) {
        self.0.at(
            reference,
            "a parameter is read from JSON and owned: write the owned type, such as `String` for `&str`",
        );
    }
}

fn output(output: &ReturnType, self_ty: &Type, errors: &mut Errors) -> Output {
    let ReturnType::Type(_, ty) = output else { return Output::Nothing };
    let mut written = (**ty).clone();
    replace_self(&mut written, self_ty);
    if is_unit(&written) {
        return Output::Nothing;
    }
    match &written {
        Type::FnPtr(_) => errors.at(ty, "a function cannot go over the wire"),
        Type::Ptr(_) => errors.at(ty, "a pointer cannot go over the wire"),
        _ => {}
    }
    if !is_last_segment(&written, "Result") {
        return Output::Value(Box::new(written));
    }
    let ok = first_argument(&written);
    let nothing = ok.as_ref().is_some_and(is_unit);
    Output::Result { nothing, written: Box::new(written), ok: ok.map(Box::new) }
}

pub(super) fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// Whether a type is a path whose last segment has this name.
pub(super) fn is_last_segment(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
        Type::Group(group) => is_last_segment(&group.elem, name),
        Type::Paren(paren) => is_last_segment(&paren.elem, name),
        _ => false,
    }
}

/// The first type among the arguments of a path's last segment.
pub(super) fn first_argument(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    })
}

/// The table stands outside the impl block, where `Self` means nothing.
fn replace_self(ty: &mut Type, self_ty: &Type) {
    struct Replace<'a>(&'a Type);

    impl VisitMut for Replace<'_> {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident("Self")) {
                *ty = self.0.clone();
            } else {
                visit_mut::visit_type_mut(self, ty);
            }
        }
    }

    Replace(self_ty).visit_type_mut(ty);
}
