//! The modules of a crate and the names that each uses of the others, read from the source.

use std::collections::{BTreeMap, BTreeSet};

use super::words::Words;

/// A module, as the names that lead to it from the crate's root. The root is empty.
pub type Path = Vec<String>;

/// The files of a crate by their path below `src`.
pub type Sources = BTreeMap<String, String>;

/// An item that a module names and another one defines.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
pub struct Use {
    /// The module whose code names the item.
    pub from: Path,
    /// The module that defines it.
    pub to: Path,
    /// The path as it is written.
    pub text: String,
}

/// The modules of one crate.
#[derive(Default)]
pub struct Modules(BTreeMap<Path, Module>);

#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// The names and paths that `use` brings into scope.
    imports: BTreeMap<String, Path>,
    /// Paths of two segments or more outside of `use`.
    paths: BTreeSet<Path>,
}

/// Names that modules import from each other in a circle are defined nowhere.
const DEEPEST: usize = 16;

/// The target of a path.
enum Target {
    Module(Path),
    /// An item, by the module that defines it.
    Item(Path),
    /// Another crate, or an item of the module that names it.
    Elsewhere,
}

impl Modules {
    /// Reads the crate whose root is the file `root`, without its test code.
    pub fn read(sources: &Sources, root: &str) -> Self {
        let mut modules = Self::default();
        modules.file(sources, root, &Path::new());
        modules
    }

    /// Returns every use of another module's item.
    pub fn uses(&self) -> BTreeSet<Use> {
        let mut uses = BTreeSet::new();
        for (from, module) in &self.0 {
            let imports = module.imports.values();
            let imports = imports.map(|path| (path, self.resolve(from, path, 0)));
            let paths = module.paths.iter();
            let paths = paths.filter(|path| self.begins_with_module(from, path));
            let paths = paths.map(|path| (path, self.item(from, path)));
            for (path, target) in imports.chain(paths) {
                if let Target::Item(to) = target
                    && to != *from
                {
                    uses.insert(Use { from: from.clone(), to, text: path.join("::") });
                }
            }
        }
        uses
    }

    /// `Type::new` does not: its type is an import that counts already, or is defined here.
    fn begins_with_module(&self, from: &Path, path: &[String]) -> bool {
        matches!(self.resolve(from, &path[..1], 0), Target::Module(_))
    }

    /// Returns the target of a path in code. It cannot be a module: if it looks like one, an item
    /// has the module's name.
    fn item(&self, from: &Path, path: &Path) -> Target {
        match self.resolve(from, path, 0) {
            Target::Module(mut module) => {
                module.pop();
                Target::Item(module)
            }
            target => target,
        }
    }

    fn resolve(&self, from: &Path, path: &[String], depth: usize) -> Target {
        let mut at = from.clone();
        for (place, name) in path.iter().enumerate() {
            let found = match name.as_str() {
                "crate" => Target::Module(Path::new()),
                "self" => Target::Module(at.clone()),
                "super" => Target::Module(at[..at.len() - 1].to_vec()),
                name if place == 0 => self.in_scope(&at, name, depth),
                name => self.member(&at, name, place + 1 == path.len(), depth),
            };
            match found {
                Target::Module(next) => at = next,
                end => return end,
            }
        }
        Target::Module(at)
    }

    /// Returns the target of a path's first name in the code of `at`.
    fn in_scope(&self, at: &Path, name: &str, depth: usize) -> Target {
        let module = &self.0[at];
        match module.imports.get(name) {
            _ if module.children.contains(name) => Target::Module(below(at, name)),
            // This excludes `use tokio;`.
            Some(path) if path[0] != name && depth < DEEPEST => self.resolve(at, path, depth + 1),
            _ => Target::Elsewhere,
        }
    }

    /// Returns the target of `name` in a path behind the module `at`; at the end of a path an item
    /// precedes a module of the same name.
    fn member(&self, at: &Path, name: &str, last: bool, depth: usize) -> Target {
        let module = &self.0[at];
        let imported = match module.imports.get(name) {
            Some(path) if depth < DEEPEST => Some(self.resolve(at, path, depth + 1)),
            Some(_) => Some(Target::Elsewhere),
            None => None,
        };
        match imported {
            Some(item @ Target::Item(_)) if last => item,
            _ if module.children.contains(name) => Target::Module(below(at, name)),
            Some(target) => target,
            None => Target::Item(at.clone()),
        }
    }

    fn file(&mut self, sources: &Sources, file: &str, path: &Path) {
        let text = sources.get(file).unwrap_or_else(|| panic!("there is no {file}"));
        self.code(sources, path, &mut Words::of(text));
    }

    /// Reads code of the module `at` up to the bracket that closes it.
    fn code(&mut self, sources: &Sources, at: &Path, words: &mut Words) {
        self.0.entry(at.clone()).or_default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "(" | "[" | "{" => self.code(sources, at, words),
                ")" | "]" | "}" => return,
                "#" if words.begin_with(&["[", "cfg", "(", "test", ")"]) => words.skip_item(),
                // This is the rest of a path that began with a type, a method or a field.
                "::" | "." => words.skip_name(),
                "mod" => self.module(sources, at, words),
                "use" if !words.begin_with(&["<"]) => {
                    let module = self.0.entry(at.clone()).or_default();
                    words.import(&[], &mut |name, path| drop(module.imports.insert(name, path)));
                }
                word => {
                    let path = words.path(word);
                    if path.len() > 1 {
                        self.0.entry(at.clone()).or_default().paths.insert(path);
                    }
                }
            }
        }
    }

    fn module(&mut self, sources: &Sources, at: &Path, words: &mut Words) {
        let Some(name) = words.next() else { return };
        let path = below(at, &name);
        self.0.entry(at.clone()).or_default().children.insert(name);
        if words.next().is_some_and(|word| word == "{") {
            self.code(sources, &path, words);
            return;
        }
        self.file(sources, &format!("{}.rs", path.join("/")), &path);
    }
}

fn below(path: &Path, name: &str) -> Path {
    path.iter().cloned().chain([name.to_owned()]).collect()
}
