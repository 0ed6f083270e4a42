//! Problems with the settings: all at once, one line each. Warnings travel with them.

use std::fmt;

use ccm_base::message::{LONGEST_LINE, one_line};

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingProblem {
    /// The setting with its value and origin, or the file, or the flag.
    pub subject: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.rule)
    }
}

/// All problems of one load.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    list: Vec<SettingProblem>,
    warnings: Vec<String>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.list.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl Problems {
    /// Adds a problem.
    pub fn add(&mut self, subject: impl Into<String>, rule: impl Into<String>) {
        self.list.push(SettingProblem { subject: subject.into(), rule: rule.into() });
    }

    /// Adds an existing problem.
    pub(crate) fn push(&mut self, problem: SettingProblem) {
        self.list.push(problem);
    }

    /// Adds a warning: the settings can be used.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = one_line(&warning.into(), LONGEST_LINE);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Returns all warnings.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns all problems in one line, for an error with a single text. The warnings follow: a
    /// misspelt key is often the reason why another key is missing.
    pub fn in_one_line(&self) -> String {
        let short = |problem: &SettingProblem| one_line(&problem.to_string(), LONGEST_LINE);
        let problems = self.list.iter().map(short);
        let warnings = self.warnings.iter().map(|warning| format!("also {warning}"));
        problems.chain(warnings).collect::<Vec<_>>().join("; ")
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all problems.
    pub fn iter(&self) -> impl Iterator<Item = &SettingProblem> {
        self.list.iter()
    }
}
