//! Sanitises external text for logs, events, metric help and errors.

use std::{error::Error, path::Path};

/// The most characters of external text in one message; longer texts only fill the logs.
pub const LONGEST_LINE: usize = 1024;

/// Returns true if a character is invisible: control characters, line breaks, the controls of the writing
/// direction, and those without a width, by which two texts can look alike.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{3164}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` on one line, without control characters and truncated to `most` characters; a
/// final `…` marks the truncation.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let (mut count, mut gap) = (0, false);
    for c in text.chars() {
        if c.is_whitespace() || is_control(c) {
            gap = count > 0;
            continue;
        }
        if count + usize::from(gap) >= most {
            line.pop();
            line.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
            count += 1;
        }
        line.push(c);
        count += 1;
    }
    line
}

/// Returns a path for messages, with escapes for invisible characters: without them a path that is
/// not there may look like one that is.
pub fn escaped(path: &Path) -> String {
    let mut shown = String::new();
    for c in path.to_string_lossy().chars() {
        match is_control(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// Returns the first line that contains this ID, name or network as a whole.
pub fn line_about<'a>(lines: &'a [String], what: &str) -> Option<&'a str> {
    let is_part = |one: char| one.is_alphanumeric() || one == '-' || one == '_';
    let names = |line: &&String| {
        line.match_indices(what).any(|(at, _)| {
            let (before, from) = line.split_at(at);
            let after = from.chars().nth(what.chars().count());
            !before.ends_with(is_part) && !after.is_some_and(is_part)
        })
    };
    lines.iter().find(names).map(String::as_str)
}

/// Returns an error with its causes, for messages that show only text. A cause whose text is
/// already part of the message is left out: some libraries repeat it.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for cause in std::iter::successors(Some(error), |error| (*error).source()) {
        let words = cause.to_string();
        if line.is_empty() {
            line = words;
        } else if !line.contains(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{words}")]
    struct Cause {
        words: &'static str,
        source: Option<Box<Cause>>,
    }

    fn error(words: &[&'static str]) -> Option<Box<Cause>> {
        let (first, rest) = words.split_first()?;
        Some(Box::new(Cause { words: first, source: error(rest) }))
    }

    #[test]
    fn what_is_invisible_is_escaped() {
        for (text, expect) in [
            ("/a b/\u{fc}'\"\\", "/a b/\u{fc}'\"\\"),
            ("/a\u{200b}\n\u{feff}", "/a\\u{200b}\\u{a}\\u{feff}"),
        ] {
            assert_eq!(escaped(Path::new(text)), expect);
        }
    }

    #[test]
    fn a_cause_is_said_once() {
        let cases: [(&[&str], &str); 4] = [
            (&["a"], "a"),
            (&["send", "connect", "refused"], "send: connect: refused"),
            (&["send: refused", "refused"], "send: refused"),
            (&["send", "send: refused", "refused"], "send: send: refused"),
        ];
        for (words, expect) in cases {
            assert_eq!(chain(&*error(words).expect("an error")), expect);
        }
    }

    #[test]
    fn a_line_is_cut_where_it_is_too_long() {
        let cases = [
            ("  a\n\tb\u{1b}[c ", 99, "a b [c"),
            ("a\u{202e}b\u{2066}", 99, "a b"),
            ("a\u{200b}b\u{feff}c\u{ad}d\u{2060}e\u{e0041}f\u{180e}", 99, "a b c d e f"),
            ("äbcd", 4, "äbcd"),
            ("äbcde", 4, "äbc…"),
            ("ab cd", 3, "a…"),
            ("ab  ", 2, "ab"),
            ("", 0, ""),
        ];
        for (text, most, expect) in cases {
            assert_eq!(one_line(text, most), expect, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_has_no_breaks_and_is_short(text in ".{0,80}", more in any::<String>(), most in 1..60_usize) {
            let line = one_line(&(text + &more), most);
            prop_assert!(line.chars().count() <= most);
            prop_assert!(!line.chars().any(is_control));
            prop_assert_eq!(one_line(&line, most), line.clone());
        }

        #[test]
        fn no_word_is_lost_where_there_is_room(text in any::<String>()) {
            let letters = |text: &str| {
                text.chars().filter(|c| !c.is_whitespace() && !is_control(*c)).collect::<String>()
            };
            let line = one_line(&text, text.len());
            prop_assert_eq!(letters(&line), letters(&text));
        }
    }

    #[test]
    fn a_line_is_about_an_id_that_it_names_in_full() {
        let lines = ["load balancer lb-10: no digest", "the entry \"lb-2\" has no owner"];
        let lines = lines.map(str::to_owned);
        for (id, place) in [("lb-10", Some(0)), ("lb-2", Some(1)), ("lb-1", None), ("b-2", None)] {
            assert_eq!(line_about(&lines, id), place.map(|place: usize| &*lines[place]), "{id}");
        }
    }
}
