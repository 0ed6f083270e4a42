//! Writes lists in events as the difference from what the record has already.
//!
//! A list of the cloud hardly changes from one time to the next. So an element of a long array that
//! the segment has already is written as its number: `{"=":17}`, or `{"=":[17,40]}` for forty of
//! them from number 17 on. Such an array begins with `{"=":"list"}`; each of its objects and arrays
//! that is written in full gets the next number.
//!
//! Only the outermost arrays of an event are shortened. Maps and the content of elements are
//! written as they are.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
    io::{self, Write},
};

use serde::Deserialize;
use serde_json::value::RawValue;

/// Shorter arrays are written as they are.
const LONG: usize = 16;
/// The first element of an array with numbers.
const MARK: &[u8] = br#"{"=":"list"}"#;
/// The beginning of an element that represents others.
const STANDS: &[u8] = br#"{"=":"#;

/// The position of a reader of JSON. It follows the structure and does not look for mistakes.
#[derive(Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

#[derive(PartialEq)]
enum Sign {
    OpensArray,
    Closes,
    Comma,
    Other,
}

impl Scan {
    fn read(&mut self, byte: u8) -> Sign {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Sign::Other;
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        match byte {
            b'[' => Sign::OpensArray,
            b']' | b'}' => Sign::Closes,
            b',' => Sign::Comma,
            _ => Sign::Other,
        }
    }
}

/// Shortens the elements of the outermost arrays, or restores them.
trait Rewrite {
    fn element(&mut self, element: &[u8], to: &mut dyn Write) -> io::Result<()>;
    fn end(&mut self, to: &mut dyn Write) -> io::Result<()>;
}

/// Passes JSON through a [`Rewrite`].
struct Walk<'a, R> {
    to: &'a mut dyn Write,
    rewrite: R,
    scan: Scan,
    /// The depth inside of the array.
    array: Option<usize>,
    element: Vec<u8>,
}

impl<'a, R: Rewrite> Walk<'a, R> {
    fn new(to: &'a mut dyn Write, rewrite: R) -> Self {
        Self { to, rewrite, scan: Scan::default(), array: None, element: Vec::new() }
    }

    fn end_element(&mut self) -> io::Result<()> {
        self.rewrite.element(&self.element, self.to)?;
        self.element.clear();
        Ok(())
    }
}

impl<R: Rewrite> Write for Walk<'_, R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Values outside of arrays pass in one piece.
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let sign = self.scan.read(*byte);
            match self.array {
                None if sign == Sign::OpensArray => {
                    self.to.write_all(bytes.get(from..=at).unwrap_or_default())?;
                    self.array = Some(self.scan.depth);
                }
                None => continue,
                Some(depth) if sign == Sign::Comma && self.scan.depth == depth => {
                    self.end_element()?;
                }
                Some(depth) if sign == Sign::Closes && self.scan.depth < depth => {
                    if !self.element.is_empty() {
                        self.end_element()?;
                    }
                    self.rewrite.end(self.to)?;
                    self.array = None;
                    from = at;
                    continue;
                }
                Some(_) => self.element.push(*byte),
            }
            from = at + 1;
        }
        self.to.write_all(bytes.get(from..).unwrap_or_default())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_composite(element: &[u8]) -> bool {
    matches!(element.first(), Some(b'{' | b'['))
}

/// The elements of a segment, by their fingerprints.
#[derive(Default)]
pub(super) struct KnownElements {
    numbers: HashMap<[u32; 3], u32>,
}

impl KnownElements {
    /// Returns the memory that this takes.
    pub(super) fn bytes(&self) -> usize {
        // Each place takes one byte, and a part of the places stays free.
        self.numbers.capacity() * (size_of::<([u32; 3], u32)>() + 1) * 8 / 7
    }
}

