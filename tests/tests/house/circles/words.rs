//! Source text as words, without comments and literals.

use std::{collections::VecDeque, iter};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Names, brackets, marks; `::` is one word.
pub struct Words(VecDeque<String>);

impl Iterator for Words {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }
}

impl Words {
    /// Returns the words of a file.
    pub fn of(text: &str) -> Self {
        let tokens = text.parse().unwrap_or_else(|error| panic!("{error} in:\n{text}"));
        let mut words = VecDeque::new();
        flatten(tokens, &mut words);
        Self(words)
    }

    /// Returns true if these words come next.
    pub fn begin_with(&self, words: &[&str]) -> bool {
        self.0.iter().take(words.len()).eq(words)
    }

    /// Passes the rest of an attribute and the item, field or statement that follows it.
    pub fn skip_item(&mut self) {
        let head = self.0.iter().skip_while(|word| *word != "]").take_while(|word| *word != "{");
        let import = head.into_iter().any(|word| word == "use");
        let mut depth = 0_u32;
        while let Some(word) = self.0.front() {
            match word.as_str() {
                "(" | "[" | "{" => depth += 1,
                // This is the end of the block that holds the item.
                ")" | "]" | "}" if depth == 0 => return,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            let end = word == ";" || word == "," || (word == "}" && !import);
            self.0.pop_front();
            if depth == 0 && end {
                return;
            }
        }
    }

    /// Passes a name that belongs to the text before it.
    pub fn skip_name(&mut self) {
        if self.0.front().is_some_and(|word| word == "." || is_name(word)) {
            self.0.pop_front();
        }
    }

    /// Returns the path that begins with `first`, as far as it consists of names.
    pub fn path(&mut self, first: &str) -> Vec<String> {
        let mut path = vec![first.to_owned()];
        while self.begin_with(&["::"]) && self.0.get(1).is_some_and(|word| is_name(word)) {
            self.0.pop_front();
            path.extend(self.0.pop_front());
        }
        path
    }

    /// Reads the text after `use`, and passes on each name with its path.
    pub fn import(&mut self, prefix: &[String], found: &mut impl FnMut(String, Vec<String>)) {
        let mut path = prefix.to_vec();
        loop {
            match self.0.front().map(String::as_str) {
                Some("{") => {
                    while self.next().is_some_and(|word| word != "}") {
                        if !self.begin_with(&["}"]) {
                            self.import(&path, found);
                        }
                    }
                    return;
                }
                Some("as") => {
                    self.next();
                    let name = self.next().unwrap_or_default();
                    // Many things may be imported as `_`.
                    let name = if name == "_" { path.join("::") } else { name };
                    return found(name, path);
                }
                Some("," | ";" | "}") | None => {
                    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
                        path.pop();
                    }
                    return found(path.last().cloned().unwrap_or_default(), path);
                }
                Some("::") => drop(self.next()),
                Some(_) => path.extend(self.next()),
            }
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

fn flatten(tokens: TokenStream, words: &mut VecDeque<String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                words.push_back(open.to_owned());
                flatten(group.stream(), words);
                words.push_back(close.to_owned());
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && mark.spacing() == Spacing::Joint => {
                tokens.next();
                words.push_back("::".to_owned());
            }
            TokenTree::Literal(_) => words.push_back("\"\"".to_owned()),
            token => words.extend(iter::once(token.to_string())),
        }
    }
}
