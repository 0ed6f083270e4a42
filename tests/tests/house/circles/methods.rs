//! Finds the methods of a type that call methods of the same type in another file.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    modules::{Path, Sources, Use},
    words::Words,
};

/// An `impl` block.
struct Block {
    of: String,
    file: Path,
    words: Vec<String>,
}

/// Returns the calls between the files of each type's methods. A call is `self.name(`,
/// `Self::name(` or `Type::name(`; a call on another value of the type is not found. If several
/// types have one name, an `impl` block belongs to the nearest one.
pub fn calls(sources: &Sources) -> BTreeMap<String, BTreeSet<Use>> {
    let files: Vec<(Path, Vec<String>)> = sources
        .iter()
        .filter(|(file, _)| !file.split(['/', '.']).any(|name| name == "tests"))
        .map(|(file, text)| (module(file), code(text)))
        .collect();
    let mut blocks: Vec<Block> =
        files.iter().flat_map(|(file, words)| blocks(file, words)).collect();
    for block in &mut blocks {
        block.of = nearest(&block.of, &block.file, &files);
    }
    let mut defined: BTreeMap<(&str, &str), BTreeSet<&Path>> = BTreeMap::new();
    for block in &blocks {
        for pair in block.words.windows(2).filter(|pair| pair[0] == "fn") {
            defined.entry((&block.of, &pair[1])).or_default().insert(&block.file);
        }
    }
    let mut calls: BTreeMap<String, BTreeSet<Use>> = BTreeMap::new();
    for Block { of, file, words } in &blocks {
        for call in words.windows(4).filter(|call| is_call(of, call)) {
            let to = defined.get(&(of.as_str(), call[2].as_str()));
            let to = to.filter(|files| !files.contains(file));
            calls.entry(of.clone()).or_default().extend(to.into_iter().flatten().map(|to| Use {
                from: file.clone(),
                to: Path::clone(to),
                text: format!("{of}::{}", call[2]),
            }));
        }
    }
    calls
}

fn is_call(of: &str, words: &[String]) -> bool {
    let name = of.rsplit("::").next();
    let on_type = words[1] == "::" && (words[0] == "Self" || Some(&*words[0]) == name);
    let is_method = on_type || (words[1] == "." && words[0] == "self");
    is_method && ["(", "::"].contains(&words[3].as_str())
}

fn module(file: &str) -> Path {
    let names = file.trim_end_matches(".rs").split('/').map(str::to_owned);
    names.filter(|name| !["lib", "main"].contains(&name.as_str())).collect()
}

/// Returns the path of the type of this name whose definition is nearest to the file.
fn nearest(name: &str, file: &Path, files: &[(Path, Vec<String>)]) -> String {
    let defines = |words: &[String]| {
        let is_type = |word: &str| ["struct", "enum", "trait"].contains(&word);
        words.windows(2).any(|pair| is_type(&pair[0]) && pair[1] == name)
    };
    let same = |other: &Path| other.iter().zip(file).take_while(|(one, two)| one == two).count();
    let defining = files.iter().filter(|(_, words)| defines(words)).map(|(path, _)| path);
    let path = defining.max_by_key(|path| same(path)).cloned().unwrap_or_default();
    path.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("::")
}

/// Returns the words of a file without its test code.
fn code(text: &str) -> Vec<String> {
    let (mut words, mut code) = (Words::of(text), Vec::new());
    while let Some(word) = words.next() {
        match word == "#" && words.begin_with(&["[", "cfg", "(", "test", ")"]) {
            true => words.skip_item(),
            false => code.push(word),
        }
    }
    code
}

fn blocks(file: &Path, words: &[String]) -> Vec<Block> {
    let (mut blocks, mut depth, mut head) = (Vec::<Block>::new(), 0_u32, None);
    for (place, word) in words.iter().enumerate() {
        match word.as_str() {
            "impl" if depth == 0 => head = Some(place + 1),
            "(" | "[" | "{" => {
                if let Some(head) = head.take_if(|_| depth == 0 && word == "{") {
                    let of = name(&words[head..place]);
                    blocks.push(Block { of, file: file.clone(), words: Vec::new() });
                }
                depth += 1;
            }
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if let Some(block) = blocks.last_mut().filter(|_| depth > 0) {
            block.words.push(word.clone());
        }
    }
    blocks
}

/// Returns the type of an `impl` from the words before its bracket: the last name outside of `<>`,
/// before `where`.
fn name(head: &[String]) -> String {
    let (mut depth, mut name) = (0_i32, "");
    for (place, word) in head.iter().enumerate() {
        match word.as_str() {
            "where" if depth == 0 => break,
            "<" => depth += 1,
            ">" if place > 0 && head[place - 1] != "-" => depth -= 1,
            word if depth == 0 && word.starts_with(char::is_alphabetic) => name = word,
            _ => {}
        }
    }
    name.to_owned()
}
