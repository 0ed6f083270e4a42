//! The settings of a program: layers, one conversion into typed values, and changes
//! while the program runs.
//!
//! Layers, later ones win: defaults, the file of `--config` (YAML, TOML or JSON),
//! environment variables `CCM__...`, flags. Each value remembers its layer, so that a
//! problem says where to mend it; all problems are reported at once.

mod common;
mod controller;
mod doc;
mod layers;
mod load;
mod problem;
mod raw;
mod reload;
mod table;
#[cfg(test)]
mod tests;
mod unreadable;
mod value;

pub use common::{
    CloudSettings, CommonSettings, ElectionSettings, KubeSettings, LOCAL_PAGES, LogFormat,
    LogSettings, Mode, PageSettings, RateSettings, TlsSettings,
};
pub use doc::{Kind, SettingDoc};
pub(crate) use doc::{flag_of, key_of};
pub use load::{Invocation, LoadError, Loaded, load};
pub(crate) use load::{command_line, load_for};
pub use problem::{Problem, Problems};
pub use raw::{Origin, RawSettings, RawValue};
pub(crate) use reload::{ConfigMetrics, Reload};
pub(crate) use table::SECTIONS;
pub use value::SettingValue;
