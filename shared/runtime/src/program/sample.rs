//! A small program for the tests of this crate.

use std::{sync::Arc, time::Duration};

use ccm_base::duration;
use ccm_cloud::Capability;
use ccm_settings::{Invocation, LoadError, checked};
use serde::Serialize;

use super::{Context, Failure, Identity, Loaded, Need, Program, load};
use crate::{metrics::Metrics, rights::Right};

/// The node controller's settings and nothing else of it.
#[derive(Debug)]
pub(crate) struct Sample;

ccm_settings::settings! {
    /// Its settings.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub(crate) struct SampleSettings {
        /// Nodes worked on at once.
        pub(crate) syncs: u32 = live(Count, "concurrent-node-syncs", "32"), at_least_one;
        /// Time between two lists of the cloud's machines.
        #[serde(serialize_with = "duration::serialize")]
        pub(crate) period: Duration = live(Duration, "node-status-update-frequency", "5m0s"),
            checked("must be at least 1s", |period| *period >= Duration::from_secs(1));
        /// Objects per page.
        pub(crate) page_size: u32 = fixed(Count, "page-size", "500"), at_least_one;
    }
}

fn at_least_one(text: &str, default: &str) -> Result<u32, String> {
    checked("must be at least 1", |number| *number >= 1)(text, default)
}

impl Program for Sample {
    const IDENTITY: Identity = Identity {
        binary: "node-ccm",
        controller: "cloud-node-controller",
        alias: "cloud-node",
        lease: "node-ccm",
        port: 10258,
        event_component: "cloud-node-controller",
    };
    type Settings = SampleSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::Instances)]
    }

    fn specimens(_: &Metrics) {}

    fn rights() -> Vec<Right> {
        vec![Right::new("list", "nodes"), Right::new("watch", "nodes")]
    }

    async fn prepare(_: Context<Self>) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn lead(self: Arc<Self>, _: Context<Self>) {}

    async fn drain(&self) {}
}

/// Settings from arguments, environment variables and the text of a file `ccm.yaml`.
pub(crate) fn sample(
    arguments: &[&str],
    environment: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Loaded<Sample>, LoadError> {
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
    load::<Sample>(&invocation)
}
