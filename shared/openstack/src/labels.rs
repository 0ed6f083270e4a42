//! Converts text from the cloud to label values.

/// The maximum length of a label's value and of the name part of its key.
const MAX_LABEL: usize = 63;

/// Converts text to a label value: runs of invalid characters become one `-`, and invalid
/// ends are removed. `None` if nothing is left.
pub fn label_value(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut in_run = false;
    for c in text.chars() {
        let fits = c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if fits {
            value.push(c);
        } else if !in_run {
            value.push('-');
        }
        in_run = !fits;
    }
    let edge = ['-', '_', '.'];
    let mut value = value.trim_matches(edge);
    if value.len() > MAX_LABEL {
        // The truncated text may end with a character that is invalid at the end.
        value = value.get(..MAX_LABEL)?.trim_end_matches(edge);
    }
    (!value.is_empty()).then(|| value.to_owned())
}

/// Returns true if the text is a valid label value.
pub fn is_label_value(text: &str) -> bool {
    label_value(text).as_deref() == Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn zones_become_label_values() {
        let long = "z".repeat(62);
        for (text, expect) in [
            ("nova", Some("nova")),
            ("zone 1", Some("zone-1")),
            ("  Zone   (north) ", Some("Zone-north")),
            ("zürich", Some("z-rich")),
            ("a__b..c--d", Some("a__b..c--d")),
            ("-_.a._-", Some("a")),
            ("  ", None),
            ("", None),
            ("-.-", None),
            ("日本", None),
            (&format!("{long}xyz"), Some(&*format!("{long}x"))),
            (&format!("{long}-yz"), Some(&*long)),
            (&format!("{long} yz"), Some(&*long)),
            (&format!("{}. -yz", "z".repeat(61)), Some(&*"z".repeat(61))),
        ] {
            assert_eq!(label_value(text).as_deref(), expect, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_label_value_or_nothing(text in "\\PC{0,80}|[a-z _.:-]{0,90}") {
            if let Some(value) = label_value(&text) {
                let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                prop_assert!((1..=63).contains(&value.len()) && value.chars().all(inner));
                let ends = [value.chars().next(), value.chars().last()];
                prop_assert!(ends.iter().flatten().all(char::is_ascii_alphanumeric), "{value}");
                prop_assert!(is_label_value(&value), "making it fit twice changes nothing");
            } else {
                prop_assert!(!text.chars().any(|c| c.is_ascii_alphanumeric()), "{text:?} is lost");
            }
        }
    }
}
