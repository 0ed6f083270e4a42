//! Checks for plain English: finds habits of wording by patterns, in comments, messages and
//! documents.
//!
//! Each place must be rewritten, or allowed with a reason; a failure also counts them by habit and
//! folder.

use std::{collections::BTreeMap, path::Path};

use super::tidy::{check, files, read, root};

/// A habit, how it reads and what to write in its place.
struct Habit {
    name: &'static str,
    /// Words with a space between; `|` separates alternatives of a word, `*` is any word, `^` is
    /// the beginning of a doc comment.
    patterns: &'static [&'static str],
    /// Correct uses that contain such a pattern.
    except: &'static [&'static str],
    advice: &'static str,
}

const HABITS: [Habit; 9] = [
    Habit {
        name: "is no X",
        patterns: &["is|are|was|were|be|been|being no *"],
        except: &[
            "there is|are|was|were|be|been|being no",
            "there may|can|must|should|will|would|has|have|had be|been no",
            "is|are|was|were|be|been|being no longer|more|less|later|earlier|fewer|older|newer|better|one",
        ],
        advice: "negate the verb: `is not an address`, `does not apply`",
    },
    Habit {
        name: "none as a pronoun",
        patterns: &["none"],
        except: &[
            "none of",
            "there is|are|was|were none",
            "none so|yet|dropped",
            "colormode|graphmode|almost|normal|otherwise none",
        ],
        advice: "repeat the noun: `has no address`, `no node matches`",
    },
    Habit {
        name: "Whether",
        patterns: &["^ whether"],
        except: &[],
        advice: "`True if`, or say what is checked",
    },
    Habit {
        name: "What",
        patterns: &["^ what|which"],
        except: &[],
        advice: "name the thing: `The nodes that ...`, `Node labels to set`",
    },
    Habit {
        name: "The same, one that",
        patterns: &["^ the same", "^ one that|of|whose|with"],
        except: &["^ the same *"],
        advice: "name the thing",
    },
    Habit {
        name: "that of",
        patterns: &[
            "that of",
            "those of",
            "the ones that|of|which",
            "the one of",
            "of one that|whose|which",
        ],
        except: &[],
        advice: "repeat the noun: `the node's taint`",
    },
    Habit {
        name: "is to",
        patterns: &["is|are|was|were to *"],
        except: &[],
        advice: "`should`, `must` or `will`",
    },
    Habit {
        name: "adverbs",
        patterns: &["by itself", "likewise", "meanwhile", "of late", "of before", "is|are there"],
        except: &[],
        advice: "`on its own`, `also`, `in the meantime`, `recent`, `previous`, `exists`",
    },
    Habit {
        name: "metaphors",
        patterns: &["rival|rivals", "ghost|ghosts", "twin|twins", "mend|mends|mended"],
        except: &[],
        advice: "use the plain noun",
    },
];

/// Correct uses: the end of the path, the words in lower case, and the reason.
const ALLOWED: [(&str, &str, &str); 10] = [
    ("tests/house/english.rs", "", "the habits themselves"),
    ("CONTRIBUTING.md", "is no ip address", "an example of what not to write"),
    ("CONTRIBUTING.md", "a load balancer is to have", "an example of what not to write"),
    ("openstack/src/tests/calls.rs", "none", "the text of Rust's values"),
    ("http/tests/record.rs", "none ", "the text of Rust's values"),
    ("record/anonymous/names.rs", "unknown none none yes", "words of Kubernetes"),
    ("instances/tests/lookups.rs", "as its id and none", "the beginning of a longer text"),
    ("settings/src/load.rs", "the place of before", "`before` is a value"),
    ("kube/tests/client/connections.rs", "none none", "the text of Rust's values"),
    ("world/leases.rs", "rivals waits", "the name of a check"),
];

/// A word, stripped of punctuation.
#[derive(Debug)]
struct Word {
    text: String,
    line: usize,
    /// Punctuation follows: a pattern does not reach over it.
    is_last: bool,
}

/// Consecutive words of one comment, text or paragraph.
#[derive(Debug, Default)]
struct Passage {
    words: Vec<Word>,
}

impl Passage {
    fn push(&mut self, line: usize, text: &str) {
        for word in text.split_whitespace() {
            let stripped = word.trim_matches(|it: char| ".,;:!?()[]=\"'*_|-".contains(it));
            let is_last = word.ends_with(|it: char| ".,;:!?)]\"|".contains(it));
            if stripped.is_empty() {
                if let Some(last) = self.words.last_mut() {
                    last.is_last = true;
                }
                continue;
            }
            self.words.push(Word { text: stripped.to_lowercase(), line, is_last });
        }
    }

