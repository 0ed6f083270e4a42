//! What the terminal shows: a line for each step, with the time it took.

use std::{
    fmt::Display,
    future::Future,
    io::{Stdout, Write as _},
};

use anyhow::Result;
use tokio::time::Instant;

/// The teller.
pub struct Story {
    terminal: Stdout,
    start: Instant,
    steps: usize,
    failures: usize,
}

impl Story {
    /// Nothing told yet.
    pub fn new() -> Self {
        Self { terminal: std::io::stdout(), start: Instant::now(), steps: 0, failures: 0 }
    }

    /// How many steps have failed.
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Begins a chapter.
    pub fn chapter(&self, title: &str) {
        self.line(&format!("\n== {title}"));
    }

    /// Says something between the steps.
    pub fn say(&self, text: impl Display) {
        self.line(&format!("         {text}"));
    }

    /// Does one step and tells how it went. A failed step is told and counted; the
    /// story goes on, so that one run shows all that is broken.
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

    /// Tells of an error with its causes, and counts it.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.failures += 1;
        for cause in error.chain() {
            self.line(&format!("               {cause}"));
        }
    }

    /// How it all went.
    pub fn summary(&self) {
        let outcome =
            if self.failures == 0 { "all as it should be" } else { "NOT as it should be" };
        self.line(&format!("\n{} steps, {} failed: {outcome}", self.steps, self.failures));
    }

    fn line(&self, text: &str) {
        // A closed terminal is no reason to fail: the story is also the check.
        writeln!(self.terminal.lock(), "{text}").ok();
    }
}
