//! Mutants: each one breaks a decision of a program. A test that passes with a broken decision does not
//! check the decision.
//!
//! A rule names a file, a part of it and, between `«` and `»`, the expression to replace. All rules are
//! applied to one copy of the sources. Each mutant has a switch that only an environment variable turns
//! on, so that the copy is built once and then tested with one mutant after the other.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// The environment variable with the number of the mutant to turn on.
pub const SWITCH: &str = "QUARTET_MUTANT";

/// Returns the folder of a program or, by the name `ccm-...`, of a crate of the kit.
pub fn folder(package: &str) -> PathBuf {
    match package.strip_prefix("ccm-") {
        Some(name) => Path::new("shared").join(name),
        None => Path::new("bins").join(package),
    }
}

/// The mutants of one program or crate: the file `mutants.toml` in its folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutants {
    /// The test targets that must find them, in the order in which they run: `--lib`, `--test=whole`.
    pub tests: Vec<String>,
    /// Other packages with targets of these names.
    #[serde(default)]
    pub packages: Vec<String>,
    /// The mutants.
    #[serde(rename = "mutant")]
    pub all: Vec<Mutant>,
}

/// One way to break a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The file, relative to the folder of the program.
    pub file: String,
    /// A description of what the mutant breaks.
    pub breaks: String,
    /// A part of the file that occurs once, with the expression between `«` and `»`.
    pub code: String,
    /// The expression that replaces it.
    pub instead: String,
}

impl Mutants {
    /// Reads the mutants of the program in this folder.
    ///
    /// # Errors
    ///
    /// The file does not exist or does not have this format.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("mutants.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("read {}", path.display()))
    }

    /// Returns the sources with all mutants behind their switches, by file.
    ///
    /// # Errors
    ///
    /// The code of a mutant does not occur exactly once in its file, or two mutants overlap.
    pub fn applied(&self, folder: &Path) -> Result<BTreeMap<String, String>> {
        let mut files: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in self.all.iter().enumerate() {
            files.entry(&mutant.file).or_default().push((number, mutant));
        }
        files.entry(ROOT).or_default();
        let mut applied = BTreeMap::new();
        for (file, mutants) in files {
            let path = folder.join(file);
            let source = std::fs::read_to_string(&path);
            let source = source.with_context(|| format!("read {}", path.display()))?;
            let mut text = apply(&mutants, &source)?;
            if file == ROOT {
                text.push_str(SWITCHES);
            }
            applied.insert(file.to_owned(), text);
        }
        Ok(applied)
    }
}

/// The root of a program's crate.
const ROOT: &str = "src/lib.rs";

/// The module that the copy of a program's crate has in addition to its own.
const SWITCHES: &str = r#"
#[allow(missing_docs, reason = "it is in no program that is shipped")]
pub mod mutant {
    pub fn is_on(number: usize) -> bool {
        static SWITCHED: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        let switched = || std::env::var("QUARTET_MUTANT").ok()?.parse().ok();
        *SWITCHED.get_or_init(switched) == Some(number)
    }
}
"#;

/// Returns the source with these numbered mutants behind their switches.
fn apply(mutants: &[(usize, &Mutant)], source: &str) -> Result<String> {
    let mut places = Vec::new();
    for (number, mutant) in mutants {
        places.push((mutant.place(source)?, number, mutant));
    }
    places.sort_by_key(|(place, ..)| place.start);
    let (mut text, mut end) = (String::with_capacity(source.len()), 0);
    for (place, number, mutant) in places {
        ensure!(place.start >= end, "{:?} is about the same code as another mutant", mutant.breaks);
        let expression = source.get(place.clone()).unwrap_or_default();
        text.push_str(source.get(end..place.start).unwrap_or_default());
        let instead = &mutant.instead;
        write!(
            text,
            "(if crate::mutant::is_on({number}) {{ {instead} }} else {{ {expression} }})"
        )?;
        end = place.end;
    }
    text.push_str(source.get(end..).unwrap_or_default());
    Ok(text)
}

impl Mutant {
    /// Returns the position of its expression in the source.
    fn place(&self, source: &str) -> Result<Range<usize>> {
        let mut parts = self.code.split(['«', '»']);
        let (Some(before), Some(expression), Some(after), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            bail!("{:?}: the code has no « and » around an expression", self.breaks);
        };
        let whole = format!("{before}{expression}{after}");
        let mut found = source.match_indices(&whole);
        let (Some((start, _)), None) = (found.next(), found.next()) else {
            let count = source.matches(&whole).count();
            bail!("{:?}: {} has its code {count} times: {whole}", self.breaks, self.file);
        };
        let start = start + before.len();
        Ok(start..start + expression.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(code: &str) -> Mutant {
        Mutant {
            file: "src/plan.rs".to_owned(),
            breaks: "the sum".to_owned(),
            code: code.to_owned(),
            instead: "a - b".to_owned(),
        }
    }

    #[test]
    fn an_expression_is_put_behind_its_switch() {
        let source = "fn sum(a: u8, b: u8) -> u8 { a + b }\n";
        let applied = apply(&[(7, &mutant("-> u8 { «a + b» }"))], source).unwrap();
        let expect = "fn sum(a: u8, b: u8) -> u8 { (if crate::mutant::is_on(7) { a - b } else { a + b }) }\n";
        assert_eq!(applied, expect);
    }

    #[test]
    fn code_that_is_not_there_once_is_refused() {
        let twice = "a + b; a + b";
        for (code, words) in
            [("«a + b»", "2 times"), ("«a * b»", "0 times"), ("a + b", "no « and »")]
        {
            let error = apply(&[(0, &mutant(code))], twice).unwrap_err().to_string();
            assert!(error.contains(words), "{code}: {error}");
        }
        let (one, other) = (mutant("«a + b»;"), mutant("«a + b; a»"));
        let error = apply(&[(0, &one), (1, &other)], twice).unwrap_err().to_string();
        assert!(error.contains("the same code"), "{error}");
    }
}
