//! The reference page of the settings.

use std::fmt::Write as _;

use super::{CLASSES, ENVIRONMENT, IGNORED_SECTIONS, Kind, SETTINGS, Setting, sections};

const DIALECT: &str = "\
Names of sections and keys may be written in any case. `#` and `;` begin a comment unless they stand in
double quotes; blanks around a value count only within quotes. `\\\\`, `\\\"`, `\\n`, `\\t` and `\\b` are escapes, so
a backslash in a password is written twice; a backslash at the end of a line takes the next line in. A key
that is given twice counts as given last, but a list keeps all. What is not known is reported with the
nearest known name and passed over; a value of the wrong type stops the start.

A duration is written as in Go (`1m30s`, `250ms`) or as a whole number of seconds. A flag is `true`, `yes`,
`on`, `1` or `false`, `no`, `off`, `0`; a flag without `=` is true. A relative path begins at the folder of the
file that names it, `~/` at the home folder.
";

/// The reference of all settings, in Markdown.
pub fn markdown() -> String {
    let mut page = DIALECT.to_owned();
    for section in sections() {
        let name = if section == CLASSES { " \"name\"" } else { "" };
        let mut rows = vec![["key".to_owned(), "default".to_owned(), "meaning".to_owned()]];
        rows.extend(SETTINGS.iter().filter(|setting| setting.section == section).map(row));
        table(&mut page, &format!("`[{section}{name}]`"), &rows);
    }
    let ignored = IGNORED_SECTIONS.map(|name| format!("`[{name}]`")).join(" and ");
    // Writing to a String cannot fail.
    write!(page, "\n{ignored} belong to other programs and are passed over in silence.\n")
        .unwrap_or_default();
    let mut rows = vec![["variable".to_owned(), "meaning".to_owned()]];
    rows.extend(ENVIRONMENT.map(|(name, meaning)| [format!("`{name}`"), meaning.to_owned()]));
    table(&mut page, "Environment", &rows);
    page.push_str("\nOther variables (`OS_AUTH_URL`, `OS_PASSWORD` ...) are not read.\n");
    page
}

fn table<const N: usize>(page: &mut String, title: &str, rows: &[[String; N]]) {
    write!(page, "\n### {title}\n\n").unwrap_or_default();
    for (index, row) in rows.iter().enumerate() {
        writeln!(page, "| {} |", row.join(" | ")).unwrap_or_default();
        if index == 0 {
            writeln!(page, "|{}", "---|".repeat(N)).unwrap_or_default();
        }
    }
}

fn row(setting: &Setting) -> [String; 3] {
    let Setting { key, kind, default, meaning, .. } = setting;
    let shown = if default.is_empty() { String::new() } else { format!("`{default}`") };
    let spelt = |words: &[&str]| {
        let words: Vec<_> =
            words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
        words.join(", ")
    };
    let choices = match kind {
        Kind::OneOf(words) => format!(" One of {}.", spelt(words)),
        Kind::Usually(words) => format!(" Known are {}.", spelt(words)),
        Kind::Order(words) => format!(" One or two of {}.", spelt(words)),
        _ => String::new(),
    };
    [
        format!("`{key}` ({})", kind.word()),
        shown,
        format!("{}{choices}", meaning.replace('|', "\\|").replace('*', "\\*")),
    ]
}
