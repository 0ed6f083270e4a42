//! The reference of settings on the OpenStack page is the program's own table.

use std::{env, fs, path::Path};

use ccm_providers::openstack::options;

const END: &str = "<!-- settings: end -->";

#[test]
fn the_page_shows_the_settings_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers/openstack.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once("<!-- settings: begin").expect("the first mark");
    let (mark, rest) = rest.split_once("-->\n").expect("the end of the first mark");
    let (shown, tail) = rest.split_once(END).expect("the second mark");
    let expect = format!("\n{}\n", options::markdown());
    if env::var("UPDATE").as_deref() == Ok("1") {
        let page = format!("{head}<!-- settings: begin{mark}-->\n{expect}{END}{tail}");
        fs::write(&path, page).unwrap();
        return;
    }
    assert!(
        shown == expect,
        "docs/providers/openstack.md is not what the program says; write it anew with \
         UPDATE=1 cargo test -p ccm-providers --test openstack_page"
    );
}

#[test]
fn the_reference_names_every_setting() {
    let reference = options::markdown();
    for setting in options::SETTINGS {
        let row = format!("| `{}` (", setting.key);
        assert!(reference.contains(&row), "{row}");
    }
    for (name, _) in options::ENVIRONMENT {
        assert!(reference.contains(&format!("| `{name}` |")), "{name}");
    }
}
