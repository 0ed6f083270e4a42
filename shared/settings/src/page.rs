//! The table of all settings, as Markdown.

use std::fmt::Write as _;

use crate::{Catalogue, Setting, catalogue::CatalogueEntry};

/// Returns the reference page of a program: every setting with its flag, environment variable, key,
/// default and meaning, and the flags that have no effect.
pub fn markdown(catalogue: &Catalogue) -> String {
    let binary = catalogue.about().binary;
    let mut text = format!(
        "# Settings of {binary}\n\n\
         Printed by `{binary} --print-options-markdown`; a test compares this page with the program.\n\n\
         A setting has four sources, the later ones win: its default, its key in the file of `--config`,\n\
         its environment variable, its flag.\n\
         A setting marked \"live\" changes while the program runs when the file changes.\n\
         Durations are written as in Go: `5m0s`, `1h30m`, `250ms`.\n\
         In flag names `_` is the same as `-`.\n\
         `--check-config` reads and checks all settings, reports every problem and ends.\n\
         `--print-config` prints the settings in force with their sources; `--help` and `--version` (`--version=json`) print.\n"
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
        let CatalogueEntry { setting, default, .. } = entry;
        row(&mut text, &format!("--{}", setting.flag), setting, default);
    }
    line(
        &mut text,
        format_args!(
            "\n## Environment variables and keys\n\n| flag | environment | key |\n|---|---|---|"
        ),
    );
    let settings = catalogue.entries().iter().map(|entry| entry.setting);
    for setting in settings.filter(|setting| setting.flag != "config") {
        let (flag, variable, key) = (setting.flag, setting.variable(), setting.key());
        line(&mut text, format_args!("| `--{flag}` | `{variable}` | `{key}` |"));
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

/// Returns the settings of a file with keys of its own, as a table.
pub fn keys<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> String {
    let mut text = "| key | default | meaning |\n|---|---|---|\n".to_owned();
    for setting in settings {
        row(&mut text, setting.flag, setting, setting.default);
    }
    text
}

fn row(text: &mut String, name: &str, setting: &Setting, default: &str) {
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    let live = if setting.live { " Live." } else { "" };
    let meaning = setting.meaning.replace('|', "\\|").replace('*', "\\*");
    let value = <&str>::from(setting.kind).replace('|', "\\|");
    line(text, format_args!("| `{name}` ({value}) | {default} | {meaning}{live} |"));
}

/// Adds a line. Writing to a String cannot fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").unwrap_or_default();
}
