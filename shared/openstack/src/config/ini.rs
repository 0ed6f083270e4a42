//! Parses the dialect of `cloud.conf`, which is the same as in Git's configuration files.
//!
//! * `[Name]` and `[Name "sub"]`; `key = value`; a key alone.
//! * `#` and `;` begin a comment, unless they are in double quotes. Quotes may stand
//!   anywhere in a value; blanks around a value count only within them.
//! * `\\`, `\"`, `\n`, `\t` and `\b` are escapes, in quotes and outside; a backslash at the end of
//!   a line continues it on the next line.
//!
//! Names are kept as written: the lookup ignores their case. No message about an error contains
//! text of the file, which may be a password.

use std::{iter::Peekable, str::Chars};

use zeroize::Zeroize as _;

/// A section with its keys, as often as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Line of the heading, from 1.
    pub line: usize,
    pub name: String,
    /// The text in quotes behind the name.
    pub sub: Option<String>,
    pub entries: Vec<KeyLine>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// Line of the key, from 1.
    pub line: usize,
    pub key: String,
    /// The text behind `=`; `None` without `=`.
    pub value: Option<String>,
    /// The part that may be read differently than it is meant.
    pub trap: Option<Trap>,
}

/// A value may be a secret.
impl Drop for KeyLine {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

/// A character of a value that may be meant otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The value begins with a quote of another kind, which is a part of it.
    Quote,
    /// A comment begins without a blank before it.
    Comment,
}

impl Trap {
    /// Returns the warning about it. It does not contain the value.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Quote => {
                "begins with ' or `, which quotes nothing here and is a part of the value: use \
                 double quotes"
            }
            Self::Comment => {
                "is cut off at # or ;, which begins a comment: if that belongs to the value, put \
                 it in double quotes"
            }
        }
    }
}

/// A line that cannot be read, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub line: usize,
    pub why: &'static str,
}

const NO_NAME: &str = "expected a [section], a key = value, or a comment";
const NO_SECTION: &str = "a key before the first [section]";
const NO_EQUALS: &str = "expected = behind the key";
const NO_BRACKET: &str = "expected ] at the end of the section's name";
const AFTER_BRACKET: &str = "expected nothing but a comment behind ]";
const OPEN_QUOTE: &str =
    "a double quote is not closed on its line; write \\\" for a quote that belongs to the value";
const BAD_ESCAPE: &str =
    "an unknown escape; write \\\\ for a backslash (known are \\\\ \\\" \\n \\t \\b)";

/// Reads all lines. Lines that cannot be parsed are returned apart.
pub fn parse(text: &str) -> (Vec<Section>, Vec<Unreadable>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let (mut sections, mut unreadable) = (Vec::<Section>::new(), Vec::new());
    while let Some(first) = reader.past_blanks() {
        let line = reader.line;
        let read = match first {
            '\n' | '#' | ';' => Ok(()),
            '[' => reader.heading().map(|section| sections.push(section)),
            _ => reader.entry().and_then(|entry| match sections.last_mut() {
                Some(section) => {
                    section.entries.push(entry);
                    Ok(())
                }
                None => Err(NO_SECTION),
            }),
        };
        if let Err(why) = read {
            unreadable.push(Unreadable { line, why });
        }
        reader.skip_line();
    }
    (sections, unreadable)
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    /// Goes past what is blank and returns what follows it, which may be a line break.
    fn past_blanks(&mut self) -> Option<char> {
        while self.rest.next_if(|c| *c != '\n' && c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn skip_line(&mut self) {
        if self.rest.by_ref().any(|c| c == '\n') {
            self.line += 1;
        }
    }

    fn name(&mut self) -> Result<String, &'static str> {
        let legal = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = std::iter::from_fn(|| self.rest.next_if(legal)).collect();
        if name.is_empty() { Err(NO_NAME) } else { Ok(name) }
    }

    fn heading(&mut self) -> Result<Section, &'static str> {
        let line = self.line;
        self.rest.next();
        self.past_blanks();
        let name = self.name()?;
        let sub = match self.past_blanks() {
            Some('"') => Some(self.sub()?),
            _ => None,
        };
        if self.past_blanks() != Some(']') {
            return Err(NO_BRACKET);
        }
        self.rest.next();
        match self.past_blanks() {
            None | Some('\n' | '#' | ';') => Ok(Section { line, name, sub, entries: Vec::new() }),
            Some(_) => Err(AFTER_BRACKET),
        }
    }

    fn sub(&mut self) -> Result<String, &'static str> {
        self.rest.next();
        let mut sub = String::new();
        loop {
            match self.rest.next_if(|c| *c != '\n') {
                None => return Err(OPEN_QUOTE),
                Some('"') => return Ok(sub),
                Some('\\') => match self.rest.next_if(|c| matches!(c, '\\' | '"')) {
                    Some(c) => sub.push(c),
                    None => return Err(BAD_ESCAPE),
                },
                Some(c) => sub.push(c),
            }
        }
    }

    fn entry(&mut self) -> Result<KeyLine, &'static str> {
        let line = self.line;
        let key = self.name()?;
        let (value, trap) = match self.past_blanks() {
            Some('=') => {
                self.rest.next();
                let (value, trap) = self.value()?;
                (Some(value), trap)
            }
            None | Some('\n' | '#' | ';') => (None, None),
            Some(_) => return Err(NO_EQUALS),
        };
        Ok(KeyLine { line, key, value, trap })
    }

    fn value(&mut self) -> Result<(String, Option<Trap>), &'static str> {
        let (mut value, mut in_quotes) = (String::new(), false);
        let mut after_blank = self.rest.peek().is_some_and(|c| c.is_whitespace());
        let is_quoted = matches!(self.past_blanks(), Some('\'' | '`'));
        // The length of the value without the blanks at its end.
        let mut kept = 0;
        while let Some(c) =
            self.rest.next_if(|c| *c != '\n' && (in_quotes || !matches!(c, '#' | ';')))
        {
            after_blank = c.is_whitespace();
            let c = match c {
                '"' => {
                    in_quotes = !in_quotes;
                    kept = value.len();
                    continue;
                }
                '\\' => match self.escape()? {
                    Some(c) => {
                        value.push(c);
                        kept = value.len();
                        continue;
                    }
                    None => continue,
                },
                c => c,
            };
            value.push(c);
            if in_quotes || !c.is_whitespace() {
                kept = value.len();
            }
        }
        value.truncate(kept);
        let is_cut = matches!(self.rest.peek(), Some('#' | ';')) && !after_blank;
        let trap = match is_quoted {
            true => Some(Trap::Quote),
            false => is_cut.then_some(Trap::Comment),
        };
        if in_quotes { Err(OPEN_QUOTE) } else { Ok((value, trap)) }
    }

    /// Returns the character of an escape; `None` for a line break.
    fn escape(&mut self) -> Result<Option<char>, &'static str> {
        self.rest.next_if_eq(&'\r');
        let known = self.rest.next_if(|c| matches!(c, '\\' | '"' | 'n' | 't' | 'b' | '\n'));
        Ok(match known.ok_or(BAD_ESCAPE)? {
            '\n' => {
                self.line += 1;
                None
            }
            'n' => Some('\n'),
            't' => Some('\t'),
            'b' => Some('\u{8}'),
            c => Some(c),
        })
    }
}

#[cfg(test)]
mod tests;
