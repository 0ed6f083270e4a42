//! JSON patches, RFC 6902, with the leniency of the real server's library: `replace` adds
//! what is missing, a missing value is null, and -1 is the end of a list.

use serde_json::Value;

use super::PatchError;

pub(super) fn apply(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    for operation in patch.as_array().into_iter().flatten() {
        one(target, operation).ok_or(PatchError::Rejected)?;
    }
    Ok(())
}

/// Applies one operation; `None` if it does not apply.
fn one(target: &mut Value, operation: &Value) -> Option<()> {
    let path = pointer(operation.get("path")?.as_str()?)?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let from = || pointer(operation.get("from")?.as_str()?);
    match operation.get("op")?.as_str()? {
        "add" => add(target, &path, value()),
        "remove" => remove(target, &path).map(drop),
        "replace" => match find(target, parent(&path)?)? {
            Value::Object(map) => {
                map.insert(path.last()?.clone(), value());
                Some(())
            }
            _ => {
                *find(target, &path)? = value();
                Some(())
            }
        },
        "move" => {
            let from = from()?;
            // A move into itself is invalid.
            if path.starts_with(&from) && path.len() > from.len() {
                return None;
            }
            let value = remove(target, &from)?;
            add(target, &path, value)
        }
        "copy" => {
            let from = from()?;
            let value = read(target, &from)?;
            add(target, &path, value)
        }
        "test" => (read(target, &path)? == value()).then_some(()),
        _ => None,
    }
}

/// Returns the parts of a JSON pointer (RFC 6901).
fn pointer(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let parts = text.strip_prefix('/')?.split('/');
    Some(parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn find<'a>(target: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(target, |value, part| match value {
        Value::Object(map) => map.get_mut(part),
        Value::Array(items) => items.get_mut(index(part)?),
        _ => None,
    })
}

fn parent(path: &[String]) -> Option<&[String]> {
    path.split_last().map(|(_, parent)| parent)
}

/// Reads a value. Returns null if only its parent exists.
fn read(target: &mut Value, path: &[String]) -> Option<Value> {
    let parent_is_map =
        parent(path).and_then(|parent| find(target, parent)).is_some_and(|value| value.is_object());
    match find(target, path) {
        Some(value) => Some(value.clone()),
        None if parent_is_map => Some(Value::Null),
        None => None,
    }
}

fn index(part: &str) -> Option<usize> {
    let canonical = part == "0" || !part.starts_with(['0', '+']);
    part.parse().ok().filter(|_| canonical)
}

fn add(target: &mut Value, path: &[String], value: Value) -> Option<()> {
    let (last, parent) = path.split_last()?;
    match find(target, parent)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(items) => {
            let at = if last == "-" || last == "-1" { items.len() } else { index(last)? };
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parent) = path.split_last()?;
    match find(target, parent)? {
        Value::Object(map) => map.remove(last),
        Value::Array(items) => {
            let at = if last == "-1" { items.len().checked_sub(1)? } else { index(last)? };
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations() {
        let check = |mut target: Value, patch: Value, expect: Option<Value>| {
            let result = apply(&mut target, &patch);
            match expect {
                Some(expect) => assert_eq!((result, &target), (Ok(()), &expect), "{patch}"),
                None => assert_eq!(result, Err(PatchError::Rejected), "{patch}"),
            }
        };
        let op = |op: &str, path: &str, value: Value| json!([{ "op": op, "path": path, "value": value }]);
        check(json!({"a":1}), op("add", "/b", json!(2)), Some(json!({"a":1,"b":2})));
        check(json!({"a":[1,3]}), op("add", "/a/1", json!(2)), Some(json!({"a":[1,2,3]})));
        check(json!({"a":[1]}), op("add", "/a/-", json!(2)), Some(json!({"a":[1,2]})));
        check(json!({"a":[1]}), op("add", "/a/2", json!(2)), None);
        check(json!({"a":[1]}), op("add", "/a/01", json!(2)), None);
        check(json!({}), op("add", "/a/b", json!(2)), None);
        check(json!({"a":1}), op("replace", "/a", json!(2)), Some(json!({"a":2})));
        check(json!({}), op("replace", "/a", json!(2)), Some(json!({"a":2})));
        check(json!({}), op("replace", "/a/b", json!(2)), None);
        check(json!({"a":[]}), op("replace", "/a/0", json!(2)), None);
        check(json!({"a":[1]}), op("add", "/a/-1", json!(2)), Some(json!({"a":[1,2]})));
        check(json!({}), op("test", "/a", json!(null)), Some(json!({})));
        check(json!({}), json!([{"op":"copy","from":"/a","path":"/b"}]), Some(json!({"b":null})));
        check(json!({}), json!([{"op":"move","from":"/a","path":"/b"}]), None);
        check(json!({"x.y/z":1}), op("remove", "/x.y~1z", json!(null)), Some(json!({})));
        check(json!({}), op("remove", "/a", json!(null)), None);
        check(json!({"a":{"b":1}}), op("test", "/a", json!({"b":1})), Some(json!({"a":{"b":1}})));
        check(json!({"a":1}), op("test", "/a", json!(2)), None);
        check(json!({"a":1}), json!([{"op":"move","from":"/a","path":"/b"}]), Some(json!({"b":1})));
        check(json!({"a":{}}), json!([{"op":"move","from":"/a","path":"/a/b"}]), None);
        check(
            json!({"a":[1]}),
            json!([{"op":"copy","from":"/a","path":"/b"}]),
            Some(json!({"a":[1],"b":[1]})),
        );
        check(json!({"a":1}), op("bogus", "/a", json!(2)), None);
        check(json!({"a":1}), json!([{"path":"/a"}]), None);
    }
}
