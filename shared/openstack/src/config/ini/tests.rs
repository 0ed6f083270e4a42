use proptest::prelude::*;

use super::*;

/// Returns the entries as `line key=value`, headings as `[name]` or `[name "sub"]`.
fn shown(text: &str) -> Vec<String> {
    let (sections, unreadable) = parse(text);
    let mut lines = Vec::new();
    for section in sections {
        let sub = section.sub.map_or_else(String::new, |sub| format!(" {sub:?}"));
        lines.push(format!("{} [{}{sub}]", section.line, section.name));
        for KeyLine { line, key, value, .. } in &section.entries {
            lines.push(
                value
                    .as_ref()
                    .map_or(format!("{line} {key}"), |value| format!("{line} {key}={value}")),
            );
        }
    }
    lines.extend(unreadable.iter().map(|bad| format!("{} !{}", bad.line, bad.why)));
    lines
}

fn value(text: &str) -> Result<Option<String>, &'static str> {
    let (mut sections, unreadable) = parse(&format!("[a]\nk{text}"));
    match unreadable.first() {
        Some(bad) => Err(bad.why),
        None => Ok(sections.remove(0).entries.remove(0).value.take()),
    }
}

#[test]
fn values_are_read_as_git_reads_them() {
    for (text, expect) in [
        ("", None),
        (" # comment", None),
        ("=", Some("")),
        ("= \"\"", Some("")),
        ("=v", Some("v")),
        (" =  a b \t", Some("a b")),
        ("= a # b", Some("a")),
        ("=a#b", Some("a")),
        ("=a;b", Some("a")),
        ("= \"a # b ; c\" ; d", Some("a # b ; c")),
        ("= a\" ; \"b", Some("a ; b")),
        ("= \" a \"", Some(" a ")),
        ("= 'q'", Some("'q'")),
        ("= a=b=", Some("a=b=")),
        (r#"= "say \"hi\" \\ there""#, Some(r#"say "hi" \ there"#)),
        (r"= back\\slash", Some(r"back\slash")),
        (r"= a\tb\nc", Some("a\tb\nc")),
        ("= one \\\n  two", Some("one   two")),
        ("= one\\\r\ntwo\r\n", Some("onetwo")),
        ("= \"one\\\ntwo\"", Some("onetwo")),
        ("= v\r", Some("v")),
        ("= pässwörd€", Some("pässwörd€")),
    ] {
        assert_eq!(value(text), Ok(expect.map(str::to_owned)), "{text:?}");
    }
    for (text, why) in [
        (r"= C:\dir", BAD_ESCAPE),
        ("= a\\", BAD_ESCAPE),
        ("= \"open", OPEN_QUOTE),
        ("= \"open\n\"", OPEN_QUOTE),
        (": v", NO_EQUALS),
        (" v", NO_EQUALS),
    ] {
        assert_eq!(value(text), Err(why), "{text:?}");
    }
}

#[test]
fn sections_and_lines_are_kept() {
    let text = "\u{feff}; top\n[Global] # main\nA = 1\n\n  b\n[LoadBalancerClass \"x \\\"y\\\\\"]\nc=\\\n2\nd=3\n[global]\nA=4";
    assert_eq!(
        shown(text),
        [
            "2 [Global]",
            "3 A=1",
            "5 b",
            r#"6 [LoadBalancerClass "x \"y\\"]"#,
            "7 c=2",
            "9 d=3",
            "10 [global]",
            "11 A=4"
        ]
    );
}

#[test]
fn every_bad_line_is_reported_and_the_others_are_read() {
    let text =
        "early = 1\n[a\n[b] c\n[]\n[\"d\"]\n[e \"f]\n[g \"\\n\"]\n[h]\n= 1\n? = 2\nk = 3\nl = \"";
    let expect = [
        "8 [h]".to_owned(),
        "11 k=3".to_owned(),
        format!("1 !{NO_SECTION}"),
        format!("2 !{NO_BRACKET}"),
        format!("3 !{AFTER_BRACKET}"),
        format!("4 !{NO_NAME}"),
        format!("5 !{NO_NAME}"),
        format!("6 !{OPEN_QUOTE}"),
        format!("7 !{BAD_ESCAPE}"),
        format!("9 !{NO_NAME}"),
        format!("10 !{NO_NAME}"),
        format!("12 !{OPEN_QUOTE}"),
    ];
    assert_eq!(shown(text), expect);
}

fn quoted(text: &str) -> String {
    let escaped =
        text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

proptest! {
    #[test]
    fn no_text_panics_or_makes_lines_up(text in any::<String>()) {
        let lines = text.matches('\n').count() + 1;
        let (sections, unreadable) = parse(&text);
        let entries = sections.iter().flat_map(|section| &section.entries).map(|entry| entry.line);
        for line in unreadable.iter().map(|bad| bad.line).chain(entries) {
            prop_assert!((1..=lines).contains(&line));
        }
    }

    #[test]
    fn nor_does_one_made_of_what_means_something(text in "[a\"\\\\ =#;\\[\\]\r\nn]{0,40}") {
        let (sections, unreadable) = parse(&text);
        prop_assert!(sections.len() + unreadable.len() <= text.lines().count());
    }

    #[test]
    fn what_is_quoted_comes_back(
        entries in proptest::collection::vec(("[a-z][a-z0-9-]{0,8}", "[^\r]{0,20}"), 0..6),
        sub in "[a-z\"\\\\ ]{0,8}",
    ) {
        let lines: Vec<_> = entries
            .iter()
            .map(|(key, value)| format!("{key} = {} # c", quoted(value)))
            .collect();
        let text = format!("[s {}]
{}
", quoted(&sub), lines.join("
"));
        let (sections, unreadable) = parse(&text);
        prop_assert_eq!(unreadable, vec![]);
        prop_assert_eq!(sections[0].sub.as_deref(), Some(sub.as_str()));
        let read: Vec<_> = sections[0]
            .entries
            .iter()
            .map(|entry| (entry.key.clone(), entry.value.clone().unwrap_or_default()))
            .collect();
        prop_assert_eq!(read, entries);
    }
}

#[test]
fn what_may_be_meant_otherwise_is_seen() {
    for (text, expect) in [
        ("= pw", None),
        ("= pw # a comment", None),
        ("= pw\t; a comment", None),
        ("= # a comment", None),
        ("= \"pw#x\"", None),
        ("= \"'pw'\"", None),
        ("= pw'`", None),
        ("= pw#x", Some(Trap::Comment)),
        ("= pw;x", Some(Trap::Comment)),
        ("=#pw", Some(Trap::Comment)),
        ("= \"pw\"#x", Some(Trap::Comment)),
        ("= 'pw'", Some(Trap::Quote)),
        ("='pw#x'", Some(Trap::Quote)),
        ("= `pw`", Some(Trap::Quote)),
    ] {
        let (sections, unreadable) = parse(&format!("[a]\nk{text}\n"));
        assert_eq!(unreadable, [], "{text}");
        assert_eq!(sections[0].entries[0].trap, expect, "{text}");
    }
}
