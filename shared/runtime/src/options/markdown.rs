//! The table of all settings, as Markdown.

use std::fmt::Write as _;

use super::{Catalogue, Entry};
use crate::program::Program;

/// `docs/options-<binary>.md` for this program: every setting with its flag, environment
/// variable, key, default and meaning, and the flags that have no effect.
pub fn options_markdown<P: Program>() -> String {
    let catalogue = Catalogue::of::<P>();
    let binary = catalogue.identity().binary;
    let mut text = format!(
        "# Settings of {binary}\n\n\
         Printed by `{binary} --print-options-markdown`; a test compares this page with the program.\n\n\
         Each setting can be given in four ways; later ones win: its default, its key in the file of `--config`, its\n\
         environment variable, its flag. A setting marked \"live\" changes while the program runs when the file changes.\n\
         Durations are written as in Go: `5m0s`, `1h30m`, `250ms`. In flag names `_` stands for `-` as well.\n"
    );
    let mut section = "";
    for entry in catalogue.entries() {
        if entry.section != section {
            section = entry.section;
            line(
                &mut text,
                format_args!("\n## {section}\n\n| flag | default | meaning |\n|---|---|---|"),
            );
        }
        row(&mut text, entry);
    }
    line(
        &mut text,
        format_args!(
            "\n## Environment variables and keys\n\n| flag | environment | key |\n|---|---|---|"
        ),
    );
    for Entry { doc, .. } in catalogue.entries().iter().filter(|entry| entry.doc.flag != "config") {
        line(
            &mut text,
            format_args!("| `--{}` | `{}` | `{}` |", doc.flag, doc.variable(), doc.key()),
        );
    }
    line(
        &mut text,
        format_args!(
            "\n## Accepted without effect\n\nFlags of cloud-controller-manager and of the sibling programs; each gives one warning.\n\n| flag | why |\n|---|---|"
        ),
    );
    for foreign in catalogue.foreign() {
        line(&mut text, format_args!("| `--{}` | {} |", foreign.flag, foreign.why));
    }
    text
}

fn row(text: &mut String, Entry { doc, default, .. }: &Entry) {
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    let live = if doc.live { " Live." } else { "" };
    let meaning = doc.meaning.replace('|', "\\|");
    let value = doc.kind.placeholder().replace('|', "\\|");
    line(text, format_args!("| `--{}` ({value}) | {default} | {meaning}{live} |", doc.flag));
}

/// Adds a line. Writing to a String cannot fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").unwrap_or_default();
}
