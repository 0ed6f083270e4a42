//! Everything that the pages name exists: targets of make, flags, metrics, events, files, headings.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    pages::everything,
    tidy::{check, files, read, root},
};

/// Flags of other programs that the pages name.
const FOREIGN: [(&str, &[&str]); 12] = [
    ("sim-cloud", &["instance"]),
    ("sim-apiserver", &["listen"]),
    ("helm", &["reuse-values", "set"]),
    (
        "kubectl",
        &[
            "all",
            "as",
            "clusterrole",
            "field-selector",
            "from-file",
            "from-literal",
            "group",
            "ignore-not-found",
            "list",
            "no-headers",
            "overwrite",
            "prefix",
            "previous",
            "raw",
            "replicas",
            "server-side",
            "sort-by",
            "subresource",
            "tail",
            "type",
        ],
    ),
    ("cargo", &["example", "lib", "nocapture", "release", "test"]),
    ("cilium-operator", &["set-cilium-is-up-condition"]),
    ("the kubelet", &["node-ip", "node-labels", "provider-id"]),
    ("k3s", &["disable-cloud-controller"]),
    (
        "openstack",
        &["access-rules", "allowed-address", "cascade", "os-cloud", "role", "route", "tag", "tags"],
    ),
    ("etcdutl", &["bump-revision"]),
    ("the benchmarks", &["first-history", "seed"]),
    ("tests/openstack/up", &["flavour", "fresh", "state"]),
];

/// Returns the pages for operators and developers, with their text without blocks of Rust.
fn pages() -> Vec<(PathBuf, String)> {
    let folders = ["docs", "grafana", "manifests", "tests"].map(|folder| root().join(folder));
    let is_page = |path: &PathBuf| {
        path.parent() == Some(&root()) || folders.iter().any(|folder| path.starts_with(folder))
    };
    let pages: Vec<_> = files(&["md"]).into_iter().filter(is_page).collect();
    assert!(pages.len() > 40, "the pages were not found: {pages:?}");
    pages.into_iter().map(|path| (path.clone(), without_rust(&read(&path)))).collect()
}

/// Turns blocks of Rust into empty lines, because their words are not commands.
fn without_rust(text: &str) -> String {
    let mut is_rust = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        is_rust |= line.starts_with("```rust");
        lines.push(if is_rust { "" } else { line });
        is_rust &= line != "```";
    }
    lines.join("\n")
}

/// Returns the code of a line: between backticks, or all of it in a block.
fn code(line: &str) -> Vec<&str> {
    let mut parts: Vec<_> = line.split('`').skip(1).step_by(2).collect();
    if parts.is_empty() {
        parts.push(line);
    }
    parts
}

/// Fails for everything in the code of the pages that `wrong` returns. Pages about this code have
/// arrows and crates instead of flags and metrics.
fn in_code(rule: &str, wrong: impl Fn(&Path, &str) -> Vec<String>) {
    let mut broken = Vec::new();
    let is_about_code = |path: &Path| {
        path.ends_with("ARCHITECTURE.md") || path.starts_with(root().join("docs/decisions"))
    };
    for (path, text) in pages().into_iter().filter(|(path, _)| !is_about_code(path)) {
        for (number, line) in text.lines().enumerate() {
            let found = code(line).into_iter().flat_map(|part| wrong(&path, part));
            broken.extend(found.map(|what| format!("{}:{}: {what}", path.display(), number + 1)));
        }
    }
    check(rule, &broken);
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Returns the target of `[NAME=value...] make [target]`.
fn target(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace().skip_while(|word| word.contains('='));
    (words.next()? == "make").then(|| words.find(|word| !word.contains('=')).map(word))?
}

#[test]
fn every_target_of_make_exists() {
    let makefile = read(&root().join("Makefile"));
    let known: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#']))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    assert!(known.contains("demo"), "the targets were not found: {known:?}");
    in_code("the Makefile has no such target", |_, part| {
        target(part).filter(|name| !known.contains(name)).map(str::to_owned).into_iter().collect()
    });
}

/// Returns the flags in a text, without their dashes.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("--").filter_map(|(at, _)| {
        let before = text.get(..at)?.chars().next_back();
        let name = word(text.get(at + 2..)?);
        let is_flag = name.starts_with(|c: char| c.is_ascii_lowercase());
        let begins = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-');
        (is_flag && begins).then_some(name)
    })
}

