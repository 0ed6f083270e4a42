//! Rules of this repository that the compiler does not check.

use std::{
    fs,
    path::{Path, PathBuf},
};

use walkdir::WalkDir;

pub(super) fn root() -> PathBuf {
    ccm_tests::cluster::repository()
}

/// Returns the files that belong to the project, by their ending.
pub(super) fn files(endings: &[&str]) -> Vec<PathBuf> {
    let skipped = ["target", ".git", "node_modules"];
    let walk = WalkDir::new(root()).into_iter().filter_entry(move |entry| {
        !entry.file_name().to_str().is_some_and(|name| skipped.contains(&name))
    });
    walk.flatten()
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .filter(|path| {
            path.extension()
                .and_then(|ending| ending.to_str())
                .is_some_and(|ending| endings.contains(&ending))
        })
        .collect()
}

pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with every broken place at once.
pub(super) fn check(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn source_files_stay_short() {
    let broken: Vec<_> = files(&["rs", "sh", "py"])
        .iter()
        .map(|path| (path, read(path).lines().count()))
        .filter(|(_, lines)| *lines > 500)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    check("a file has at most 500 lines; split it by the purpose of its parts", &broken);
}

/// The folders of the decisions and of the memory, which are pure in every program.
const PURE: [&str; 8] = [
    "plan",
    "policy",
    "machine",
    "networks",
    "routes/plan",
    "routes/machine",
    "node_ipam/ipam",
    "node_ipam/machine",
];

/// Returns the folders of `bins/` that hold a controller.
fn programs() -> Vec<String> {
    let folders = fs::read_dir(root().join("bins")).into_iter().flatten().flatten();
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with("-ccm")).collect()
}

const CONTRACT: &[&str] = &[
    "kube::",
    "k8s_openapi",
    "tokio::",
    "hyper::",
    "ccm_kube",
    "ccm_runtime",
    "ccm_providers",
    "ccm_sim",
];
const PROVIDERS: &[&str] = &["ccm_kube", "ccm_runtime", "ccm_sim", "kube::", "k8s_openapi"];
const DECISIONS: &[&str] =
    &["kube::", "ccm_kube", "tokio", "async ", "clock::", "ccm_runtime", "ccm_controller"];
const PROGRAMS: &[&str] = &["ccm_sim", "k8s_openapi", "use kube::", "ObjectApi"];
// These get the time as a value of tokio's clock.
const TIMED: &[&str] = &["kube::", "ccm_kube", "async ", "clock::", "ccm_runtime"];

/// Forbidden imports of the shared crates.
const SHARED: [(&str, &[&str]); 16] = [
    (
        "shared/net/src",
        &["kube::", "ccm_kube", "ccm_cloud", "ccm_runtime", "ccm_providers", "ccm_sim"],
    ),
    ("shared/cloud/src", CONTRACT),
    (
        "shared/settings/src",
        &["kube::", "ccm_kube", "ccm_cloud", "ccm_runtime", "ccm_providers", "ccm_sim"],
    ),
    ("shared/kube/src", &["ccm_runtime", "ccm_providers", "ccm_sim", "kube_leader_election"]),
    ("shared/runtime/src", &["ccm_providers", "ccm_sim"]),
    ("shared/external/src", PROVIDERS),
    ("shared/external-server/src", PROVIDERS),
    ("shared/openstack/src", PROVIDERS),
    (
        "shared/openstack-client/src",
        &[
            "ccm_kube",
            "ccm_objects",
            "ccm_runtime",
            "ccm_sim",
            "kube::",
            "k8s_openapi",
            "kubernetes",
            "Kubernetes",
            "kubelet",
        ],
    ),
    ("tests/sim/src", &["ccm_kube", "ccm_runtime", "kube::", "k8s_openapi"]),
    (
        "tests/contract/src",
        &["ccm_providers", "ccm_sim", "ccm_kube", "ccm_runtime", "kube::", "k8s_openapi"],
    ),
    ("shared/controller/src", &["ccm_providers", "ccm_sim"]),
    ("shared/controller/src/brake", &["kube::", "tokio", "async ", "clock::", "ccm_runtime"]),
    ("shared/controller/src/batch_size", TIMED),
    (
        "shared/controller/src/identity",
        &["kube::", "ccm_kube", "tokio", "async ", "clock::", "ccm_runtime"],
    ),
    ("shared/controller/src/repeats", TIMED),
];

