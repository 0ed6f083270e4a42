//! Problems with a configuration file that cannot be read: the line, and the parser's words.

use crate::{SettingProblem, YamlError};

/// Returns the problem with the file at `path`, with the line if the parser reports it.
pub(crate) fn problem(path: &str, error: &str) -> SettingProblem {
    let line = line_of(error).map(|line| format!(", line {line}")).unwrap_or_default();
    SettingProblem { subject: format!("{path}{line}"), rule: cannot_be_read(without_place(error)) }
}

/// Returns the problem with YAML that is invalid or out of bounds.
pub(crate) fn yaml(path: &str, error: &YamlError) -> SettingProblem {
    let (line, why) = match error {
        YamlError::Invalid { line, why } => (line, why.as_str()),
        YamlError::OutOfBounds { line, what } => (line, *what),
    };
    SettingProblem { subject: format!("{path}, line {line}"), rule: cannot_be_read(why) }
}

/// Returns the line that the parser's message names. The first line is 1.
fn line_of(error: &str) -> Option<usize> {
    let (_, rest) = error.split_once("line ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the message without the position: "... at byte 5 line 2 column 1" in YAML, "... at line
/// 2 column 1" in JSON; in TOML position and source come before the last line.
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
