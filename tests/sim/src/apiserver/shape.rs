//! The shape of the built-in types: their fields, the kinds of the fields, the handling of
//! empty ones, and how strategic merge patches treat their lists.
//!
//! The real server decodes into Go structs: it drops unknown fields and most empty values,
//! adds a few that are always present, and rejects wrong types. Clients depend on that, and
//! [`normalise`] does the same.

use jiff::{Timestamp, fmt::temporal::DateTimeParser};
use serde_json::{Map, Value};

pub(super) mod core;
pub(super) mod meta;

/// The possible values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Text,
    Int,
    Bool,
    /// Base64.
    Bytes,
    /// RFC 3339, truncated to whole seconds.
    Time,
    /// RFC 3339 with exactly six digits after the second.
    MicroTime,
    IntOrText,
    /// A resource quantity: text, or a number that becomes text.
    Quantity,
    /// Any value, unchanged.
    Any,
    MapOf(&'static Shape),
    /// A list that patches replace as a whole.
    List(&'static Shape),
    /// A list of plain values that strategic patches add to.
    Set(&'static Shape),
    /// A list whose entries strategic patches match by this field.
    Keyed(&'static str, &'static Shape),
    Object(&'static [Field]),
    /// An object of which only these fields are checked.
    Open(&'static [Field]),
}

/// The handling of a field without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Go's `omitempty` on a plain value: zero values are dropped.
    OmitZero,
    /// A pointer: zero values stay, null is dropped.
    Pointer,
    /// Always present. A missing field gets an empty value.
    Always,
}

/// A field of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) presence: Presence,
}

pub(super) const fn opt(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, presence: Presence::OmitZero }
}

pub(super) const fn ptr(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, presence: Presence::Pointer }
}

pub(super) const fn always(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, presence: Presence::Always }
}

impl Shape {
    /// Returns the shape of a field of this object or map; `None` for unknown fields.
    pub(super) fn field(&self, name: &str) -> Option<Shape> {
        match self {
            Self::Object(fields) => {
                fields.iter().find(|field| field.name == name).map(|field| field.shape)
            }
            Self::Open(fields) => Some(
                fields
                    .iter()
                    .find(|field| field.name == name)
                    .map_or(Self::Any, |field| field.shape),
            ),
            Self::MapOf(shape) => Some(**shape),
            Self::Any => Some(Self::Any),
            _ => None,
        }
    }

    fn go_name(&self) -> &'static str {
        match self {
            Self::Int => "int32",
            Self::Bool => "bool",
            Self::MapOf(_) => "map[string]string",
            Self::List(_) | Self::Set(_) | Self::Keyed(..) => "[]",
            Self::Object(_) | Self::Open(_) => "struct",
            _ => "string",
        }
    }

    fn empty(&self) -> Value {
        match self {
            Self::Text | Self::Bytes => Value::from(""),
            Self::Int | Self::IntOrText => Value::from(0),
            Self::Bool => Value::from(false),
            Self::Object(_) | Self::Open(_) | Self::MapOf(_) => Value::Object(Map::new()),
            _ => Value::Null,
        }
    }
}

/// The reason why a value does not fit its shape.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum ShapeError {
    #[error("json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")]
    Type { path: String, found: &'static str, wanted: &'static str },
    #[error("parsing time {text:?} as {layout:?}: cannot parse {:?} as {:?}", stuck(text, layout).0, stuck(text, layout).1)]
    Time { text: String, layout: &'static str },
    #[error("illegal base64 data at {path}")]
    Base64 { path: String },
}

/// Converts a value to the form that the real server would store. Unknown fields are
/// dropped and added to `unknown`.
pub(super) fn normalise(
    value: &mut Value,
    shape: &Shape,
    unknown: &mut Vec<String>,
) -> Result<(), ShapeError> {
    Normaliser { unknown, path: Vec::new() }.value(value, shape)
}

struct Normaliser<'a> {
    unknown: &'a mut Vec<String>,
    path: Vec<String>,
}

