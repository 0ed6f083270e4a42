//! Reads a configuration file in YAML, JSON or TOML.

use std::path::Path;

use serde_yaml_ng::{Mapping, Value};

use crate::Problem;

/// The largest file that is parsed, in bytes.
const LARGEST: usize = 256 << 10;
/// The greatest number of open brackets in a file.
const DEEPEST: usize = 64;

/// Refuses a text that no sane configuration has, before a parser sees it: the time that a YAML
/// parser takes grows with the square of the depth of brackets. Brackets in texts and comments
/// count as well. The parsers limit other nesting and repeated aliases themselves.
///
/// # Errors
///
/// The limit that the text exceeds, in words.
pub fn limit(text: &str) -> Result<(), String> {
    if text.len() > LARGEST {
        return Err(format!("is larger than {} KiB", LARGEST >> 10));
    }
    let mut open = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > DEEPEST {
            return Err(format!("nests more than {DEEPEST} brackets"));
        }
    }
    Ok(())
}

/// The formats of the file.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Yaml,
    Json,
    Toml,
}

impl Format {
    /// The format that the path's extension indicates.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let ending = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// The keys and values in the text of the file at `path`.
    pub(crate) fn read(self, path: &str, text: &str) -> Result<Mapping, Problem> {
        let whole = |rule: String| Problem { subject: path.to_owned(), rule };
        limit(text).map_err(whole)?;
        let text = text.trim_start_matches('\u{feff}');
        let value: Result<Value, (Option<usize>, String)> = match self {
            Self::Yaml => serde_yaml_ng::from_str(text)
                .map_err(|error| (error.location().map(|at| at.line()), error.to_string())),
            Self::Json => {
                serde_json::from_str(text).map_err(|error| (Some(error.line()), error.to_string()))
            }
            Self::Toml => toml::from_str(text).map_err(|error| {
                let before = error.span().and_then(|span| text.get(..span.start));
                (before.map(|before| before.matches('\n').count() + 1), error.message().to_owned())
            }),
        };
        match value {
            Ok(Value::Mapping(mapping)) => Ok(mapping),
            Ok(Value::Null) => Ok(Mapping::new()),
            Ok(_) => Err(whole("must hold settings as keys with values".to_owned())),
            Err((line, error)) => Err(unreadable(path, text, line, &error)),
        }
    }
}

/// The problem with a text that its parser refuses, with line and key where they are known.
fn unreadable(path: &str, text: &str, line: Option<usize>, error: &str) -> Problem {
    let is_twice = error.contains("duplicate");
    // YAML and JSON name the key that is given twice, TOML its line.
    let named = error.split('"').nth(1).filter(|_| is_twice);
    let lines = || text.lines().zip(1..);
    let line = named
        .and_then(|key| lines().filter(|(text, _)| key_on(text) == Some(key)).last())
        .map_or(line, |(_, number)| Some(number))
        // YAML counts the end of the text as a line.
        .map(|line| line.min(text.lines().count().max(1)));
    let Some(line) = line else {
        return Problem { subject: path.to_owned(), rule: cannot_be_read(error) };
    };
    let key = || lines().find(|(_, number)| *number == line).and_then(|(text, _)| key_on(text));
    match named.or_else(key).filter(|_| is_twice) {
        Some(key) => Problem {
            subject: format!("{key} ({path}, line {line})"),
            rule: "must be given once".to_owned(),
        },
        None => Problem { subject: format!("{path}, line {line}"), rule: cannot_be_read(error) },
    }
}

/// The key at the start of a line.
fn key_on(line: &str) -> Option<&str> {
    let (key, _) = line.split_once([':', '='])?;
    Some(key.trim().trim_start_matches(['{', ' ']).trim_matches(['"', '\'']))
}

/// The parser's message, without the place that YAML and JSON add.
fn cannot_be_read(error: &str) -> String {
    let what = error.split(" at line ").next().unwrap_or(error);
    format!("cannot be read: {}", what.split_whitespace().collect::<Vec<_>>().join(" "))
}