#[test]
fn every_flag_exists() {
    let references: Vec<_> = pages()
        .into_iter()
        .filter(|(path, _)| {
            path.file_name().is_some_and(|name| is_reference(&name.to_string_lossy()))
        })
        .collect();
    let mut known: BTreeSet<&str> = references.iter().flat_map(|(_, text)| flags(text)).collect();
    assert!(known.contains("kube-api-qps"), "the options were not found");
    let foreign: BTreeSet<&str> = FOREIGN.iter().flat_map(|(_, names)| *names).copied().collect();
    known.extend(&foreign);
    // The pages about parity discuss upstream's own flags.
    in_code("no program has this flag", |path, part| {
        let unknown = flags(part).filter(|name| !is_parity(path) && !known.contains(name));
        unknown.map(|name| format!("--{name}")).collect()
    });
    let pages = pages();
    let named: BTreeSet<&str> = pages.iter().flat_map(|(_, text)| flags(text)).collect();
    let unused: Vec<_> = foreign.difference(&named).map(|name| (*name).to_owned()).collect();
    check("FOREIGN lists a flag that no page names", &unused);
}

fn is_parity(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("parity"))
}

fn is_reference(name: &str) -> bool {
    name.starts_with("options-")
}

/// Returns the names of all series that a program can have.
fn series() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let families = everything().unwrap_or_else(|error| panic!("{error:#}"));
    for family in families {
        let parts = ["", "_bucket", "_sum", "_count"];
        let parts = if family.kind == "histogram" { &parts[..] } else { &parts[..1] };
        all.extend(parts.iter().map(|part| format!("{}{part}", family.name)));
    }
    all
}

/// Without this setting service-ccm reports the annotations of the simulated cloud.
#[test]
fn annotations_of_the_simulated_cloud_are_confirmed() {
    let page = read(&root().join("docs/tutorial/first-service.md"));
    let starts: Vec<_> =
        page.lines().filter(|line| line.contains("target/debug/service-ccm")).collect();
    let right = "--provider-annotation-prefixes sim/,sim-status/";
    assert!(!starts.is_empty() && starts.iter().all(|line| line.contains(right)), "{starts:?}");
}

#[test]
fn every_metric_exists() {
    let known = series();
    in_code("no program has this metric", |_, part| {
        let name = word(part);
        let rest = part.get(name.len()..).unwrap_or_default();
        let is_metric = ["ccm_", "openstack_"].iter().any(|prefix| name.starts_with(prefix));
        let is_known = known.contains(name)
            || (rest.starts_with('*') || name.ends_with('_')) && begins(&known, name);
        let is_wrong = is_metric && !rest.starts_with("::") && !is_known;
        is_wrong.then(|| part.to_owned()).into_iter().collect()
    });
}

fn begins(known: &BTreeSet<String>, head: &str) -> bool {
    known.range(head.to_owned()..).next().is_some_and(|name| name.starts_with(head))
}

/// Returns the literal beginnings of everything that an extended regular expression of our pages
/// matches: `^(a_(b|c)|d.*e)` begins with `a_b`, `a_c` or `d`.
fn heads(pattern: &str) -> Vec<String> {
    let pattern = pattern.trim_start_matches('^');
    let alternatives = split(pattern);
    if alternatives.len() > 1 {
        return alternatives.into_iter().flat_map(heads).collect();
    }
    let literal = word(pattern);
    let rest = pattern.get(literal.len()..).unwrap_or_default();
    let Some(inner) = rest.strip_prefix('(') else { return vec![literal.to_owned()] };
    let end = inner.char_indices().scan(1, |depth, (at, c)| {
        *depth += i32::from(c == '(') - i32::from(c == ')');
        Some((at, *depth))
    });
    let end = end.into_iter().find(|(_, depth)| *depth == 0).map_or(inner.len(), |(at, _)| at);
    let (inner, tail) = inner.split_at(end);
    let tail = tail.trim_start_matches(')');
    let each = split(inner).into_iter().flat_map(|inner| heads(&format!("{inner}{tail}")));
    each.map(|head| format!("{literal}{head}")).collect()
}

/// Returns the alternatives of a pattern, outside of parentheses.
fn split(pattern: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_border = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == '|' && depth == 0
    };
    pattern.split(is_border).collect()
}

#[test]
fn heads_are_all_beginnings() {
    assert_eq!(heads("^(a_(b|c)_d|e.*(f|g)|h{i})"), ["a_b_d", "a_c_d", "e", "h"]);
    assert_eq!(heads("^one"), ["one"]);
}

