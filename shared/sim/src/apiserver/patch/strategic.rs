//! Strategic merge patches: merge patches that know the types.
//!
//! Lists of a type with a merge key are merged entry by entry, lists of plain values
//! that merge are united, all others are replaced. Directives say otherwise: `$patch`,
//! `$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD` and `$retainKeys`.

use serde_json::{Map, Value};

use super::{super::shape::Shape, PatchError};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

pub(super) fn apply(target: &mut Value, patch: &Value, shape: &Shape) -> Result<(), PatchError> {
    match (&mut *target, patch) {
        (Value::Object(target), Value::Object(patch)) => object(target, patch, shape),
        _ => {
            target.clone_from(patch);
            Ok(())
        }
    }
}

fn object(target: &mut Map<String, Value>, patch: &Map<String, Value>, shape: &Shape) -> Result<(), PatchError> {
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("replace") => {
            target.clear();
            target.extend(patch.iter().filter(|(name, _)| *name != PATCH).map(|(k, v)| (k.clone(), v.clone())));
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(Value::Array(keys)) = patch.get(RETAIN) {
        target.retain(|name, _| keys.iter().any(|key| key.as_str() == Some(name)));
    }
    for (name, value) in patch {
        if name == PATCH || name == RETAIN {
            continue;
        }
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(have)), Value::Array(unwanted)) = (target.get_mut(field), value) {
                have.retain(|item| !unwanted.contains(item));
            }
        } else if let Some(field) = name.strip_prefix(ORDER) {
            // With values of its own the list is ordered when these are merged.
            if !patch.contains_key(field) {
                let shape = shape.field(field).unwrap_or(Shape::Any);
                list(target, field, &[], patch.get(name), &shape)?;
            }
        } else if value.is_null() {
            target.remove(name);
        } else {
            let order = patch.get(&format!("{ORDER}{name}"));
            let shape = shape.field(name).unwrap_or(Shape::Any);
            member(target, name, value, order, &shape)?;
        }
    }
    Ok(())
}

fn member(
    target: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    order: Option<&Value>,
    shape: &Shape,
) -> Result<(), PatchError> {
    match value {
        Value::Array(items) => list(target, name, items, order, shape),
        Value::Object(patch) => {
            let entry = target.entry(name.to_owned()).or_insert(Value::Null);
            if !entry.is_object() {
                *entry = Value::Object(Map::new());
            }
            if let Value::Object(inner) = entry {
                object(inner, patch, shape)?;
            }
            Ok(())
        }
        plain => {
            target.insert(name.to_owned(), plain.clone());
            Ok(())
        }
    }
}

fn list(
    target: &mut Map<String, Value>,
    name: &str,
    patch: &[Value],
    order: Option<&Value>,
    shape: &Shape,
) -> Result<(), PatchError> {
    let have = match target.get(name) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let merged = match shape {
        Shape::Keyed(key, entry) => keyed(have, patch, order, key, entry)?,
        Shape::Set(_) => {
            let mut merged = have.clone();
            merged.extend(patch.iter().cloned());
            let mut seen: Vec<Value> = Vec::new();
            merged.retain(|item| {
                let new = !seen.contains(item);
                seen.push(item.clone());
                new
            });
            ordered(merged, order.and_then(Value::as_array).map_or(patch, Vec::as_slice), &have, Clone::clone)
        }
        _ => patch.to_vec(),
    };
    if !merged.is_empty() || target.contains_key(name) || !patch.is_empty() {
        target.insert(name.to_owned(), Value::Array(merged));
    }
    Ok(())
}

fn keyed(
    have: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
    key: &'static str,
    entry: &Shape,
) -> Result<Vec<Value>, PatchError> {
    let directive = |item: &Value| item.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        return Ok(patch.iter().filter(|item| directive(item).is_none()).cloned().collect());
    }
    let key_of = |item: &Value| item.get(key).cloned().unwrap_or(Value::Null);
    let mut merged = have.clone();
    for item in patch {
        let wanted = key_of(item);
        if wanted.is_null() {
            return Err(PatchError::NoMergeKey { element: go_map(item), key });
        }
        if directive(item).as_deref() == Some("delete") {
            merged.retain(|existing| key_of(existing) != wanted);
            continue;
        }
        match merged.iter_mut().find(|existing| key_of(existing) == wanted) {
            Some(existing) => apply(existing, item, entry)?,
            None => {
                let mut fresh = Value::Object(Map::new());
                apply(&mut fresh, item, entry)?;
                merged.push(fresh);
            }
        }
    }
    let order = order.and_then(Value::as_array).map_or(patch, Vec::as_slice);
    Ok(ordered(merged, order, &have, key_of))
}

/// Entries that the patch names come in the patch's order. The others keep their places
/// before those named entries that they already stood before.
fn ordered(merged: Vec<Value>, order: &[Value], have: &[Value], key_of: impl Fn(&Value) -> Value) -> Vec<Value> {
    let position = |list: &[Value], item: &Value| {
        let key = key_of(item);
        list.iter().position(|other| key_of(other) == key)
    };
    let (mut named, others): (Vec<_>, Vec<_>) = merged.into_iter().partition(|item| position(order, item).is_some());
    named.sort_by_key(|item| position(order, item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        if let Some(place) = position(have, &item) {
            while let Some(other) = others.next_if(|other| position(have, other).is_some_and(|other| other < place)) {
                result.push(other);
            }
        }
        result.push(item);
    }
    result.extend(others);
    result
}

/// A map as Go prints it: what the real server's message holds.
pub(super) fn go_map(value: &Value) -> String {
    let Value::Object(map) = value else { return value.to_string() };
    let inner: Vec<_> = map
        .iter()
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}:{text}"),
            other => format!("{name}:{}", go_map(other)),
        })
        .collect();
    format!("map[{}]", inner.join(" "))
}

#[cfg(test)]
mod tests;
