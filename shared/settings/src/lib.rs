//! Settings as data: flags, keys, environment variables, the reference page, checks and typed
//! values follow from one table. This crate does not depend on any program.
//!
//! ```text
//! settings! { struct .. }  ->  Schema: a table of Settings, and how values become typed
//! tables + foreign flags   ->  Catalogue: every name of a program, --help, the page
//! defaults < file < environment < flags  ->  RawSettings  ->  Loaded
//! defaults < a file with its own keys    ->  RawSettings  ->  Schema::read
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `setting`, `value`, `declare` | a setting as data; how its value is parsed; the macro that declares settings |
//! | `catalogue`, `page` | all names of a program; the reference page |
//! | `command`, `layers`, `raw`, `load` | the command line; the layers and their merge; each value with its origin; loading and reloading |
//! | `yaml`, `unreadable`, `problem` | the bounds of a YAML text; a file that cannot be read; problems, all at once |
//!
//! Each value remembers its layer, so that a problem names the place to fix. All problems are
//! reported at once, and warnings with them. A provider reads its file in its own format and hands
//! over raw values ([`RawSettings::of_file`]); types, checks and problems are the same.

mod catalogue;
mod command;
mod declare;
mod layers;
mod load;
mod page;
mod problem;
mod raw;
mod setting;
mod unreadable;
mod value;
mod yaml;

pub use catalogue::{AboutProgram, Catalogue, CatalogueEntry, Foreign};
pub use command::{Action, CommandLine, UsageError, parse};
pub use declare::Schema;
pub use load::{Changes, Invocation, LoadError, Loaded, configuration_files, load};
pub use page::{keys, markdown};
pub use problem::{Problems, SettingProblem};
pub use raw::{Origin, RawSettings, RawValue};
pub use setting::{Setting, ValueKind};
pub use value::{
    SettingValue, at_least, checked, one_of, parsed, positive, quoted, redact, within,
};
pub use yaml::{Yaml, YamlError};
