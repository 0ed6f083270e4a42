//! ARCHITECTURE.md names what exists: the crates that each crate uses, and all modules of the kit
//! and of the runtime.

use std::{collections::BTreeSet, fs};

use super::tidy::{check, read, root};

/// The crates that every crate may use, and the helpers of tests.
const EVERYWHERE: [&str; 3] = ["base", "metrics", "testing"];

/// Returns the crates of this repository that the crate in this folder uses when it is shipped.
fn used(folder: &str) -> BTreeSet<String> {
    let manifest = read(&root().join(folder).join("Cargo.toml"));
    let sections = manifest.split("\n[").filter(|part| part.starts_with("dependencies]"));
    let names = sections
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("ccm-")?.split(['.', ' ']).next());
    names.filter(|name| !EVERYWHERE.contains(name)).map(str::to_owned).collect()
}

#[test]
fn the_table_names_the_crates_that_a_crate_uses() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let programs = fs::read_dir(root().join("bins")).into_iter().flatten().flatten();
    let programs: Vec<String> = programs
        .map(|program| format!("bins/{}", program.file_name().display()))
        .filter(|program| program.ends_with("-ccm"))
        .collect();
    let (mut broken, mut rows) = (Vec::new(), 0);
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, folder, uses, ..] = *cells else { continue };
        let folders = match folder.trim_matches('`') {
            "bins/*" => programs.clone(),
            folder if name.starts_with("`ccm-") => vec![folder.to_owned()],
            _ => continue,
        };
        let named = uses.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let wrong = folders.into_iter().filter(|folder| used(folder) != named);
        broken.extend(wrong.map(|folder| format!("{folder}: {:?}, not {named:?}", used(&folder))));
        rows += 1;
    }
    assert!(rows > 10, "the table was not found");
    check("the table of crates in ARCHITECTURE.md names the crates that each crate uses", &broken);
}

#[test]
fn the_map_names_all_modules_of_the_kit_and_the_runtime() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let mut broken = Vec::new();
    for (heading, folder) in [("### The kit", "controller"), ("### The runtime", "runtime")] {
        let (_, section) = text.split_once(heading).expect(heading);
        let section = section.split("\n#").next().unwrap_or_default();
        let library = read(&root().join(format!("shared/{folder}/src/lib.rs")));
        let modules = library.lines().filter_map(|line| {
            line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')
        });
        let missing = modules.filter(|module| !section.contains(&format!("`{module}`")));
        broken.extend(missing.map(|module| format!("{heading}: {module}")));
    }
    check("ARCHITECTURE.md names each module of the kit and of the runtime", &broken);
}
