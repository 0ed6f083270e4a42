//! A YAML text as plain values, each scalar as it is written.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use yaml_rust2::{Event, scanner::TScalarStyle};

use super::{Bounds, YamlError, events};

/// A value of a YAML text. Aliases and merged mappings (`<<`) are already replaced by their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Yaml {
    /// Nothing, `~` or `null`.
    #[default]
    Null,
    /// A scalar without quotes, as it is written: it may be a number, a switch or a text.
    Plain(String),
    /// A scalar in quotes, in a block, or with the tag `!!str`.
    Text(String),
    /// A list.
    List(Vec<Yaml>),
    /// A mapping.
    Map(BTreeMap<String, Yaml>),
}

impl Yaml {
    /// Reads a text of one document, at a bounded cost. Messages never show values.
    pub fn read(text: &str) -> Result<Self, YamlError> {
        let mut tree = Tree::default();
        let mut bounds = Bounds::default();
        events(text, |event, line| {
            bounds.add(&event, line)?;
            tree.add(event).map_err(|why| YamlError::Invalid { line, why: why.to_owned() })
        })?;
        Ok(tree.root)
    }

    /// Returns the value of this key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        if let Self::Map(entries) = self { entries.get(key) } else { None }
    }

    /// Returns the number as it is written, if this is one.
    pub fn number(&self) -> Option<&str> {
        let Self::Plain(text) = self else { return None };
        let begins = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        (begins && text.parse::<f64>().is_ok()).then_some(text)
    }

    /// Returns the text, if this is one: no number and no switch.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Plain(text) if self.number().is_none() && !is_switch(text) => Some(text),
            _ => None,
        }
    }
}

fn is_switch(text: &str) -> bool {
    ["true", "True", "TRUE", "false", "False", "FALSE"].contains(&text)
}

/// A list or a mapping that has not ended.
enum Open {
    List(Vec<Yaml>),
    /// The entries, the mappings that are merged, and the key whose value is next.
    Map(BTreeMap<String, Yaml>, Vec<Yaml>, Option<String>),
}

/// Builds values from events.
#[derive(Default)]
struct Tree {
    root: Yaml,
    open: Vec<(usize, Open)>,
    anchors: HashMap<usize, Yaml>,
    documents: usize,
}

impl Tree {
    fn add(&mut self, event: Event) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("more than one document");
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.suffix == "str");
                let value = match style {
                    TScalarStyle::Plain if is_text => Yaml::Text(text),
                    TScalarStyle::Plain if is_null(&text) => Yaml::Null,
                    TScalarStyle::Plain => Yaml::Plain(text),
                    _ => Yaml::Text(text),
                };
                return self.end(anchor, value);
            }
            Event::SequenceStart(anchor, _) => self.open.push((anchor, Open::List(Vec::new()))),
            Event::MappingStart(anchor, _) => {
                self.open.push((anchor, Open::Map(BTreeMap::new(), Vec::new(), None)));
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some((anchor, Open::List(list))) => return self.end(anchor, Yaml::List(list)),
                Some((anchor, Open::Map(entries, merged, _))) => {
                    return self.end(anchor, Yaml::Map(with_merged(entries, merged)?));
                }
                None => {}
            },
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                return self.end(0, value.ok_or("an alias within the value that it refers to")?);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Puts a whole value in its place.
    fn end(&mut self, anchor: usize, value: Yaml) -> Result<(), &'static str> {
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.root = value,
            Some((_, Open::List(list))) => list.push(value),
            Some((_, Open::Map(entries, merged, key))) => match (mem::take(key), value) {
                (None, Yaml::Plain(text) | Yaml::Text(text)) => *key = Some(text),
                (None, Yaml::Null) => *key = Some(String::new()),
                (None, _) => return Err("a list or a mapping as a key"),
                (Some(own), value) if own == "<<" => merged.push(value),
                (Some(own), value) => {
                    if entries.insert(own, value).is_some() {
                        return Err("a duplicate key");
                    }
                }
            },
        }
        Ok(())
    }
}

fn is_null(text: &str) -> bool {
    ["", "~", "null", "Null", "NULL"].contains(&text)
}

/// Returns the entries, and the entries of merged mappings whose keys they do not have, the earlier
/// mappings first.
fn with_merged(
    mut entries: BTreeMap<String, Yaml>,
    merged: Vec<Yaml>,
) -> Result<BTreeMap<String, Yaml>, &'static str> {
    let lists = merged.into_iter().flat_map(|value| match value {
        Yaml::List(all) => all,
        one => vec![one],
    });
    for value in lists {
        let Yaml::Map(more) = value else { return Err("<< merges a value that is not a mapping") };
        for (key, value) in more {
            entries.entry(key).or_insert(value);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Yaml {
        Yaml::Plain(text.to_owned())
    }

    fn map(entries: &[(&str, Yaml)]) -> Yaml {
        Yaml::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn scalars_stay_as_they_are_written() {
        let text = "a: 007\nb: '007'\nc: 1e3\nd: ~\ne:\nf: true\ng: !!str 5\nh: |\n  x\n  y\n";
        let expect = map(&[
            ("a", plain("007")),
            ("b", Yaml::Text("007".into())),
            ("c", plain("1e3")),
            ("d", Yaml::Null),
            ("e", Yaml::Null),
            ("f", plain("true")),
            ("g", Yaml::Text("5".into())),
            ("h", Yaml::Text("x\ny\n".into())),
        ]);
        assert_eq!(Yaml::read(text), Ok(expect));
        for (value, text, number) in [
            (plain("5"), None, Some("5")),
            (plain("-.5"), None, Some("-.5")),
            (plain("5s"), Some("5s"), None),
            (plain("inf"), Some("inf"), None),
            (plain("false"), None, None),
            (Yaml::Text("5".into()), Some("5"), None),
            (Yaml::Null, None, None),
        ] {
            assert_eq!((value.text(), value.number()), (text, number), "{value:?}");
        }
        assert_eq!(Yaml::read(""), Ok(Yaml::Null));
        assert_eq!(Yaml::read("\u{feff}a: b"), Ok(map(&[("a", plain("b"))])));
    }

    #[test]
    fn aliases_and_merged_mappings_are_in_their_place() {
        let text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {b: 4, <<: [*x, {c: 5}]}\nl: [*x]";
        let read = Yaml::read(text).unwrap();
        let x = map(&[("a", plain("1")), ("b", plain("2"))]);
        assert_eq!(read.get("x"), Some(&x));
        assert_eq!(read.get("y"), Some(&map(&[("b", plain("3")), ("a", plain("1"))])));
        let z = map(&[("b", plain("4")), ("a", plain("1")), ("c", plain("5"))]);
        assert_eq!(read.get("z"), Some(&z));
        assert_eq!(read.get("l"), Some(&Yaml::List(vec![x])));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for (text, expect) in [
            ("a: 1\na: 2", "line 2: a duplicate key"),
            ("? [a]\n: b", "a list or a mapping as a key"),
            ("a: &a [*a]", "an alias within the value"),
            ("a: *b", "unknown anchor"),
            ("a: {<<: b}", "<< merges a value that is not a mapping"),
            ("a: 1\n---\nb: 2", "more than one document"),
            ("a: [", "line"),
        ] {
            let why = Yaml::read(text).unwrap_err().to_string();
            assert!(why.contains(expect), "{text}: {why}");
        }
    }
}
