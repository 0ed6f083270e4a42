//! The terminal output: one line for each step, with its duration.

use std::{
    fmt::Display,
    future::Future,
    io::{Stdout, Write as _},
};

use anyhow::Result;
use tokio::time::Instant;

/// The terminal output.
pub struct Output {
    terminal: Stdout,
    start: Instant,
    steps: usize,
    failures: usize,
}

impl Output {
    /// An output without steps.
    pub fn new() -> Self {
        Self { terminal: std::io::stdout(), start: Instant::now(), steps: 0, failures: 0 }
    }

    /// The number of failed steps.
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

    /// The overall result.
    pub fn summary(&self) {
        let outcome = if self.failures == 0 { "demo passed" } else { "demo FAILED" };
        self.line(&format!("\n{} steps, {} failed: {outcome}", self.steps, self.failures));
    }

    fn line(&self, text: &str) {
        // A closed terminal is no failure: the demo is also a test.
        writeln!(self.terminal.lock(), "{text}").ok();
    }
}