/// Returns a hash of 96 bits: two different elements of a segment have the same hash with a
/// probability of about one in 10^20.
fn fingerprint(element: &[u8]) -> [u32; 3] {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(element);
        hasher.finish()
    };
    let (first, second) = (hash(0), hash(1));
    #[expect(clippy::cast_possible_truncation, reason = "a part of the hash")]
    [first as u32, (first >> 32) as u32, second as u32]
}

/// Writes an event with numbers in place of elements that the segment has already.
pub(super) struct Shortened<'a>(Walk<'a, Shorten<'a>>);

struct Shorten<'a> {
    known: &'a mut KnownElements,
    /// The first elements of an array that may turn out to be short.
    held: Vec<Vec<u8>>,
    is_long: bool,
    is_first: bool,
    /// The numbers that are not written yet: the first one, and how many there are.
    run: Option<(u32, u32)>,
}

impl<'a> Shortened<'a> {
    pub(super) fn new(to: &'a mut dyn Write, known: &'a mut KnownElements) -> Self {
        let (held, run) = (Vec::new(), None);
        Self(Walk::new(to, Shorten { known, held, is_long: false, is_first: true, run }))
    }
}

impl Write for Shortened<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shorten<'_> {
    fn separate(&mut self, to: &mut dyn Write) -> io::Result<()> {
        if std::mem::take(&mut self.is_first) { Ok(()) } else { to.write_all(b",") }
    }

    fn end_run(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let Some((first, count)) = self.run.take() else { return Ok(()) };
        self.separate(to)?;
        match count {
            1 => write!(to, "{{\"=\":{first}}}"),
            _ => write!(to, "{{\"=\":[{first},{count}]}}"),
        }
    }

    fn long(&mut self, element: &[u8], to: &mut dyn Write) -> io::Result<()> {
        if is_composite(element) {
            let (print, next) = (fingerprint(element), self.known.numbers.len());
            if let Some(number) = self.known.numbers.get(&print).copied() {
                match &mut self.run {
                    Some((first, count)) if *first + *count == number => *count += 1,
                    _ => {
                        self.end_run(to)?;
                        self.run = Some((number, 1));
                    }
                }
                return Ok(());
            }
            let next = u32::try_from(next).map_err(io::Error::other)?;
            self.known.numbers.insert(print, next);
        }
        self.end_run(to)?;
        self.separate(to)?;
        if element.starts_with(STANDS) {
            to.write_all(STANDS)?;
            to.write_all(element)?;
            return to.write_all(b"}");
        }
        to.write_all(element)
    }

    fn begin_long(&mut self, to: &mut dyn Write) -> io::Result<()> {
        self.is_long = true;
        self.separate(to)?;
        to.write_all(MARK)?;
        std::mem::take(&mut self.held).iter().try_for_each(|element| self.long(element, to))
    }
}

impl Rewrite for Shorten<'_> {
    fn element(&mut self, element: &[u8], to: &mut dyn Write) -> io::Result<()> {
        if self.is_long {
            return self.long(element, to);
        }
        self.held.push(element.to_owned());
        if self.held.len() < LONG { Ok(()) } else { self.begin_long(to) }
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        // An array that looks as if it had numbers gets some.
        if self.held.first().is_some_and(|element| element.starts_with(STANDS)) {
            self.begin_long(to)?;
        }
        self.end_run(to)?;
        for element in std::mem::take(&mut self.held) {
            self.separate(to)?;
            to.write_all(&element)?;
        }
        (self.is_long, self.is_first) = (false, true);
        Ok(())
    }
}

/// The elements of a segment by their numbers, for its reader.
#[derive(Default)]
pub(super) struct Elements(Vec<Box<RawValue>>);

impl Elements {
    /// Returns the event in full.
    pub(super) fn expand(&mut self, event: &str) -> io::Result<String> {
        let mut full = Vec::with_capacity(event.len());
        let rewrite = Expand { elements: self, is_long: false, is_begun: false, is_first: true };
        Walk::new(&mut full, rewrite).write_all(event.as_bytes())?;
        String::from_utf8(full).map_err(io::Error::other)
    }
}

