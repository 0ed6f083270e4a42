//! Changes of protocol buffers, by their fields: the message stays one, whatever it says.

use rand::{Rng as _, rngs::StdRng};

use super::text;

/// One field: its tag, and what it holds.
#[derive(Clone)]
struct Field {
    tag: u64,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
}

/// Changes one field, or what is in it if that may be a message.
pub(super) fn message(input: &[u8], random: &mut StdRng) -> Vec<u8> {
    let Some(mut fields) = parsed(input).filter(|fields| !fields.is_empty()) else {
        return text::bytes(input, random);
    };
    let at = random.random_range(0..fields.len());
    match random.random_range(0..8) {
        0 => drop(fields.remove(at)),
        1 => {
            let to = random.random_range(0..fields.len());
            if let Some(field) = fields.get(at).cloned() {
                fields.insert(to, field);
            }
        }
        2 => {
            if let Some(field) = fields.get_mut(at) {
                let kind = field.tag & 7;
                field.tag = random.random_range(1..24) << 3 | kind;
            }
        }
        _ => {
            if let Some(field) = fields.get_mut(at) {
                change(&mut field.value, random);
            }
        }
    }
    written(&fields)
}

fn change(value: &mut Value, random: &mut StdRng) {
    match value {
        Value::Number(number) => {
            *number = match random.random_range(0..4) {
                0 => u64::MAX,
                1 => random.random_range(0..64),
                2 => number.wrapping_add(1),
                _ => random.random(),
            }
        }
        Value::Fixed(bytes) => bytes.iter_mut().for_each(|byte| *byte = random.random()),
        Value::Bytes(bytes) => {
            let inner = parsed(bytes).is_some_and(|fields| !fields.is_empty());
            *bytes = match (inner, random.random_range(0..3)) {
                (true, 0 | 1) => message(bytes, random),
                (_, 0) => text::word(random).into_bytes(),
                _ => text::words(bytes, random),
            };
        }
    }
}

fn number(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = input.split_first()?;
        *input = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(taken)
}

/// Returns the fields; empty if this is not a message.
fn parsed(mut input: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !input.is_empty() {
        let tag = number(&mut input)?;
        let value = match tag & 7 {
            _ if tag >> 3 == 0 => return None,
            0 => Value::Number(number(&mut input)?),
            1 => Value::Fixed(take(&mut input, 8)?.to_vec()),
            2 => {
                let length = usize::try_from(number(&mut input)?).ok()?;
                Value::Bytes(take(&mut input, length)?.to_vec())
            }
            5 => Value::Fixed(take(&mut input, 4)?.to_vec()),
            _ => return None,
        };
        fields.push(Field { tag, value });
    }
    Some(fields)
}

fn push(output: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            output.push(low);
            return;
        }
        output.push(low | 0x80);
    }
}

fn written(fields: &[Field]) -> Vec<u8> {
    let mut output = Vec::new();
    for Field { tag, value } in fields {
        push(&mut output, *tag);
        match value {
            Value::Number(number) => push(&mut output, *number),
            Value::Fixed(bytes) => output.extend(bytes),
            Value::Bytes(bytes) => {
                push(&mut output, bytes.len() as u64);
                output.extend(bytes);
            }
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_as_it_was_read() {
        let all = [&[0x0a, 3, b'a', b'b', b'c', 0x10, 0xff, 0x7f, 0x2d, 1, 2, 3, 4][..], &[]];
        for message in all {
            assert_eq!(written(&parsed(message).unwrap()), message);
        }
        assert!(parsed(&[0x0a, 9]).is_none() && parsed(&[0xff]).is_none());
    }
}