/// A pattern that matches nothing shows nothing, which looks as if everything were fine.
#[test]
fn every_pattern_for_metrics_matches_some() {
    let known = series();
    let (mut broken, mut patterns) = (Vec::new(), 0);
    for (path, text) in pages() {
        for line in text.lines() {
            let by_page = line.strip_prefix("page metrics ");
            let by_curl = line.split_once("/metrics | grep -E ").map(|(_, rest)| rest);
            let Some(rest) = by_page.or(by_curl) else { continue };
            let quoted = rest.strip_prefix('\'').and_then(|rest| rest.split('\'').next());
            let pattern = quoted.or_else(|| rest.split_whitespace().next()).unwrap_or_default();
            patterns += 1;
            let unknown = heads(pattern).into_iter().filter(|head| !begins(&known, head));
            broken.extend(unknown.map(|head| format!("{}: {head}: {line}", path.display())));
        }
    }
    assert!(patterns > 15, "the patterns were not found: {patterns}");
    check("no metric begins like this", &broken);
}

/// The pages about parity name tests as `place::name`.
#[test]
fn every_test_that_the_pages_about_parity_name_exists() {
    let sources: Vec<String> = files(&["rs"]).iter().map(|path| read(path)).collect();
    let functions: BTreeSet<&str> =
        sources.iter().flat_map(|text| text.split("fn ").skip(1)).map(word).collect();
    let named = Cell::new(0);
    in_code("this test does not exist", |path, part| {
        let is_name = is_parity(path)
            && part.contains("::")
            // An IPv6 network is not a name.
            && !part.contains("::/")
            && part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/:".contains(c));
        named.set(named.get() + usize::from(is_name));
        let name = part.rsplit("::").next().unwrap_or_default();
        (is_name && !functions.contains(name)).then(|| part.to_owned()).into_iter().collect()
    });
    assert!(named.get() > 400, "the names were not found: {named:?}");
}

#[test]
fn every_selected_event_exists() {
    let sources = files(&["rs"]).into_iter().filter(|path| {
        path.components().any(|part| part.as_os_str() == "src")
            && !path.starts_with(root().join("tests"))
    });
    let sources: String = sources.map(|path| read(&path)).collect();
    in_code("no program writes this event", |_, part| {
        let reasons = part.split("reason=").skip(1).map(word).filter(|reason| !reason.is_empty());
        let unknown = reasons.filter(|reason| {
            part.contains("--field-selector") && !sources.contains(&format!("\"{reason}\""))
        });
        unknown.map(str::to_owned).collect()
    });
}

/// A newcomer finds a module by the documentation of its crate.
#[test]
fn each_crate_names_its_modules() {
    let mut broken = Vec::new();
    for path in files(&["rs"]).iter().filter(|path| path.ends_with("src/lib.rs")) {
        let text = read(path);
        let (docs, code): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("//!"));
        let shipped =
            |place: usize| !code[..place].iter().rev().take(2).any(|line| line.contains("cfg("));
        let modules = code.iter().enumerate().filter_map(|(place, line)| {
            let name = line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?;
            shipped(place).then_some(name)
        });
        let docs = docs.join("\n");
        let is_named = |name: &&str| {
            docs.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *name)
        };
        broken.extend(
            modules
                .filter(|name| !is_named(name))
                .map(|name| format!("{}: {name}", path.display())),
        );
    }
    check("a crate's documentation names each of its modules", &broken);
}

#[test]
fn every_file_exists() {
    let top = ["bench/", "bins/", "docs/", "grafana/", "manifests/", "shared/", "tests/"];
    in_code("this file does not exist", |path, part| {
        let is_path = top.iter().any(|top| part.starts_with(top));
        let is_plain = !part.contains(|c: char| c.is_whitespace() || "<*{".contains(c));
        let folder = path.parent().unwrap_or(path).to_owned();
        let exists =
            [root(), folder].iter().any(|base| base.join(part).exists()) || any_crate_has(part);
        (is_path && is_plain && !exists).then(|| part.to_owned()).into_iter().collect()
    });
}

