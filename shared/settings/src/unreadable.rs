//! Explains parser errors of a configuration file where the parser's own text does not help:
//! which line, which key, which rule.

use crate::{Problem, YamlError};

/// The problem with the file at `path`, with line and key if the parser reports them.
pub(crate) fn problem(path: &str, text: &str, error: &str) -> Problem {
    let literal = between(error, "Parsing ", " as floating point number failed");
    if let Some(literal) = literal {
        return number(path, text, literal);
    }
    let Some(line) = line_of(error) else {
        let rule = match error {
            _ if error.contains("expected a map") => "must hold settings as keys with values",
            _ => return Problem { subject: path.to_owned(), rule: cannot_be_read(error) },
        };
        return Problem { subject: path.to_owned(), rule: rule.to_owned() };
    };
    if error.contains("duplicate") {
        let named = between(error, "String(\"", "\")");
        if let Some(key) = named.or_else(|| key_on(text, line)) {
            let subject = format!("{key} ({path}, line {line})");
            return Problem { subject, rule: "must be given once".to_owned() };
        }
    }
    Problem { subject: format!("{path}, line {line}"), rule: cannot_be_read(without_place(error)) }
}

/// The problem with YAML that is invalid or out of bounds.
pub(crate) fn yaml(path: &str, error: &YamlError) -> Problem {
    let (line, why) = match error {
        YamlError::Invalid { line, why } => (line, why.as_str()),
        YamlError::OutOfBounds { line, what } => (line, *what),
    };
    Problem { subject: format!("{path}, line {line}"), rule: cannot_be_read(why) }
}

/// The YAML parser reports the number it rejects, but not its position.
fn number(path: &str, text: &str, literal: &str) -> Problem {
    let holds = |line: &&str| value_of(line) == literal;
    let place = text.lines().position(|line| holds(&line)).map(|at| at + 1);
    let subject = match place {
        Some(line) => match key_on(text, line) {
            Some(key) => format!("{key} ({path}, line {line})"),
            None => format!("{path}, line {line}"),
        },
        None => path.to_owned(),
    };
    Problem { subject, rule: format!("must be a finite number, not {literal}") }
}

/// The value on a line, without a comment.
fn value_of(line: &str) -> &str {
    let value = line.split_once(':').map_or(line, |(_, value)| value);
    value.split(" #").next().unwrap_or_default().trim().trim_start_matches("- ")
}

/// The key on this line; the first line is 1.
fn key_on(text: &str, line: usize) -> Option<&str> {
    let (key, _) = text.lines().nth(line.checked_sub(1)?)?.split_once([':', '='])?;
    Some(key.trim().trim_matches(['"', '\'']))
}

/// The line that the parser's message names; the first line is 1.
fn line_of(error: &str) -> Option<usize> {
    let (_, rest) = error.split_once("line ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The message without the position: "... at byte 5 line 2 column 1" in YAML, "... at line 2
/// column 1" in JSON; in TOML position and source come before the last line.
fn without_place(error: &str) -> &str {
    if error.starts_with("TOML parse error") {
        return error.trim().lines().last().unwrap_or(error);
    }
    let end = error.find(" at byte ").or_else(|| error.find(" at line "));
    end.and_then(|end| error.get(..end)).unwrap_or(error)
}

fn cannot_be_read(why: &str) -> String {
    let words: Vec<_> = why.split_whitespace().collect();
    format!("cannot be read: {}", words.join(" "))
}

fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(behind).map(|(found, _)| found)
}
