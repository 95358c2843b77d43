//! An attribute's options: `flag`, `key = value`, `key(…)`. Which there are is the caller's to say; unknown and repeated ones
//! are faults here.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, LitBool, LitStr, Token};

use crate::errors::Errors;

/// One option as it was written.
struct Given {
    name: Ident,
    /// After `=`, or in parentheses.
    value: Option<TokenStream>,
    in_parentheses: bool,
}

/// The options of one attribute.
pub(crate) struct Options(Vec<Given>);

impl Options {
    /// Reads them. `several` names the ones that may be repeated.
    pub(crate) fn parse(
        tokens: TokenStream,
        of: &str,
        known: &[&str],
        several: &[&str],
        errors: &mut Errors,
    ) -> Self {
        let given = errors.keep(given.parse2(tokens)).unwrap_or_default();
        let mut kept: Vec<Given> = Vec::new();
        for option in given {
            let name = option.name.unraw().to_string();
            if !known.contains(&name.as_str()) {
                let message = if known.is_empty() {
                    format!("{of} has no options")
                } else {
                    let list: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
                    format!("unknown option `{name}`; {of} has {}", list.join(", "))
                };
                errors.at(&option.name, message);
            } else if !several.contains(&name.as_str()) && kept.iter().any(|other| other.name.unraw() == name)
            {
                errors.at(&option.name, format!("option `{name}` is given twice"));
            } else {
                kept.push(option);
            }
        }
        Self(kept)
    }

    fn take(&mut self, name: &str) -> Option<Given> {
        let at = self.0.iter().position(|option| option.name.unraw() == name)?;
        Some(self.0.remove(at))
    }

    /// `name = "text"`
    pub(crate) fn text(&mut self, name: &str, errors: &mut Errors) -> Option<LitStr> {
        let option = self.take(name)?;
        let value = option.value.filter(|_| !option.in_parentheses).unwrap_or_default();
        let text = syn::parse2::<LitStr>(value).ok();
        if text.is_none() {
            errors.at(&option.name, format!("`{name}` takes a string: `{name} = \"…\"`"));
        }
        text
    }

    /// `name`, `name = true`, `name = false`
    pub(crate) fn hint(&mut self, name: &str, errors: &mut Errors) -> Option<bool> {
        let option = self.take(name)?;
        let Some(value) = option.value else { return Some(true) };
        let value = syn::parse2::<LitBool>(value).ok().filter(|_| !option.in_parentheses);
        if value.is_none() {
            errors.at(&option.name, format!("`{name}` stands alone, or takes `true` or `false`"));
        }
        value.map(|value| value.value)
    }

    /// `name`, which is on or off.
    pub(crate) fn flag(&mut self, name: &str, errors: &mut Errors) -> bool {
        self.hint(name, errors).unwrap_or(false)
    }

    /// `name = { "json": … }`, as an expression of a `serde_json::Value`.
    pub(crate) fn json(&mut self, name: &str, errors: &mut Errors) -> Option<TokenStream> {
        let option = self.take(name)?;
        let mut tokens = option.value.filter(|_| !option.in_parentheses).unwrap_or_default().into_iter();
        match (tokens.next(), tokens.next()) {
            (Some(TokenTree::Group(object)), None) if object.delimiter() == Delimiter::Brace => {
                let at = Span::call_site().located_at(object.span());
                Some(quote_spanned!(at=> ::agentenv_protocol::__private::json!(#object)))
            }
            _ => {
                errors.at(&option.name, format!("`{name}` takes a JSON object: `{name} = {{ \"key\": … }}`"));
                None
            }
        }
    }

    /// `name = expression`; the tokens, which may be none (`name` alone).
    pub(crate) fn expression(&mut self, name: &str) -> Option<(Ident, Option<TokenStream>)> {
        let option = self.take(name)?;
        Some((option.name, option.value))
    }

    /// `name(…)`, as often as it is there.
    pub(crate) fn lists(&mut self, name: &str, errors: &mut Errors) -> Vec<(Ident, TokenStream)> {
        let mut lists = Vec::new();
        while let Some(option) = self.take(name) {
            match option.value.filter(|_| option.in_parentheses) {
                Some(tokens) => lists.push((option.name, tokens)),
                None => errors.at(&option.name, format!("`{name}` takes options of its own: `{name}(…)`")),
            }
        }
        lists
    }
}

fn given(input: ParseStream<'_>) -> syn::Result<Vec<Given>> {
    let mut options = Vec::new();
    while !input.is_empty() {
        let name = input.call(Ident::parse_any)?;
        let mut option = Given { name, value: None, in_parentheses: false };
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            let mut value = TokenStream::new();
            while !input.is_empty() && !input.peek(Token![,]) {
                value.extend([input.parse::<TokenTree>()?]);
            }
            if value.is_empty() {
                return Err(syn::Error::new_spanned(
                    &option.name,
                    format!("`{} =` has no value", option.name),
                ));
            }
            option.value = Some(value);
        } else if input.peek(syn::token::Paren) {
            let group;
            syn::parenthesized!(group in input);
            option.value = Some(group.parse()?);
            option.in_parentheses = true;
        }
        options.push(option);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(options)
}