/// The map names source files by the ends of their paths, and others from the top.
#[test]
fn every_file_of_the_map_exists() {
    let sources = files(&["rs"]);
    let text = read(&root().join("ARCHITECTURE.md"));
    let is_missing = |part: &&str| {
        let path = Path::new(part);
        let is_source = path.extension().is_some_and(|ending| ending == "rs");
        let is_plain = !part.contains(|c: char| c.is_whitespace() || "<*{".contains(c));
        is_source && is_plain && !sources.iter().any(|file| file.ends_with(path))
    };
    let parts = text.lines().flat_map(code).filter(is_missing);
    let broken: Vec<String> = parts.map(str::to_owned).collect();
    check("ARCHITECTURE.md names a source file that does not exist", &broken);
}

fn any_crate_has(path: &str) -> bool {
    ["bins", "shared", "tests"].iter().any(|folder| {
        let crates = fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
        path.starts_with("tests/")
            && crates.into_iter().any(|entry| entry.path().join(path).exists())
    })
}

/// Returns the anchor that Git hosts give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn links_lead_to_headings_that_exist() {
    let pages = pages();
    let anchors: BTreeMap<PathBuf, BTreeSet<String>> = pages
        .iter()
        .map(|(path, text)| {
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let anchors = headings.map(|line| anchor(line.trim_start_matches('#'))).collect();
            (path.canonicalize().expect("the page exists"), anchors)
        })
        .collect();
    let (mut broken, mut links) = (Vec::new(), 0);
    for (path, text) in &pages {
        let targets = text.split("](").skip(1).filter_map(|part| part.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let Some((file, heading)) = target.split_once('#') else { continue };
            let folder = path.parent().unwrap_or(path);
            let page = if file.is_empty() { path.clone() } else { folder.join(file) };
            links += 1;
            let known = page.canonicalize().ok().and_then(|page| anchors.get(&page));
            if !known.is_some_and(|known| known.contains(heading)) {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(links > 50, "the links were not found: {links}");
    check("a link does not lead to a heading", &broken);
}

/// Returns a line of prose without the parts that may be long: code between backticks, and targets
/// of links.
fn prose(line: &str) -> String {
    let mut kept = String::new();
    for (number, part) in line.split('`').enumerate() {
        kept.push_str(if number % 2 == 0 { part } else { "`" });
    }
    let mut parts = kept.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Returns true if a sentence ends before the end of the line. Sentences in parentheses may share
/// one.
fn has_two_sentences(line: &str) -> bool {
    let mut depth = 0;
    let bytes = line.as_bytes();
    bytes.windows(3).enumerate().any(|(at, three)| {
        depth += i32::from(three[0] == b'(') - i32::from(three[0] == b')');
        let ends = three[0] == b'.' && three[1] == b' ' && three[2].is_ascii_uppercase();
        let begins = at.checked_sub(1).and_then(|before| bytes.get(before));
        ends && depth == 0 && begins.is_some_and(u8::is_ascii_lowercase)
    })
}

#[test]
fn prose_has_one_sentence_a_line_and_no_line_is_long() {
    const LONGEST: usize = 200;
    let (mut broken, mut lines) = (Vec::new(), 0);
    for (path, text) in pages() {
        let mut is_block = false;
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            if start.starts_with("```") {
                is_block = !is_block;
            }
            if is_block || start.starts_with(['|', '#', '`']) || line.starts_with("    ") {
                continue;
            }
            lines += 1;
            let prose = prose(line);
            if prose.chars().count() > LONGEST || has_two_sentences(&prose) {
                broken.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(lines > 1000, "the lines were not found: {lines}");
    check("one sentence a line, and at most 200 characters besides code and links", &broken);
}

#[test]
fn code_and_links_do_not_make_a_line_long() {
    assert_eq!(prose("a `b c` [d](e.md#f), g"), "a ` [d], g");
    assert!(has_two_sentences("One ends. Two begins."));
    assert!(!has_two_sentences("One (it has. Two) ends."));
}

/// Nobody finds a page that the index does not name. Runbooks have their own index.
#[test]
fn every_page_is_in_the_index() {
    let docs = root().join("docs");
    let index = read(&docs.join("README.md"));
    let kinds = ["tutorial", "how-to", "reference", "explanation", "internal"];
    let missing: Vec<String> = files(&["md"])
        .iter()
        .filter_map(|path| path.strip_prefix(&docs).ok())
        .filter(|page| {
            page.components().count() == 2 && kinds.iter().any(|kind| page.starts_with(kind))
        })
        .map(|page| page.display().to_string())
        .filter(|page| !index.contains(&format!("]({page}")))
        .collect();
    check("docs/README.md does not name these pages", &missing);
}
