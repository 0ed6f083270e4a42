//! The command line: upstream's flag names and habits.

mod catalogue;
mod command;
pub mod controllers;
mod foreign;
mod markdown;
#[cfg(test)]
mod tests;

pub(crate) use catalogue::{Catalogue, Entry, Known};
pub use command::{Action, CommandLine, UsageError};
pub(crate) use command::{SPECIAL, parse};
pub(crate) use foreign::Foreign;
pub use markdown::options_markdown;
