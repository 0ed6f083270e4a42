//! The terminal output: one line for each step, with its duration.

use std::{
    fmt::Display,
    future::Future,
    io::{Stdout, Write as _},
};

use anyhow::Result;
use terminal_size::{Width, terminal_size};
use tokio::time::Instant;

/// The terminal output.
pub struct Output {
    terminal: Stdout,
    start: Instant,
    steps: usize,
    failures: usize,
}

impl Output {
    /// Creates an output without steps.
    pub fn new() -> Self {
        Self { terminal: std::io::stdout(), start: Instant::now(), steps: 0, failures: 0 }
    }

    /// Returns the number of failed steps.
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Begins a chapter.
    pub fn chapter(&self, title: &str) {
        self.line(&format!("\n== {title}"));
    }

    /// Prints text between the steps.
    pub fn say(&self, text: impl Display) {
        self.line(&format!("         {text}"));
    }

    /// Runs one step and prints its result. A failed step is counted; the demo continues, so
    /// that one run shows all failures.
    pub async fn step<T: Display>(&mut self, what: &str, doing: impl Future<Output = Result<T>>) {
        self.steps += 1;
        match doing.await {
            Ok(seen) => self
                .line(&format!("{:7.1}s ok    {what}: {seen}", self.start.elapsed().as_secs_f64())),
            Err(error) => {
                self.line(&format!("{:7.1}s FAIL  {what}", self.start.elapsed().as_secs_f64()));
                self.failed(&error);
            }
        }
    }

    /// Prints an error with its causes, and counts it.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.failures += 1;
        for cause in error.chain() {
            self.line(&format!("               {cause}"));
        }
    }

    /// Prints the overall result.
    pub fn summary(&self) {
        let outcome = if self.failures == 0 { "demo passed" } else { "demo FAILED" };
        self.line(&format!("\n{} steps, {} failed: {outcome}", self.steps, self.failures));
    }

    fn line(&self, text: &str) {
        let width = terminal_size().map_or(usize::MAX, |(Width(width), _)| width.into());
        // A closed terminal does not fail the demo, because the demo is also a test.
        writeln!(self.terminal.lock(), "{}", wrapped(text, width)).ok();
    }
}

/// The column at which a broken line continues: where the text of a step begins.
const INDENT: usize = 15;

/// Returns the text in lines of this width, broken between words. A longer word has a line of its
/// own.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if column > INDENT && column + length > width {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&" ".repeat(INDENT));
            column = INDENT;
        }
        out.push_str(word);
        column += word.chars().count();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_between_words() {
        let text = "    1.0s ok    a node joins: after 3 s, its initialisation included";
        assert_eq!(wrapped(text, usize::MAX), text);
        assert_eq!(wrapped(text, text.len()), text);
        assert_eq!(
            wrapped(text, 40),
            "    1.0s ok    a node joins: after 3 s,\n               its initialisation\n               included"
        );
    }

    #[test]
    fn a_word_without_a_place_is_not_cut() {
        let url = "http://127.0.0.1:10258/readyz?verbose&more";
        assert_eq!(
            wrapped(&format!("         see {url} now"), 30),
            format!("         see {url}\n               now")
        );
    }
}
