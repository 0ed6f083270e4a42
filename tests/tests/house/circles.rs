//! Finds circles between modules that are not parent and child.
//!
//! The module A uses the module B if A's code names an item that B defines, in a `use` or in a path
//! that begins with a module. A re-export is followed to the module that defines the item. Methods
//! and variants belong to their type. Uses by a path in a string, or without a path, are not found.
//! Methods of one type have a separate test. Test code (`#[cfg(test)]`) and other crates do not
//! count.
//!
//! For its siblings, a module includes everything below it: if `a::x` uses `b::y`, then `a` uses
//! `b`. The children of a module must not form a circle. Uses between a module and the modules
//! above or below it do not count. So a circle is not found if it goes through a module that is
//! above all others of the circle.

mod cases;
mod methods;
mod modules;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use ccm_tests::cluster::repository;
use modules::{Modules, Path, Sources, Use};
use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use walkdir::{DirEntry, WalkDir};

/// The uses between a module's children, by the pair of siblings.
type Siblings = BTreeMap<(Path, Path), BTreeSet<Use>>;

/// Modules that use each other, and the uses that close the circle.
#[derive(Debug)]
struct Circle {
    modules: Vec<String>,
    uses: Vec<String>,
}

fn circles(uses: BTreeSet<Use>) -> Vec<Circle> {
    let siblings = siblings(uses);
    let graph: DiGraphMap<&Path, ()> = siblings.keys().map(|(user, used)| (user, used)).collect();
    let circles = tarjan_scc(&graph).into_iter().filter(|modules| modules.len() > 1);
    let circles: BTreeSet<BTreeSet<&Path>> = circles.map(BTreeSet::from_iter).collect();
    circles.iter().map(|modules| of(modules, &siblings)).collect()
}

fn of(circle: &BTreeSet<&Path>, siblings: &Siblings) -> Circle {
    let inside = |(from, to): &(Path, Path)| circle.contains(from) && circle.contains(to);
    let uses = siblings.iter().filter(|(pair, _)| inside(pair)).flat_map(|(_, uses)| uses);
    Circle {
        modules: circle.iter().map(|path| path.join("::")).collect(),
        uses: uses.map(|one| format!("{} names {}", one.from.join("::"), one.text)).collect(),
    }
}

fn siblings(uses: BTreeSet<Use>) -> Siblings {
    let mut siblings = Siblings::new();
    for one in uses {
        let same = one.from.iter().zip(&one.to).take_while(|(from, to)| from == to).count();
        if let (Some(from), Some(to)) = (one.from.get(..=same), one.to.get(..=same)) {
            siblings.entry((from.to_vec(), to.to_vec())).or_default().insert(one);
        }
    }
    siblings
}

/// Returns the folders of all crates but the root's own.
fn crates() -> Vec<String> {
    let manifests = |folder| WalkDir::new(repository().join(folder)).min_depth(2).max_depth(2);
    ["bins", "shared", "tests"]
        .into_iter()
        .flat_map(|folder| manifests(folder).into_iter().flatten().map(move |file| (folder, file)))
        .filter(|(_, file)| file.file_name() == "Cargo.toml")
        .filter_map(|(folder, file)| {
            Some(format!("{folder}/{}", file.path().parent()?.file_name()?.display()))
        })
        .collect()
}

fn sources(name: &str) -> Sources {
    let folder = repository().join(name).join("src");
    let files = WalkDir::new(&folder).into_iter().flatten().map(DirEntry::into_path);
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == "rs"))
        .filter_map(|file| {
            let name = file.strip_prefix(&folder).ok()?.display().to_string();
            Some((name, fs::read_to_string(&file).ok()?))
        })
        .collect()
}

#[test]
fn modules_make_no_circles() {
    let mut found = Vec::new();
    let crates = crates();
    assert!(crates.len() > 8, "{crates:?}");
    for name in crates {
        let sources = sources(&name);
        for root in ["lib.rs", "main.rs"].into_iter().filter(|root| sources.contains_key(*root)) {
            let circles = circles(Modules::read(&sources, root).uses());
            for circle in &circles {
                let (modules, uses) = (circle.modules.join(", "), circle.uses.join("\n    "));
                found.push(format!("{name}: {modules}\n    {uses}"));
            }
        }
    }
    assert!(found.is_empty(), "modules use each other in a circle:\n{}", found.join("\n"));
}

/// Checks the files of one type's methods in the same way: a file uses another one if a method in
/// it calls a method there.
#[test]
fn methods_of_a_type_make_no_circles_over_files() {
    let mut found = Vec::new();
    let (mut types, mut calls) = (0, 0);
    for name in crates() {
        for (of, uses) in methods::calls(&sources(&name)) {
            (types, calls) = (types + 1, calls + uses.len());
            let circles = circles(uses);
            found.extend(circles.iter().map(|circle| {
                let (modules, uses) = (circle.modules.join(", "), circle.uses.join("\n    "));
                format!("{name}, {of}: {modules}\n    {uses}")
            }));
        }
    }
    println!("{calls} calls between files, of methods of {types} types");
    assert!(types > 20 && calls > 200, "{types} types, {calls} calls");
    assert!(found.is_empty(), "methods call each other in a circle:\n{}", found.join("\n"));
}
