//! A sample of a program's own settings, for the tests of this crate.

use std::time::Duration;

use ccm_base::duration;
use ccm_settings::{Invocation, LoadError, checked};
use serde::Serialize;

use super::{Loaded, load};
use crate::{identity::Identity, programs};

/// The program of these settings.
pub(crate) const IDENTITY: Identity = programs::NODE_CCM;

ccm_settings::settings! {
    /// The settings.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub(crate) struct SampleSettings {
        /// Nodes worked on at once.
        pub(crate) syncs: u32 = live(Count, "concurrent-node-syncs", "32"), at_least_one;
        /// Time between two lists of the cloud's machines.
        #[serde(serialize_with = "duration::serialize")]
        pub(crate) period: Duration = live(Duration, "node-status-update-frequency", "5m0s"),
            checked("must be at least 1s", |period| *period >= Duration::from_secs(1));
        /// Nodes that may be deleted.
        pub(crate) deletions: String = live(Limit, "deletions", "10%");
        /// Objects per page.
        pub(crate) page_size: u32 = fixed(Count, "page-size", "500"), at_least_one;
    }
}

fn at_least_one(text: &str, default: &str) -> Result<u32, String> {
    checked("must be at least 1", |number| *number >= 1)(text, default)
}

/// Loads settings from arguments, environment variables and the text of a file `ccm.yaml`.
pub(crate) fn sample(
    arguments: &[&str],
    environment: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Loaded<SampleSettings>, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let mut invocation = Invocation::with_arguments(["--cloud-provider=sim"]);
    invocation.arguments.extend(arguments.iter().map(Into::into));
    invocation
        .environment
        .extend(environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    if let Some(text) = file {
        let path = folder.path().join("ccm.yaml");
        std::fs::write(&path, text).unwrap();
        invocation.arguments.push(format!("--config={}", path.display()).into());
    }
    load(IDENTITY, Vec::new(), &invocation)
}