struct Expand<'a> {
    elements: &'a mut Elements,
    is_long: bool,
    /// True behind the first element, which may be the mark.
    is_begun: bool,
    /// True until one is written.
    is_first: bool,
}

/// A reference to elements that the record already has.
#[derive(Deserialize)]
struct Stands<'a> {
    #[serde(rename = "=", borrow)]
    what: &'a RawValue,
}

impl Expand<'_> {
    fn put(&mut self, element: &[u8], to: &mut dyn Write) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            to.write_all(b",")?;
        }
        to.write_all(element)
    }

    fn long(&mut self, element: &[u8], to: &mut dyn Write) -> io::Result<()> {
        let mut element = element;
        if element.starts_with(STANDS) {
            let what = serde_json::from_slice::<Stands<'_>>(element)?.what.get();
            let (first, count) = if what.starts_with('{') {
                element = what.as_bytes();
                (0, 0)
            } else if what.starts_with('[') {
                serde_json::from_str::<(usize, usize)>(what)?
            } else {
                (serde_json::from_str::<usize>(what)?, 1)
            };
            let known = self.elements.0.get(first..first.saturating_add(count));
            let known = known.ok_or_else(|| io::Error::other("an element is not in the record"))?;
            if count > 0 {
                let known: Vec<_> = known.iter().map(|known| known.get().to_owned()).collect();
                return known.iter().try_for_each(|known| self.put(known.as_bytes(), to));
            }
        }
        if is_composite(element) {
            self.elements.0.push(serde_json::from_slice(element)?);
        }
        self.put(element, to)
    }
}

impl Rewrite for Expand<'_> {
    fn element(&mut self, element: &[u8], to: &mut dyn Write) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_begun, true) && element == MARK {
            self.is_long = true;
            return Ok(());
        }
        if self.is_long { self.long(element, to) } else { self.put(element, to) }
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        (self.is_long, self.is_begun, self.is_first) = (false, false, true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shortened(event: &Value, known: &mut KnownElements) -> String {
        let mut text = Vec::new();
        serde_json::to_writer(Shortened::new(&mut text, known), event).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_is_shortened_is_expanded_to_the_same() {
        let instance = |number: i32, zone: &str| json!({"id": format!("i-{number} [\"\\],"), "zone": zone, "at": [number, [1, 2]]});
        let list = |numbers: &[i32], zone: &str| {
            json!({"Listed": {"some": [{"=": [0, 3]}, "x"], "none": [], "nested": [[1], [2]],
                "all": numbers.iter().map(|number| instance(*number, zone)).collect::<Vec<_>>()}})
        };
        let numbers: Vec<i32> = (0..40).collect();
        let events = [
            list(&numbers, "a"),
            list(&numbers, "a"),
            list(&numbers[..30], "a"),
            list(&numbers[10..], "b"),
            json!([list(&numbers, "a"), 1, "a", null, {"=": {"=": 1, "x": 2}}]),
            json!((0..20).map(|n| json!({"=": n, "b": "["})).collect::<Vec<_>>()),
            json!({"short": [{"=": "list"}, {"=": 3}]}),
            json!("text ["),
            list(&numbers, "b"),
        ];
        let (mut known, mut elements) = (KnownElements::default(), Elements::default());
        let mut sizes = Vec::new();
        for event in &events {
            let text = shortened(event, &mut known);
            serde_json::from_str::<Value>(&text).unwrap();
            let full = elements.expand(&text).unwrap();
            assert_eq!(full, event.to_string(), "{text}");
            sizes.push((text.len(), full.len()));
        }
        assert_eq!(known.numbers.len(), elements.0.len());
        let [(first, full), (second, _), (third, _), ..] = sizes[..] else { panic!("{sizes:?}") };
        assert!(first >= full && second < 150 && third < 150, "{sizes:?}");
        Elements::default().expand(r#"[{"=":"list"},{"=":7}]"#).unwrap_err();
    }
}
