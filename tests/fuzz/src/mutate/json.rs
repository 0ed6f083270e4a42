//! Changes of JSON: values of another kind, members that are missing or there twice, extremes.

use rand::{Rng as _, rngs::StdRng};
use serde_json::{Map, Value, json};

use super::text;

/// Changes the JSON at the end of a line; the whole line if it has no JSON.
pub(super) fn line(line: &[u8], random: &mut StdRng) -> Vec<u8> {
    let begin = line.iter().position(|byte| matches!(byte, b'{' | b'[')).unwrap_or(line.len());
    let (before, document) = line.split_at(begin);
    match serde_json::from_slice::<Value>(document) {
        Ok(mut value) if random.random_bool(0.9) => {
            let mut left = random.random_range(0..size(&value));
            let pool = texts(&value);
            change(&mut value, &mut left, &pool, random);
            [before, value.to_string().as_bytes()].concat()
        }
        _ if begin > 0 => [&text::words(before, random)[..], document].concat(),
        _ => text::bytes(line, random),
    }
}

/// Returns the number of values in this one, itself included.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(size).sum(),
        Value::Object(all) => all.values().map(size).sum(),
        _ => 0,
    }
}

/// Collects the texts of the document: in the wrong place they often mean something.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(all) => all.iter().flat_map(texts).collect(),
        Value::Object(all) => {
            let keys = all.keys().cloned();
            keys.chain(all.values().flat_map(texts)).collect()
        }
        _ => Vec::new(),
    }
}

/// Changes the value after this number of others. Returns true if it was in here.
fn change(value: &mut Value, left: &mut usize, pool: &[String], random: &mut StdRng) -> bool {
    if *left == 0 {
        twist(value, pool, random);
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(all) => all.iter_mut().any(|inner| change(inner, left, pool, random)),
        Value::Object(all) => all.values_mut().any(|inner| change(inner, left, pool, random)),
        _ => false,
    }
}

fn twist(value: &mut Value, pool: &[String], random: &mut StdRng) {
    let one_of = |random: &mut StdRng| {
        let at = random.random_range(0..pool.len().max(1));
        pool.get(at).cloned().unwrap_or_default()
    };
    match (value, random.random_range(0..3)) {
        (Value::Object(all), 0 | 1) => members(all, one_of(random), random),
        (Value::Array(all), 0 | 1) => entries(all, random),
        (Value::String(text), 0) => *text = one_of(random),
        (Value::String(text), 1) => {
            let changed = text::words(text.as_bytes(), random);
            *text = String::from_utf8_lossy(&changed).into_owned();
        }
        (value, _) => *value = odd(std::mem::take(value), random),
    }
}

fn members(all: &mut Map<String, Value>, name: String, random: &mut StdRng) {
    let at = random.random_range(0..all.len().max(1));
    let Some(key) = all.keys().nth(at).cloned() else {
        all.insert(name, Value::Null);
        return;
    };
    match random.random_range(0..3) {
        0 => drop(all.remove(&key)),
        1 => {
            let value = all.remove(&key).unwrap_or_default();
            all.insert(name, value);
        }
        _ => {
            let value = all.get(&key).cloned().unwrap_or_default();
            all.insert(name, value);
        }
    }
}

fn entries(all: &mut Vec<Value>, random: &mut StdRng) {
    if all.is_empty() {
        all.push(odd(Value::Null, random));
        return;
    }
    let (at, to) = (random.random_range(0..all.len()), random.random_range(0..all.len()));
    match random.random_range(0..4) {
        0 => drop(all.remove(at)),
        1 => all.swap(at, to),
        2 => all.clear(),
        _ => {
            let entry = all.get(at).cloned().unwrap_or_default();
            for _ in 0..random.random_range(1..30) {
                all.insert(to, entry.clone());
            }
        }
    }
}

/// Returns a value that is not expected in place of this one.
fn odd(value: Value, random: &mut StdRng) -> Value {
    match random.random_range(0..16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(u64::MAX),
        5 => json!(i64::MIN),
        6 => json!(1.5e300),
        7 => json!(""),
        8 => json!([]),
        9 => json!({}),
        10 => json!([value]),
        11 => json!({ "id": value }),
        12 => json!(value.to_string()),
        13 => (0..random.random_range(1..100)).fold(value, |inner, _| json!([inner])),
        14 => json!(text::word(random)),
        _ => json!(random.random::<i32>()),
    }
}
