//! Tests of the decision.

use super::{decide::decide, *};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| text != "-")
}

#[test]
fn another_cloud_waits_for_a_person() {
    let standing = |recorded, present, approved| decide(text(recorded), text(present), approved);
    let recorded = |before, present: &str| Standing::Recorded {
        before: text(before),
        present: present.to_owned(),
    };
    let changed = Standing::Changed { before: "one".to_owned(), present: "two".to_owned() };
    for (before, present, approved, expect) in [
        ("-", "-", false, Standing::Unknown),
        ("", " ", false, Standing::Unknown),
        ("-", "one", false, recorded("-", "one")),
        ("", "one", false, recorded("-", "one")),
        ("one", "one", false, Standing::Same("one".to_owned())),
        (" one\n", "one", true, Standing::Same("one".to_owned())),
        ("one", "two", false, changed),
        ("one", "two", true, recorded("one", "two")),
        ("one", "-", false, Standing::Untold),
        ("one", "", false, Standing::Untold),
        ("one", "-", true, Standing::Unknown),
    ] {
        assert_eq!(
            standing(before, present, approved),
            expect,
            "{before:?} {present:?} {approved}"
        );
        let is_held = matches!(expect, Standing::Changed { .. } | Standing::Untold);
        assert_eq!(expect.objection("do this").is_some(), is_held, "{expect:?}");
    }
}
