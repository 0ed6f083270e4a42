//! Checks the bounds of a YAML text before values are built from it.
//!
//! Parsers recurse with each level of nesting and copy what an alias refers to, so a few kilobytes
//! can take the whole stack or gigabytes of memory. Reading only the events of a text is cheap, and
//! they show its depth and its size with all aliases expanded.

mod tree;

use std::collections::HashMap;

use yaml_rust2::{Event, parser::Parser};

pub use self::tree::Yaml;

/// The size of the largest configuration file, in bytes. It also bounds YAML with its aliases
/// expanded.
pub(crate) const LARGEST: usize = 256 << 10;
/// The most levels of lists and mappings within each other.
const DEEPEST: usize = 64;

const TOO_DEEP: &str = "more than 64 levels of nesting";
const TOO_LARGE: &str = "more than 256 KiB with its aliases expanded";

/// A YAML text that is refused, and the line (from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// It is not YAML. The parser's message may show a character of the text.
    #[error("line {line}: {why}")]
    Invalid {
        /// The line.
        line: usize,
        /// The parser's words.
        why: String,
    },
    /// Its values would cost too much.
    #[error("line {line}: {what}")]
    OutOfBounds {
        /// The line.
        line: usize,
        /// The bound.
        what: &'static str,
    },
}

/// Checks that values can be built from this text at a bounded cost.
pub(crate) fn check_yaml(text: &str) -> Result<(), YamlError> {
    let mut bounds = Bounds::default();
    events(text, |event, line| bounds.add(&event, line))
}

/// Passes the events of the text to `each`, with their lines.
fn events(
    text: &str,
    mut each: impl FnMut(Event, usize) -> Result<(), YamlError>,
) -> Result<(), YamlError> {
    // Other parsers skip a byte order mark, but this one reads it as a letter.
    let mut parser = Parser::new_from_str(text.trim_start_matches('\u{feff}'));
    loop {
        let (event, place) = parser.next_token().map_err(|error| YamlError::Invalid {
            line: error.marker().line(),
            why: error.info().to_owned(),
        })?;
        if event == Event::StreamEnd {
            return Ok(());
        }
        each(event, place.line())?;
    }
}

/// The size of the values so far. The size of a scalar is its bytes plus one. The size of a list or
/// a mapping is the size of its content plus one.
#[derive(Default)]
struct Bounds {
    total: usize,
    /// The lists and mappings that are open: the anchor of each, and the total before it.
    open: Vec<(usize, usize)>,
    anchors: HashMap<usize, usize>,
}

impl Bounds {
    /// Counts one more event, unless the values would cost too much.
    fn add(&mut self, event: &Event, line: usize) -> Result<(), YamlError> {
        self.count(event);
        if self.open.len() > DEEPEST {
            return Err(YamlError::OutOfBounds { line, what: TOO_DEEP });
        }
        if self.total > LARGEST {
            return Err(YamlError::OutOfBounds { line, what: TOO_LARGE });
        }
        Ok(())
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::Scalar(text, _, anchor, _) => {
                self.anchors.insert(*anchor, text.len() + 1);
                self.total += text.len() + 1;
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                self.open.push((*anchor, self.total));
                self.total += 1;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = self.open.pop() {
                    self.anchors.insert(anchor, self.total - before);
                }
            }
            // An alias within the value that it refers to does not have a size. Parsers refuse it.
            Event::Alias(anchor) => {
                self.total += self.anchors.get(anchor).copied().unwrap_or_default();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `a0: &a0 [x]`, and then each line ten times the previous one.
    fn aliases(lines: usize) -> String {
        let line = |at: usize| {
            let ten = vec![format!("*a{}", at - 1); 10].join(", ");
            format!("a{at}: &a{at} [{ten}]\n")
        };
        (1..lines).map(line).fold("a0: &a0 [x]\n".to_owned(), |text, line| text + &line)
    }

    #[test]
    fn deep_and_expanding_texts_are_refused_before_they_cost_much() {
        let block: String = (0..5000).map(|level| " ".repeat(level) + "a:\n").collect();
        let levels = |open: &str, count: usize, close: &str| {
            format!("a: {}{}", open.repeat(count), close.repeat(count))
        };
        for (what, text, expect) in [
            ("40 kB of a list in a list", "- ".repeat(20_000), Err("levels")),
            ("keys in keys", "? ".repeat(20_000), Err("levels")),
            ("mappings in blocks", block, Err("levels")),
            ("256 KiB of brackets", "[".repeat(LARGEST), Err("recursion limit")),
            ("256 KiB of braces", "{a: ".repeat(LARGEST / 4), Err("recursion limit")),
            ("64 levels", levels("[", 63, "]"), Ok(())),
            ("65 levels", levels("[", 64, "]"), Err("line 1: more than 64 levels")),
            ("nine lines of aliases", aliases(9), Err("line 6: more than 256 KiB")),
            ("four lines of aliases", aliases(4), Ok(())),
            ("an alias of itself", "a: &a [*a]".to_owned(), Ok(())),
            ("a long text, often", long_text_often(), Err("more than 256 KiB")),
            ("merged mappings", "x: &x {a: b}\ny: {<<: *x, c: d}".to_owned(), Ok(())),
            ("plain", "a: 1\nb: [x, y]\n".to_owned(), Ok(())),
            ("nothing", String::new(), Ok(())),
        ] {
            let got = check_yaml(&text).map_err(|error| error.to_string());
            match (&got, expect) {
                (Ok(()), Ok(())) => {}
                (Err(got), Err(part)) if got.contains(part) => {}
                _ => panic!("{what}: {got:?}, not {expect:?}"),
            }
        }
    }

    fn long_text_often() -> String {
        format!("a: &a {}\nb: [{}]", "x".repeat(100_000), vec!["*a"; 50_000].join(","))
    }
}
