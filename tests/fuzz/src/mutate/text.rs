//! Changes of bytes, words and lines.

use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};

/// Texts that readers often do not expect.
const WORDS: [&str; 44] = [
    "",
    " ",
    "\t",
    "\r",
    "\u{0}",
    "\u{7f}",
    "\u{85}",
    "\u{200b}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "K",
    "ß",
    "日本",
    "\u{1f600}",
    "\"",
    "'",
    "\\",
    "\\n",
    "\\\"",
    "#",
    ";",
    "=",
    ":",
    ",",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "<<: *a",
    "- ",
    "!",
    "!!str ",
    "|",
    ">",
    "%",
    "-1",
    "0",
    "4294967296",
    "18446744073709551616",
    "1e309",
    "9223372036854775807",
];

/// Flips, removes, repeats or adds bytes.
pub(super) fn bytes(input: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut output = input.to_vec();
    let at = random.random_range(0..=output.len());
    let end = (at + random.random_range(1..=16)).min(output.len());
    match random.random_range(0..4) {
        0 => {
            if let Some(byte) = output.get_mut(at) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        1 => drop(output.drain(at..end)),
        2 => {
            let again = input.get(at..end).unwrap_or_default().repeat(random.random_range(1..40));
            output.splice(at..at, again);
        }
        _ => drop(output.splice(at..end, word(random).bytes())),
    }
    output
}

/// Returns a word that is not expected; sometimes a very long one.
pub(super) fn word(random: &mut StdRng) -> String {
    let word = WORDS.choose(random).copied().unwrap_or_default();
    match random.random_range(0..12) {
        0 => word.repeat(random.random_range(1..2_000)),
        1 => random.random::<i64>().to_string(),
        _ => word.to_owned(),
    }
}

/// Replaces a word, joins two, or puts one in between.
pub(super) fn words(input: &[u8], random: &mut StdRng) -> Vec<u8> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte >= 0x80;
    let at = random.random_range(0..=input.len());
    let (before, after) = input.split_at(at);
    let begin = before.iter().rposition(|byte| !is_part(*byte)).map_or(0, |at| at + 1);
    let length = after.iter().position(|byte| !is_part(*byte)).unwrap_or(after.len());
    let new = word(random);
    match random.random_range(0..3) {
        0 => [before, new.as_bytes(), after].concat(),
        1 => {
            let kept = input.get(begin..at + length).unwrap_or_default();
            [
                before.get(..begin).unwrap_or_default(),
                kept,
                kept,
                after.get(length..).unwrap_or_default(),
            ]
            .concat()
        }
        _ => [
            before.get(..begin).unwrap_or_default(),
            new.as_bytes(),
            after.get(length..).unwrap_or_default(),
        ]
        .concat(),
    }
}

/// Removes, repeats, swaps or takes over lines.
pub(super) fn lines(input: &[u8], other: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let others: Vec<&[u8]> = other.split(|byte| *byte == b'\n').collect();
    let (at, to) = (random.random_range(0..lines.len()), random.random_range(0..lines.len()));
    match random.random_range(0..4) {
        0 => drop(lines.remove(at)),
        1 => lines.swap(at, to),
        2 => {
            let line = lines.get(at).copied().unwrap_or_default();
            for _ in 0..random.random_range(1..20) {
                lines.insert(to, line);
            }
        }
        _ => lines.insert(at, others.choose(random).copied().unwrap_or_default()),
    }
    lines.join(&b'\n')
}
