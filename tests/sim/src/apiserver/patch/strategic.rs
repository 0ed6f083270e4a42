//! Strategic merge patches: typed merge patches.
//!
//! Lists with a merge key are merged entry by entry, mergeable lists of plain values are
//! united, all others are replaced. Directives override this: `$patch`,
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

fn object(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    shape: &Shape,
) -> Result<(), PatchError> {
    if let Some(directive) = patch.get(PATCH).and_then(Value::as_str) {
        return direct(target, patch, directive);
    }
    if let Some(Value::Array(keys)) = patch.get(RETAIN) {
        let retained = |name: &String| {
            name.starts_with('$') || keys.iter().any(|key| key.as_str() == Some(name))
        };
        if !patch.keys().all(retained) {
            return Err(PatchError::RetainKeys);
        }
        target.retain(|name, _| keys.iter().any(|key| key.as_str() == Some(name)));
    }
    for (name, value) in patch {
        if name == PATCH || name == RETAIN || name.starts_with(DELETE_FROM) {
            continue;
        }
        if let Some(field) = name.strip_prefix(ORDER) {
            // If the patch also has values, merging them orders the list.
            if !patch.contains_key(field) && target.contains_key(field) {
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
    for (name, value) in patch {
        let field = name.strip_prefix(DELETE_FROM).and_then(|field| target.get_mut(field));
        if let (Some(Value::Array(have)), Value::Array(unwanted)) = (field, value) {
            have.retain(|item| !unwanted.contains(item));
        }
    }
    Ok(())
}

/// Follows a directive about the whole object.
fn direct(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    directive: &str,
) -> Result<(), PatchError> {
    let fields = patch.iter().filter(|(name, _)| *name != PATCH);
    let kept: Map<_, _> = match directive {
        "replace" => fields.map(|(name, value)| (name.clone(), value.clone())).collect(),
        "delete" => Map::new(),
        other => {
            let element = go_map(&Value::Object(patch.clone()));
            return Err(PatchError::UnknownDirective { directive: other.to_owned(), element });
        }
    };
    *target = kept;
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
        Shape::Keyed(key, _) if have.is_empty() => fresh(patch, order, key)?,
        Shape::Keyed(key, entry) => keyed(have, patch, order, key, entry)?,
        Shape::Set(_) => {
            check_order(patch, order, Clone::clone)?;
            let mut merged = have.clone();
            merged.extend(patch.iter().cloned());
            let mut seen: Vec<Value> = Vec::new();
            merged.retain(|item| {
                let new = patch.is_empty() || !seen.contains(item);
                seen.push(item.clone());
                new
            });
            ordered(
                merged,
                order.and_then(Value::as_array).map_or(patch, Vec::as_slice),
                &have,
                Clone::clone,
            )
        }
        _ => patch.to_vec(),
    };
    target.insert(name.to_owned(), Value::Array(merged));
    Ok(())
}

fn directive(item: &Value) -> Option<&str> {
    item.get(PATCH).and_then(Value::as_str)
}

fn key_in(item: &Value, key: &str) -> Value {
    item.get(key).cloned().unwrap_or(Value::Null)
}

/// Checks the entries of a patch, independently of the target.
fn check_entries(
    patch: &[Value],
    order: Option<&Value>,
    key: &'static str,
) -> Result<(), PatchError> {
    check_order(patch, order, |item| key_in(item, key))?;
    for item in patch {
        match directive(item) {
            Some("merge") => return Err(PatchError::MergedList),
            Some("replace") => return Ok(()),
            Some("delete") | None => {}
            Some(other) => {
                return Err(PatchError::UnknownDirective {
                    directive: other.to_owned(),
                    element: go_map(item),
                });
            }
        }
    }
    match patch.iter().find(|item| key_in(item, key).is_null()) {
        Some(item) => Err(PatchError::NoMergeKey { element: go_map(item), key }),
        None => Ok(()),
    }
}

/// Returns a new list: the entries unchanged, even two with the same key.
fn fresh(
    patch: &[Value],
    order: Option<&Value>,
    key: &'static str,
) -> Result<Vec<Value>, PatchError> {
    check_entries(patch, order, key)?;
    let mut entries: Vec<Value> =
        patch.iter().filter(|item| directive(item).is_none()).cloned().collect();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.retain(|name, value| !name.starts_with('$') && !value.is_null());
    }
    Ok(entries)
}

fn keyed(
    have: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
    key: &'static str,
    entry: &Shape,
) -> Result<Vec<Value>, PatchError> {
    check_entries(patch, order, key)?;
    let key_of = |item: &Value| key_in(item, key);
    if patch.iter().any(|item| directive(item) == Some("replace")) {
        return Ok(patch.iter().filter(|item| directive(item).is_none()).cloned().collect());
    }
    // Deletions come first, wherever they are in the patch.
    let (deletions, patch): (Vec<Value>, Vec<Value>) =
        patch.iter().cloned().partition(|item| directive(item) == Some("delete"));
    let mut have = have;
    have.retain(|existing| deletions.iter().all(|item| key_of(item) != key_of(existing)));
    let mut merged = have.clone();
    for item in &patch {
        let wanted = key_of(item);
        match merged.iter_mut().find(|existing| key_of(existing) == wanted) {
            Some(existing) => apply(existing, item, entry)?,
            None => {
                let mut fresh = Value::Object(Map::new());
                apply(&mut fresh, item, entry)?;
                merged.push(fresh);
            }
        }
    }
    let order = order.and_then(Value::as_array).unwrap_or(&patch);
    Ok(ordered(merged, order, &have, key_of))
}

/// Checks a given order. It must name all entries of the patch, in the order of the patch.
fn check_order(
    patch: &[Value],
    order: Option<&Value>,
    key_of: impl Fn(&Value) -> Value,
) -> Result<(), PatchError> {
    let Some(Value::Array(order)) = order else { return Ok(()) };
    let mut rest = order.iter();
    let mut wanted = patch.iter().filter(|item| item.get(PATCH).is_none());
    if wanted.all(|item| rest.any(|other| key_of(other) == key_of(item))) {
        return Ok(());
    }
    let shown = |list: &[Value]| list.iter().map(go_map).collect::<Vec<_>>().join(" ");
    Err(PatchError::Order { patch: shown(patch), order: shown(order) })
}

/// Orders the entries. Entries in the patch come in the patch's order. The others keep their places
/// before the patched entries that they preceded.
fn ordered(
    merged: Vec<Value>,
    order: &[Value],
    have: &[Value],
    key_of: impl Fn(&Value) -> Value,
) -> Vec<Value> {
    let position = |list: &[Value], item: &Value| {
        let key = key_of(item);
        list.iter().position(|other| key_of(other) == key)
    };
    let (mut named, others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| position(order, item).is_some());
    named.sort_by_key(|item| position(order, item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        if let Some(place) = position(have, &item) {
            while let Some(other) =
                others.next_if(|other| position(have, other).is_some_and(|other| other < place))
            {
                result.push(other);
            }
        }
        result.push(item);
    }
    result.extend(others);
    result
}

/// Returns a map in Go's print format, as in the real server's message.
pub(super) fn go_map(value: &Value) -> String {
    let map = match value {
        Value::Object(map) => map,
        Value::String(text) => return text.clone(),
        Value::Array(items) => {
            return format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" "));
        }
        other => return other.to_string(),
    };
    let inner: Vec<_> = map
        .iter()
        .map(|(name, value)| match value {
            Value::Null => format!("{name}:<nil>"),
            other => format!("{name}:{}", go_map(other)),
        })
        .collect();
    format!("map[{}]", inner.join(" "))
}

#[cfg(test)]
mod tests;
