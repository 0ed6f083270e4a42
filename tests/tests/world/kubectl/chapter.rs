//! Reads chapters, and compares the output with their expectations.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

/// One file of steps.
pub struct Chapter {
    /// The file's name without its ending.
    pub name: String,
    /// The simulated API server cannot do this.
    pub real_only: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs a command to its end.
    Run,
    /// Starts a command that continues.
    Start,
    /// Compares the output of the started command, and ends it.
    End,
}

/// A command and what must come of it.
#[derive(Debug)]
pub struct Step {
    /// The line of the file that it begins on.
    pub line: usize,
    /// The kind.
    pub action: Action,
    /// The arguments, without the program.
    pub arguments: Vec<String>,
    /// Standard input.
    pub input: String,
    /// The lines that standard output must have.
    pub output: Vec<String>,
    /// The lines that standard error must have.
    pub errors: Vec<String>,
    /// The exit code.
    pub code: i32,
}

impl Chapter {
    /// Reads a chapter. An error names the line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut chapter = Self { name, real_only: false, steps: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            chapter
                .line(index + 1, line)
                .with_context(|| format!("{}:{}: {line}", path.display(), index + 1))?;
        }
        Ok(chapter)
    }

    fn line(&mut self, number: usize, line: &str) -> Result<()> {
        let Some(mark) = line.chars().next() else { return Ok(()) };
        let rest = line.get(1..).unwrap_or_default();
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        let action = match mark {
            '#' => return Ok(()),
            '@' if rest == "real" => {
                self.real_only = true;
                return Ok(());
            }
            '$' => Action::Run,
            '&' => Action::Start,
            '.' => Action::End,
            _ => return self.detail(mark, rest),
        };
        let mut arguments = words(rest)?;
        if action != Action::End {
            anyhow::ensure!(arguments.first().is_some_and(|program| program == "kubectl"));
            arguments.remove(0);
        }
        self.steps.push(Step {
            line: number,
            action,
            arguments,
            input: String::new(),
            output: Vec::new(),
            errors: Vec::new(),
            code: 0,
        });
        Ok(())
    }

    fn detail(&mut self, mark: char, rest: &str) -> Result<()> {
        let step = self.steps.last_mut().context("belongs to no command")?;
        match mark {
            '|' => {
                step.input.push_str(rest);
                step.input.push('\n');
            }
            '>' => step.output.push(rest.to_owned()),
            '!' => step.errors.push(rest.to_owned()),
            '?' => step.code = rest.parse()?,
            _ => bail!("begins with none of $ & . | > ! ? # @"),
        }
        Ok(())
    }
}

/// Splits into words between blanks; single quotes keep blanks.
fn words(line: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                begun = true;
            }
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            letter => {
                word.push(letter);
                begun = true;
            }
        }
    }
    anyhow::ensure!(!quoted, "a quote is not closed");
    if begun {
        words.push(word);
    }
    Ok(words)
}

/// Returns true if these lines match the expected ones.
pub fn fits(expected: &[String], actual: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return actual.is_empty() };
    if first == "..." {
        return (0..=actual.len()).any(|skipped| fits(rest, &actual[skipped..]));
    }
    actual
        .split_first()
        .is_some_and(|(line, below)| fits_line(&plain(first), &plain(line)) && fits(rest, below))
}

/// Returns the text with each run of blanks as one blank.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn fits_line(pattern: &str, line: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    (0..=rest.len()).filter_map(|at| rest.get(at..)).any(|rest| fits_line(after, rest))
}