/// Returns the forbidden imports: the arrows of ARCHITECTURE.md.
fn bans() -> Vec<(String, &'static [&'static str])> {
    let mut bans: Vec<_> =
        SHARED.into_iter().map(|(folder, words)| (folder.to_owned(), words)).collect();
    assert!(!programs().is_empty(), "the programs were not found");
    for program in programs() {
        let source = format!("bins/{program}/src");
        let decided = PURE.map(|pure| format!("{source}/{pure}"));
        let is_there = |folder: &String| {
            let folder = root().join(folder);
            folder.is_dir() || folder.with_extension("rs").is_file()
        };
        assert!(decided.iter().any(is_there), "{program} has none of the folders {PURE:?}");
        bans.extend(decided.map(|folder| (folder, DECISIONS)));
        bans.push((source, PROGRAMS));
    }
    bans
}

/// Parts of otherwise forbidden crates that decisions and memories may use: decisions themselves,
/// and plain values.
const VALUES: [&str; 13] = [
    "ccm_controller::brake",
    "ccm_controller::identity",
    "ccm_controller::machine",
    "ccm_controller::queue::LONG_RETRY",
    "ccm_controller::queue::Pace",
    "ccm_controller::queue::Priority",
    "ccm_controller::record::Recorded",
    "ccm_controller::repeats",
    "ccm_kube::ApiError",
    "ccm_kube::selector",
    "ccm_runtime::health::Verdict",
    "ccm_runtime::explain",
    "ccm_runtime::plans",
];

fn is_value(name: &str) -> bool {
    VALUES.iter().any(|value| {
        let is_longer = |rest: &str| rest.starts_with(|it: char| it.is_alphanumeric() || it == '_');
        name.split_once(value).is_some_and(|(_, rest)| !is_longer(rest))
    })
}

/// Returns the lines of a file with their numbers. An import is one line.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        match statements.last_mut().filter(|_| is_open) {
            Some((_, import)) => import.push_str(line),
            None => statements.push((number, line.to_owned())),
        }
        let begins = line.starts_with("use ") || line.starts_with("pub use ");
        is_open = (is_open || begins) && !line.contains(';');
    }
    statements
}

