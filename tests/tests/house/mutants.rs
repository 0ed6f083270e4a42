//! The lists of mutants fit the sources, so that `make mutants` can be run at any time.

use std::collections::BTreeSet;

use ccm_tests::mutants::Mutants;

use super::tidy::{check, root};

#[test]
fn each_mutant_has_its_place_in_the_sources() {
    let mut broken = Vec::new();
    let folders = ["bins", "shared"].map(|name| std::fs::read_dir(root().join(name)).unwrap());
    for entry in folders.into_iter().flatten().flatten() {
        if !entry.path().join("mutants.toml").exists() {
            continue;
        }
        let mutants = Mutants::read(&entry.path()).unwrap();
        let words: BTreeSet<&str> = mutants.all.iter().map(|one| one.breaks.as_str()).collect();
        if words.len() != mutants.all.len() {
            broken.push(format!("{}: two mutants break the same code", entry.path().display()));
        }
        broken.extend(mutants.applied(&entry.path()).err().map(|error| error.to_string()));
    }
    check("a mutant names code that occurs once", &broken);
}
