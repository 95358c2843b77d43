//! Invoking a method of an extension as its card says: where, by which verb, with the params in the body or the query.

use http::{Method, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{CALL_TIMEOUT, EnvClient, HarnessError, accept, find_extension, read};
use crate::card::EnvironmentCard;

impl EnvClient {
    /// Invokes a method of an extension that a card lists: this environment's own card, or a child's on it (contract 2.4).
    /// `params` is anything that serde writes as an object. GET carries them as the query.
    ///
    /// # Errors
    /// [`HarnessError`]: the card lists no such method; [`Refused`](HarnessError::Refused) with the server's code, message,
    /// retryable, applied and hint where it answers with an error; the answer is not an `R`.
    pub async fn invoke_extension<P, R>(
        &self,
        card: &EnvironmentCard,
        uri: &str,
        method: &str,
        params: &P,
    ) -> Result<R, HarnessError>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let what = format!("{method} of {uri}");
        let Some(extension) = find_extension(card, uri) else {
            return Err(HarnessError::NoExtension { name: card.name.clone(), uri: uri.to_owned() });
        };
        let Some(route) = extension.method(method) else {
            let methods = extension.params.as_ref().and_then(|params| params.get("methods")?.as_object());
            let names: Vec<&str> = methods.into_iter().flat_map(|m| m.keys().map(String::as_str)).collect();
            let offered = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let (name, uri, method) = (card.name.clone(), uri.to_owned(), method.to_owned());
            return Err(HarnessError::NoMethod { name, uri, method, offered });
        };
        let params = serde_json::to_value(params)
            .map_err(|source| HarnessError::Params { what: what.clone(), source })?;
        let params = match params {
            Value::Object(params) => params,
            Value::Null => Map::new(),
            _ => return Err(HarnessError::ParamsNotAnObject { what }),
        };
        let verb = Method::from_bytes(route.verb.to_ascii_uppercase().as_bytes()).map_err(|_| {
            HarnessError::Answer { what: what.clone(), reason: "the card gives it no HTTP verb".to_owned() }
        })?;
        let request = if verb == Method::GET {
            let query = query(&params);
            let mark = if query.is_empty() { "" } else { "?" };
            self.request(verb, &format!("{}{mark}{query}", route.endpoint), CALL_TIMEOUT)?
        } else {
            let body = Value::Object(params).to_string();
            self.request(verb, route.endpoint, CALL_TIMEOUT)?
                .header(header::CONTENT_TYPE, "application/json")
                .body(body)
        };
        let (status, body) = self.send(request).await?;
        accept(status, &body)?;
        read(&format!("the answer of {what}"), &body)
    }
}

/// Params as a query: text as it is, a list as its items under one name, what is null left out, anything else as its JSON.
fn query(params: &Map<String, Value>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let mut pair = |name: &str, value: &Value| {
        match value {
            Value::Null => {}
            Value::String(text) => {
                query.append_pair(name, text);
            }
            other => {
                query.append_pair(name, &other.to_string());
            }
        };
    };
    for (name, value) in params {
        match value {
            Value::Array(items)
                if items.len() > 1 && !items.iter().any(|item| item.is_array() || item.is_object()) =>
            {
                items.iter().for_each(|item| pair(name, item));
            }
            value => pair(name, value),
        }
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn queries() {
        let of = |params: Value| query(params.as_object().unwrap());
        assert_eq!(of(json!({})), "");
        assert_eq!(
            of(json!({"a": "x y&z", "n": 5, "f": 1.5, "b": true, "none": null})),
            "a=x+y%26z&n=5&f=1.5&b=true"
        );
        assert_eq!(of(json!({"l": ["a", "b"]})), "l=a&l=b");
        // A list that a repeated name could not be told from a text by is written out.
        assert_eq!(of(json!({"l": ["a"], "o": {"k": 1}})), "l=%5B%22a%22%5D&o=%7B%22k%22%3A1%7D");
    }
}