impl Normaliser<'_> {
    fn value(&mut self, value: &mut Value, shape: &Shape) -> Result<(), ShapeError> {
        match (shape, &mut *value) {
            (Shape::Any, _) => Ok(()),
            (Shape::Object(fields), Value::Object(map)) => self.object(map, fields, false),
            (Shape::Open(fields), Value::Object(map)) => self.object(map, fields, true),
            (Shape::MapOf(inner), Value::Object(map)) => self.map(map, inner),
            (
                Shape::List(inner) | Shape::Set(inner) | Shape::Keyed(_, inner),
                Value::Array(items),
            ) => self.list(items, inner),
            (Shape::Text | Shape::IntOrText | Shape::Quantity, Value::String(_))
            | (Shape::Bool, Value::Bool(_)) => Ok(()),
            (Shape::Int | Shape::IntOrText, Value::Number(number))
                if number.is_i64() || number.is_u64() =>
            {
                Ok(())
            }
            (Shape::Quantity, Value::Number(number)) => {
                *value = Value::from(number.to_string());
                Ok(())
            }
            (Shape::Bytes, Value::String(text)) if is_base64(text) => Ok(()),
            (Shape::Bytes, Value::String(_)) => {
                Err(ShapeError::Base64 { path: self.path.join(".") })
            }
            (Shape::Time, Value::String(text)) => {
                *value = Value::from(seconds(text)?);
                Ok(())
            }
            (Shape::MicroTime, Value::String(text)) => {
                *value = Value::from(micros(text)?);
                Ok(())
            }
            (wanted, found) => Err(ShapeError::Type {
                path: self.path.join("."),
                found: kind_of(found),
                wanted: wanted.go_name(),
            }),
        }
    }

    fn object(
        &mut self,
        map: &mut Map<String, Value>,
        fields: &[Field],
        open: bool,
    ) -> Result<(), ShapeError> {
        if !open {
            let known = |name: &String| fields.iter().any(|field| field.name == name);
            let strangers: Vec<String> = map.keys().filter(|name| !known(name)).cloned().collect();
            for name in strangers {
                map.remove(&name);
                self.path.push(name);
                self.unknown.push(self.path.join("."));
                self.path.pop();
            }
        }
        for field in fields {
            let found = map.get(field.name).is_some_and(|value| !value.is_null());
            match field.presence {
                Presence::Always if !found => {
                    map.insert(field.name.to_owned(), field.shape.empty());
                }
                _ if !found => {
                    map.remove(field.name);
                    continue;
                }
                _ => {}
            }
            let Some(value) = map.get_mut(field.name) else { continue };
            if value.is_null() {
                continue;
            }
            self.path.push(field.name.to_owned());
            self.value(value, &field.shape)?;
            self.path.pop();
            let structure = matches!(field.shape, Shape::Object(_) | Shape::Open(_));
            if field.presence == Presence::OmitZero && !structure && is_zero(value) {
                map.remove(field.name);
            }
        }
        Ok(())
    }

    fn map(&mut self, map: &mut Map<String, Value>, inner: &Shape) -> Result<(), ShapeError> {
        for (name, value) in map.iter_mut() {
            if value.is_null() {
                *value = inner.empty();
                continue;
            }
            // Go names the map, not the key, in its errors.
            let depth = self.path.len();
            if !matches!(inner, Shape::Text | Shape::Bytes | Shape::Quantity) {
                self.path.push(name.clone());
            }
            self.value(value, inner)?;
            self.path.truncate(depth);
        }
        Ok(())
    }

    fn list(&mut self, items: &mut [Value], inner: &Shape) -> Result<(), ShapeError> {
        for (index, item) in items.iter_mut().enumerate() {
            if item.is_null() {
                *item = inner.empty();
            }
            let last = self.path.last_mut().map(|last| {
                let plain = last.clone();
                *last = format!("{last}[{index}]");
                plain
            });
            let result = self.value(item, inner);
            if let (Some(last), Some(plain)) = (self.path.last_mut(), last) {
                *last = plain;
            }
            result?;
        }
        Ok(())
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn timestamp(text: &str, layout: &'static str) -> Result<Timestamp, ShapeError> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let error = || ShapeError::Time { text: text.to_owned(), layout };
    PARSER.parse_timestamp(text).map_err(|_| error())
}

/// Returns where a time deviates from its layout: the remaining text, and the expected element.
fn stuck<'a>(text: &'a str, layout: &str) -> (&'a str, &'static str) {
    const PARTS: [&str; 12] =
        ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05", ".000000"];
    let like = |wanted: u8, found: u8| match wanted {
        b'0'..=b'9' => found.is_ascii_digit(),
        _ => wanted == found,
    };
    let mut rest = text;
    for part in PARTS.into_iter().filter(|part| layout.contains(part)) {
        let fits = rest.len() >= part.len()
            && part.bytes().zip(rest.bytes()).all(|(wanted, found)| like(wanted, found));
        match rest.get(part.len()..) {
            Some(after) if fits => rest = after,
            _ => return (rest, part),
        }
    }
    (rest, "Z07:00")
}

fn seconds(text: &str) -> Result<String, ShapeError> {
    let time = timestamp(text, "2006-01-02T15:04:05Z07:00")?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Checks a time with microseconds. The real server requires exactly six digits after the second.
fn micros(text: &str) -> Result<String, ShapeError> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let error = || ShapeError::Time { text: text.to_owned(), layout: LAYOUT };
    let (_, fraction) = text.split_once('.').ok_or_else(error)?;
    if fraction.bytes().take_while(u8::is_ascii_digit).count() != 6 {
        return Err(error());
    }
    let time = timestamp(text, LAYOUT)?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

#[cfg(test)]
mod tests;
