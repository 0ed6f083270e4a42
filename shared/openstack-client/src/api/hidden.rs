//! Removes secrets that a service repeats from a failed answer before anything reads it: once an
//! answer is cut or its blanks are joined, half of a secret can no longer be found.

use std::cmp::Reverse;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::Value;
use zeroize::Zeroizing;

use super::transport::Raw;

/// The replacement for a secret.
const INSTEAD: &str = "***";

/// A secret shorter than this is part of many words. It is removed only where it stands alone.
const SHORT: usize = 4;

/// The secrets of one request.
pub struct Hidden {
    /// The secrets as they are, and as JSON and Rust quote them; the longest first.
    forms: Vec<Zeroizing<String>>,
}

impl Hidden {
    /// Hides these.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let kept = |text: &str| Zeroizing::new(text.to_owned());
        let inner = |quoted: Zeroizing<String>| quoted.get(1..quoted.len() - 1).map(kept);
        let of_one = |secret: &str| {
            let quoted = [serde_json::to_string(secret).unwrap_or_default(), format!("{secret:?}")];
            let quoted = quoted.map(Zeroizing::new).map(inner);
            quoted.into_iter().flatten().chain([kept(secret)])
        };
        let mut forms: Vec<_> = secrets.into_iter().flat_map(of_one).collect();
        forms.retain(|form| !form.is_empty());
        forms.sort_by_key(|form| Reverse(form.len()));
        forms.dedup();
        Self { forms }
    }

    /// Returns the text without them.
    pub fn text(&self, text: &str) -> String {
        self.forms.iter().fold(text.to_owned(), |text, form| without(&text, form).unwrap_or(text))
    }

    /// Removes them from a failed answer.
    pub fn answer(&self, mut raw: Raw) -> Raw {
        if raw.status.is_success() {
            return raw;
        }
        for value in raw.headers.values_mut() {
            let text = String::from_utf8_lossy(value.as_bytes());
            if self.lies_in(&text)
                && let Ok(clean) = HeaderValue::try_from(self.text(&text))
            {
                *value = clean;
            }
        }
        if let Some(body) = self.body(&raw.body) {
            raw.body = body;
        }
        raw
    }

    /// Returns the body without them, if it has any.
    fn body(&self, body: &[u8]) -> Option<Bytes> {
        let text = String::from_utf8_lossy(body);
        match serde_json::from_slice::<Value>(body) {
            // Serialising again drops duplicate fields, which could hide a secret.
            Ok(mut document) => (self.document(&mut document) || self.lies_in(&text))
                .then(|| Bytes::from(document.to_string())),
            Err(_) => self.lies_in(&text).then(|| Bytes::from(self.text(&text))),
        }
    }

    /// Takes them out of the document's texts, and tells whether there were any. The names
    /// of its fields stay: a password can be a word that the service uses.
    fn document(&self, document: &mut Value) -> bool {
        match document {
            Value::String(text) if self.lies_in(text) => {
                *text = self.text(text);
                true
            }
            Value::Array(values) => values.iter_mut().fold(false, |is, v| self.document(v) | is),
            Value::Object(fields) => fields.values_mut().fold(false, |is, v| self.document(v) | is),
            _ => false,
        }
    }

    fn lies_in(&self, text: &str) -> bool {
        self.forms.iter().any(|form| without(text, form).is_some())
    }
}

/// Returns the text without this secret, if it contains it.
fn without(text: &str, form: &str) -> Option<String> {
    let is_short = form.chars().count() < SHORT;
    let in_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let (mut clean, mut rest, mut is_there) = (String::new(), text, false);
    while let Some((before, behind)) = rest.split_once(form) {
        clean.push_str(before);
        let is_part = in_word(clean.chars().next_back()) || in_word(behind.chars().next());
        if is_short && is_part {
            // The next secret may begin within this one.
            let mut letters = rest.strip_prefix(before).unwrap_or_default().chars();
            clean.extend(letters.next());
            rest = letters.as_str();
        } else {
            clean.push_str(INSTEAD);
            (rest, is_there) = (behind, true);
        }
    }
    is_there.then(|| clean + rest)
}

#[cfg(test)]
mod tests;