    /// Returns true if the words from `at` on match the pattern.
    fn matches(&self, at: usize, pattern: &str) -> bool {
        let parts: Vec<&str> = pattern.split(' ').collect();
        let Some(words) = self.words.get(at..at + parts.len()) else { return false };
        let joined = words.iter().rev().skip(1).all(|word| !word.is_last);
        joined
            && words.iter().zip(parts).all(|(word, part)| {
                let is_plain = word.text.chars().all(char::is_alphabetic);
                (part == "*" && is_plain) || part.split('|').any(|it| it == word.text)
            })
    }

    /// Returns true if these words are all between two marks of punctuation: a key or a value, such
    /// as `changes: none`.
    fn is_value(&self, at: usize, length: usize) -> bool {
        let begins = at.checked_sub(1).and_then(|before| self.words.get(before));
        let ends = self.words.get(at + length - 1);
        length == 1
            && begins.is_none_or(|word| word.is_last)
            && ends.is_none_or(|word| word.is_last || at + length == self.words.len())
    }

    fn length(pattern: &str) -> usize {
        pattern.split(' ').count()
    }

    /// Returns the places of a habit, without its exceptions.
    fn places(&self, habit: &Habit) -> Vec<usize> {
        let finds = |patterns: &[&str], at: usize| {
            patterns.iter().filter(|it| self.matches(at, it)).map(|it| Self::length(it)).max()
        };
        let mut places = Vec::new();
        for at in 0..self.words.len() {
            let Some(length) = finds(habit.patterns, at) else { continue };
            if self.is_value(at, length) {
                continue;
            }
            let is_excepted = (at.saturating_sub(3)..at + length)
                .any(|start| finds(habit.except, start).is_some_and(|reach| start + reach > at));
            if !is_excepted {
                places.push(at);
            }
        }
        places
    }

    fn excerpt(&self, at: usize) -> String {
        let from = at.saturating_sub(8);
        let words = self.words.iter().skip(from).take(22).map(|word| word.text.as_str());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Reads the comments and the string literals of a Rust file.
struct Source<'a> {
    rest: &'a str,
    line: usize,
    passages: Vec<Passage>,
    /// The mark of the comment that the next line may continue, and its line.
    open: Option<(&'static str, usize)>,
    /// True inside an example of a doc comment.
    is_code: bool,
}

impl<'a> Source<'a> {
    fn passages(text: &'a str) -> Vec<Passage> {
        let mut source =
            Self { rest: text, line: 1, passages: Vec::new(), open: None, is_code: false };
        while !source.rest.is_empty() {
            source.step();
        }
        source.passages
    }

    /// Moves on by this many bytes, and returns them.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            return self.comment();
        }
        if rest.starts_with("/*") {
            self.take(rest.find("*/").map_or(rest.len(), |at| at + 2));
            return;
        }
        if let Some(fences) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(fences));
            self.take(fences + 2);
            let length = self.rest.find(&end).unwrap_or(self.rest.len());
            self.literal(length);
            self.take(end.len());
            return;
        }
        if rest.starts_with('"') {
            self.take(1);
            let length = end_of_string(self.rest);
            self.literal(length);
            self.take(1);
            return;
        }
        if rest.starts_with('\'') {
            self.take(length_of_character(rest));
            return;
        }
        let is_name = |it: char| it.is_alphanumeric() || it == '_';
        let length = rest.find(|it| !is_name(it)).unwrap_or(rest.len());
        self.take(length.max(rest.chars().next().map_or(1, char::len_utf8)));
    }

    fn comment(&mut self) {
        let text = self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        let mark = ["///", "//!", "//"].into_iter().find(|mark| text.starts_with(mark));
        let mark = mark.unwrap_or("//");
        let said = text.trim_start_matches(mark).trim();
        let continues = self.open.is_some_and(|(open, line)| open == mark && line + 1 == self.line);
        if !continues || said.is_empty() {
            self.passages.push(Passage::default());
        }
        let line = self.line;
        let is_fence = said.starts_with("```");
        self.is_code = continues && (self.is_code ^ is_fence);
        if let Some(passage) = self.passages.last_mut().filter(|_| !self.is_code && !is_fence) {
            if !continues && mark != "//" {
                passage.words.push(Word { text: "^".to_owned(), line, is_last: false });
            }
            passage.push(line, said);
        }
        self.open = Some((mark, line));
    }

    fn literal(&mut self, length: usize) {
        let line = self.line;
        let text = self.take(length);
        let mut passage = Passage::default();
        for (number, part) in (line..).zip(text.split('\n')) {
            passage.push(number, &part.trim_end_matches('\\').replace("\\n", " "));
        }
        self.passages.push(passage);
    }
}

/// Returns the number of `#` of a raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let fences = rest.strip_prefix('r')?;
    let text = fences.trim_start_matches('#');
    text.starts_with('"').then_some(fences.len() - text.len())
}

