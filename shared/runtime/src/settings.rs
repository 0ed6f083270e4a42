//! The settings of a process: the common ones, and the program's own.

mod common;
mod controllers;
mod foreign;
mod rates;

#[cfg(test)]
mod command_line_tests;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use ccm_kube::selector::NodeSelector;
use ccm_objects::label_rules;
use ccm_settings::{
    AboutProgram, Catalogue, Invocation, LoadError, RawSettings, Schema, SettingValue as _,
    checked, parsed,
};
use serde::Serialize;

pub use common::{CloudSettings, CommonSettings, ElectionSettings, KubeSettings, LONGEST_LEASE};
pub use rates::per_second;

use crate::identity::{COMMIT, Controller, Identity, VERSION};

/// The common settings, and the settings of one program.
#[derive(Clone, Serialize)]
pub struct Settings<S> {
    /// The common settings.
    pub common: Arc<CommonSettings>,
    /// The program's own settings.
    #[serde(rename = "program")]
    pub own: Arc<S>,
}

/// The settings of a process, read once.
pub type Loaded<S> = ccm_settings::Loaded<Settings<S>>;

/// Returns all settings of a program; its own settings come first.
pub(crate) fn catalogue<S: Schema>(identity: &Identity) -> Catalogue {
    let about = AboutProgram {
        binary: identity.binary,
        summary: identity.summary(),
        version: VERSION,
        commit: COMMIT,
    };
    let own = [(identity.binary, S::TABLE)];
    Catalogue::new(about, own.into_iter().chain(common::SECTIONS), foreign::all())
        .with_default("secure-port", identity.port.to_string())
        .with_default("leader-elect-resource-name", identity.binary)
}

/// Reads all layers for a process with these cloud providers. An empty list accepts any.
pub(crate) fn load<S: Schema + 'static>(
    identity: Identity,
    providers: Vec<String>,
    invocation: &Invocation,
) -> Result<Loaded<S>, LoadError> {
    ccm_settings::load(catalogue::<S>(&identity), invocation, move |raw, problems| {
        let common = CommonSettings::read(raw, &identity, &providers, problems);
        let own = S::read(raw, problems);
        Some(Settings { common: Arc::new(common?), own: Arc::new(own?) })
    })
}

/// Returns true if `--controllers` enables this controller: for programs that run several.
pub fn enables(raw: &RawSettings, controller: Controller) -> bool {
    let list = raw.value("controllers").and_then(|value| Vec::parse(&value.text).ok());
    controllers::enables(&list.unwrap_or_default(), controller)
}

/// Reads the keys of taints, for instance of `--scale-down-taints`. A key with a value or an effect
/// would match no taint.
pub fn taint_keys(text: &str, _: &str) -> Result<Vec<String>, String> {
    let keys = Vec::<String>::parse(text)?;
    match keys.iter().find(|key| label_rules::check_key(key).is_err()) {
        None => Ok(keys),
        Some(key) => Err(format!(
            "must be keys of taints, without value and effect, such as example.com/leaves; {key:?} is not one"
        )),
    }
}

/// Reads `--node-selector`, the label selector of the nodes that a controller serves. Empty selects
/// all.
pub fn node_selector(text: &str, default: &str) -> Result<NodeSelector, String> {
    match text {
        "" => Ok(NodeSelector::default()),
        text => parsed(text, default),
    }
}

/// Reads `--cloud-call-timeout`, the longest time for one call to the cloud. Each controller
/// declares it, because its meaning differs; the valid values are the same.
pub fn cloud_call_timeout(text: &str, default: &str) -> Result<Duration, String> {
    let bounds = Duration::from_secs(1)..=Duration::from_mins(10);
    checked("must be from 1s to 10m0s", |time| bounds.contains(time))(text, default)
}
