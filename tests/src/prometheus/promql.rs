//! The names of metrics in a PromQL expression.

use std::{collections::BTreeSet, iter::Peekable, str::Chars};

/// Words that occur where a metric's name may occur but are not metrics.
const WORDS: [&str; 27] = [
    "and",
    "or",
    "unless",
    "atan2",
    "bool",
    "offset",
    "inf",
    "nan",
    "sum",
    "min",
    "max",
    "avg",
    "group",
    "stddev",
    "stdvar",
    "count",
    "count_values",
    "bottomk",
    "topk",
    "quantile",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "start",
];

/// Words that are followed by labels in parentheses.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Returns the names of the metrics in an expression. The expression must be valid, which only
/// Prometheus checks.
pub fn metrics(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression.chars().peekable();
    while let Some(&letter) = rest.peek() {
        match letter {
            '"' | '\'' | '`' => string(&mut rest),
            '{' => until(&mut rest, '}'),
            '[' => until(&mut rest, ']'),
            '#' => line(&mut rest),
            _ if letter.is_ascii_digit() => drop(word(&mut rest)),
            _ if starts_a_name(letter) => {
                let name = word(&mut rest);
                skip_blanks(&mut rest);
                let opens = rest.peek() == Some(&'(');
                let lower = name.to_ascii_lowercase();
                if opens && BEFORE_LABELS.contains(&lower.as_str()) {
                    until(&mut rest, ')');
                } else if !opens && !WORDS.contains(&lower.as_str()) {
                    names.insert(name);
                }
            }
            _ => drop(rest.next()),
        }
    }
    names
}

fn starts_a_name(letter: char) -> bool {
    letter.is_ascii_alphabetic() || matches!(letter, '_' | ':')
}

/// Returns a name, or a number with its unit.
fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(letter) =
        rest.next_if(|letter| starts_a_name(*letter) || letter.is_ascii_digit() || *letter == '.')
    {
        word.push(letter);
    }
    word
}

fn skip_blanks(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|letter| letter.is_whitespace()).is_some() {}
}

fn line(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|letter| *letter != '\n').is_some() {}
}

fn string(rest: &mut Peekable<Chars<'_>>) {
    let Some(quote) = rest.next() else { return };
    while let Some(letter) = rest.next() {
        if letter == '\\' && quote != '`' {
            rest.next();
        } else if letter == quote {
            return;
        }
    }
}

/// Skips text in brackets, including whole strings in it.
fn until(rest: &mut Peekable<Chars<'_>>, end: char) {
    while let Some(&letter) = rest.peek() {
        if matches!(letter, '"' | '\'' | '`') {
            string(rest);
            continue;
        }
        rest.next();
        if letter == end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_nothing_else() {
        let cases: [(&str, &[&str]); 9] = [
            ("up", &["up"]),
            (r#"sum by (job, le) (rate(a_bucket{x="} b{",y=~"c"}[5m]))"#, &["a_bucket"]),
            ("sum(a) without (b) / on (c, d) group_left (e) f", &["a", "f"]),
            ("(a == 1) unless (a offset 1m == bool 1) or vector(0)", &["a"]),
            ("histogram_quantile(0.99, sum by (le) (x_bucket)) > 1e3", &["x_bucket"]),
            ("time() - a > 300 and on() job:b:rate5m", &["a", "job:b:rate5m"]),
            ("count_over_time((a == 1)[90s:1m]) # and b\n+ c", &["a", "c"]),
            (r#"label_replace(a, "b", "$1", "c", "(.+)")"#, &["a"]),
            ("sum (a) by (b) * -Inf", &["a"]),
        ];
        for (expression, expect) in cases {
            let found = metrics(expression);
            assert_eq!(
                found.iter().map(String::as_str).collect::<Vec<_>>(),
                expect,
                "{expression}"
            );
        }
    }
}
