//! What is to be said about the files, all of it at once.

use std::{mem, path::Path};

use ccm_base::message::{LONGEST_LINE, one_line};
/// Collects warnings and problems; each names the file that is being read.
#[derive(Debug, Default)]
pub(super) struct Notes {
    file: String,
    warnings: Vec<String>,
    problems: Vec<(String, String)>,
}

impl Notes {
    /// From now on, notes are about this file. Returns the one of before.
    pub(super) fn about(&mut self, file: &Path) -> String {
        mem::replace(&mut self.file, file.display().to_string())
    }

    /// Something is odd, and the program runs.
    pub(super) fn warning(&mut self, what: String) {
        let what = format!("{}: {}", self.file, one_line(&what, LONGEST_LINE));
        if !self.warnings.contains(&what) {
            self.warnings.push(what);
        }
    }

    /// The program cannot run like this.
    pub(super) fn problem(&mut self, what: String) {
        let problem = (self.file.clone(), one_line(&what, LONGEST_LINE));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// The warnings, or all problems in one line.
    pub(super) fn into_result(self) -> Result<Vec<String>, String> {
        if self.problems.is_empty() {
            return Ok(self.warnings);
        }
        let (mut line, mut file) = (String::new(), String::new());
        for (of, what) in self.problems {
            if !line.is_empty() {
                line.push_str("; ");
            }
            // The file's name once is enough for all that follows it.
            if of != file {
                line = line + &of + ": ";
                file = of;
            }
            line.push_str(&what);
        }
        // Often what is odd is why something is missing: a misspelt key.
        for warning in self.warnings {
            line = line + "; also " + &warning;
        }
        Err(line)
    }
}