/// Returns the paths that an import names.
fn expanded(import: &str) -> Vec<String> {
    let Some((start, rest)) = import.split_once('{') else { return vec![import.to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in inner.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match parts.last_mut().filter(|_| letter != ',' || depth > 0) {
            Some(part) => part.push(letter),
            None => parts.push(String::new()),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expanded(&format!("{start}{part}"))).collect()
}

#[test]
fn arrows_point_down_only() {
    let mut broken = Vec::new();
    for (folder, words) in bans() {
        let folder = root().join(folder);
        let planned =
            |path: &Path| path.starts_with(&folder) || path == folder.with_extension("rs");
        for path in files(&["rs"]).iter().filter(|path| planned(path)) {
            for (number, code) in statements(&read(path)) {
                let is_import =
                    ["use ", "pub use ", "async "].iter().any(|it| code.starts_with(it));
                let names: Vec<String> =
                    if is_import { expanded(&code) } else { vec![code.clone()] };
                for name in names.iter().filter(|name| !is_value(name)) {
                    let banned = words.iter().find(|word| {
                        name.contains(**word)
                            && (is_import || !code.starts_with("//"))
                            && mentions(name, word)
                    });
                    if let Some(word) = banned {
                        broken.push(format!("{}:{number}: {word}", path.display()));
                    }
                }
            }
        }
    }
    check("a module names something that its layer must not know", &broken);
}

/// Returns true if `word` is a whole path in `code` and not the end of another one (`ccm_kube::`
/// holds `kube::`).
fn mentions(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

#[test]
fn only_leadership_writes_leases() {
    let allowed = root().join("shared/runtime/src/leadership");
    let broken: Vec<_> = files(&["rs"])
        .into_iter()
        .filter(|path| {
            path.starts_with(root().join("shared/runtime")) || path.starts_with(root().join("bins"))
        })
        .filter(|path| {
            !path.starts_with(&allowed)
                && *path != allowed.with_extension("rs")
                && !path.components().any(|part| part.as_os_str() == "tests")
        })
        .filter(|path| read(path).contains("kube_leader_election"))
        .map(|path| path.display().to_string())
        .collect();
    check("only shared/runtime's leadership module uses the election library", &broken);
}

#[test]
fn one_version_of_k8s_openapi() {
    let lock: toml::Table = read(&root().join("Cargo.lock")).parse().expect("Cargo.lock is TOML");
    let packages =
        lock.get("package").and_then(toml::Value::as_array).expect("Cargo.lock lists packages");
    let versions: Vec<_> = packages
        .iter()
        .filter(|package| package.get("name").and_then(toml::Value::as_str) == Some("k8s-openapi"))
        .filter_map(|package| package.get("version").and_then(toml::Value::as_str))
        .collect();
    assert_eq!(
        versions.len(),
        1,
        "two k8s-openapi ({versions:?}) do not build: see the note in Cargo.toml"
    );
}

#[test]
fn nothing_is_left_undone_or_silenced_without_a_reason() {
    // The words are put together here, so that this file does not find itself.
    let marks = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["unimplemented", "!"].concat(),
        ["todo", "!"].concat(),
    ];
    let silencers =
        [["#[", "allow("].concat(), ["#[", "ignore"].concat(), ["#![", "allow("].concat()];
    let mut broken = Vec::new();
    for path in files(&["rs"]) {
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            let place = || format!("{}:{}: {}", path.display(), number + 1, line.trim());
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                broken.push(place());
            }
            let reason_follows =
                || text.lines().skip(number).take(4).any(|line| line.contains("reason"));
            if silencers.iter().any(|mark| line.trim_start().starts_with(mark.as_str()))
                && !reason_follows()
            {
                broken.push(place());
            }
        }
    }
    check("finish it, or give the reason", &broken);
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for path in files(&["md"]) {
        let text = read(&path);
        let folder = path.parent().expect("a file has a folder");
        for part in text.split("](").skip(1) {
            let Some(target) = part.split(')').next() else { continue };
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere =
                target.contains("://") || target.starts_with("mailto:") || file.is_empty();
            if !elsewhere && !folder.join(file).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    check("a link leads nowhere", &broken);
}

#[test]
fn the_project_speaks_of_itself_only() {
    let words = [
        ["/wo", "rk/"].concat(),
        ["../sha", "red"].concat(),
        [".lib", "rary"].concat(),
        ["/tmp", "/q"].concat(),
        ["crates", ".io"].concat(),
    ];
    let mut broken = Vec::new();
    for path in files(&["rs", "md", "toml", "sh", "proto", "yaml"]) {
        // The path from a page or a manifest to the project's own folder is not a path of a
        // machine.
        let depth = path.strip_prefix(root()).map_or(0, |path| path.components().count() - 1);
        let own =
            ["](", "= \""].map(|start| format!("{start}{}sha{}", "../".repeat(depth), "red/"));
        for (number, line) in read(&path).lines().enumerate() {
            let own = own.iter().filter(|_| depth > 0);
            let line = own.fold(line.to_owned(), |line, own| line.replace(own, ""));
            if words.iter().any(|word| line.contains(word.as_str())) {
                broken.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    check("no paths of a machine and no hosts of a registry", &broken);
}