fn end_of_string(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices() {
        match letter {
            '"' if !is_escaped => return at,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    rest.len()
}

/// Returns a character literal, or the quote of a lifetime.
fn length_of_character(rest: &str) -> usize {
    let inner = rest.get(1..).unwrap_or_default();
    if let Some(escape) = inner.strip_prefix('\\') {
        return escape.get(1..).and_then(|it| it.find('\'')).map_or(1, |at| at + 4);
    }
    let letter = inner.chars().next().map_or(0, char::len_utf8);
    let is_closed = inner.get(letter..).is_some_and(|it| it.starts_with('\''));
    if is_closed { letter + 2 } else { 1 }
}

/// Returns the paragraphs of a page or of a manifest; examples of code are left out.
fn paragraphs(text: &str) -> Vec<Passage> {
    let (mut passages, mut is_code) = (vec![Passage::default()], false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_fence || line.is_empty() || line.starts_with(['-', '#', '|']) {
            passages.push(Passage::default());
        }
        if let Some(passage) = passages.last_mut().filter(|_| !is_code && !is_fence) {
            passage.push(number, &line.trim_start_matches(['#', ' ']).replace("\\n", " "));
        }
    }
    passages
}

/// Returns the folder: programs and crates by their own folder, the rest by the first one.
fn folder(path: &str) -> String {
    let depth =
        if ["bins/", "shared/", "tests/"].iter().any(|it| path.starts_with(it)) { 2 } else { 1 };
    path.split('/').take(depth).collect::<Vec<_>>().join("/")
}

/// Returns the habits of one file, with their lines.
fn found(path: &Path, name: &str) -> Vec<(&'static Habit, usize, String)> {
    let text = read(path);
    let is_source = path.extension().is_some_and(|it| it == "rs" || it == "proto");
    let passages = if is_source { Source::passages(&text) } else { paragraphs(&text) };
    let mut found = Vec::new();
    for passage in &passages {
        for habit in &HABITS {
            for at in passage.places(habit) {
                let excerpt = passage.excerpt(at);
                let is_allowed = ALLOWED
                    .iter()
                    .any(|(place, words, _)| name.ends_with(place) && excerpt.contains(words));
                let line = passage.words.get(at).map_or(0, |word| word.line);
                if !is_allowed {
                    found.push((habit, line, excerpt));
                }
            }
        }
    }
    found
}

/// Returns true for a checked file. Manifests and dashboards count as sources of text; rendered
/// manifests are copies.
fn is_checked(name: &str) -> bool {
    let is_text = ["rs", "md", "proto"].iter().any(|it| name.ends_with(&format!(".{it}")));
    is_text
        || ((name.starts_with("manifests/") || name.starts_with("grafana/"))
            && !name.contains("/rendered/"))
}

#[test]
fn the_wording_is_plain() {
    let (mut broken, mut counts) = (Vec::new(), BTreeMap::new());
    for path in files(&["rs", "md", "proto", "yaml", "yml", "json"]) {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if !is_checked(&name) {
            continue;
        }
        for (habit, line, excerpt) in found(&path, &name) {
            broken.push(format!("{name}:{line}: {}: \"{excerpt}\": {}", habit.name, habit.advice));
            *counts.entry((habit.name, folder(&name))).or_insert(0_usize) += 1;
        }
    }
    for ((habit, folder), count) in counts {
        println!("{habit}, {folder}: {count}");
    }
    check("write it in plain English, or allow it with a reason", &broken);
}

/// Returns the lines of doc comments that begin with "Returns" although the function does not
/// return anything, or that begin a second sentence after a semicolon.
fn wrong_returns(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_doc = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
    let begins = |at: usize| lines[at].starts_with("/// Returns ") && (at == 0 || !is_doc(at - 1));
    let returns_nothing = |at: usize| {
        let item = lines[at..].iter().skip_while(|line| line.starts_with("///"));
        let mut signature = String::new();
        for line in item {
            signature.push_str(line);
            if line.ends_with(['{', ';', '}']) {
                break;
            }
        }
        let is_plain = signature.contains("fn ") && !signature.contains("async fn ");
        is_plain && !signature.contains("->")
    };
    (0..lines.len())
        .filter(|at| {
            (begins(*at) && returns_nothing(*at))
                || is_doc(*at) && lines[*at].contains("; Returns ")
        })
        .map(|at| at + 1)
        .collect()
}

#[test]
fn a_function_that_says_that_it_returns_something_does() {
    assert_eq!(wrong_returns("/// Returns a member joins.\nfn join(&mut self) {\n"), [1]);
    assert_eq!(wrong_returns("/// Returns it.\n#[must_use]\nfn it(\n&self,\n) -> u8 {\n"), [0; 0]);
    let broken = files(&["rs"]).into_iter().flat_map(|path| {
        let wrong = wrong_returns(&read(&path)).into_iter();
        wrong.map(move |line| format!("{}:{line}", path.display())).collect::<Vec<_>>()
    });
    check("say what the function does: it does not return anything", &broken.collect::<Vec<_>>());
}
