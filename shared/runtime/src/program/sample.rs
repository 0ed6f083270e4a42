//! A small program for the tests of this crate.

use std::{sync::Arc, time::Duration};

use ccm_base::duration;
use ccm_cloud::Capability;
use serde::Serialize;

use super::{Context, Failure, Identity, Need, Program};
use crate::{
    metrics::Metrics,
    rights::Right,
    settings::{Invocation, Kind, LoadError, Loaded, Problems, RawSettings, SettingDoc, load},
};

/// The node controller's settings and nothing else of it.
#[derive(Debug)]
pub(crate) struct Sample;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SampleSettings {
    pub(crate) syncs: u32,
    #[serde(serialize_with = "duration::serialize")]
    pub(crate) period: Duration,
    pub(crate) page_size: u32,
}

const TABLE: &[SettingDoc] = &[
    SettingDoc {
        flag: "concurrent-node-syncs",
        kind: Kind::Count,
        default: "32",
        meaning: "Nodes worked on at once.",
        live: true,
    },
    SettingDoc {
        flag: "node-status-update-frequency",
        kind: Kind::Duration,
        default: "5m0s",
        meaning: "Time between two lists of the cloud's machines.",
        live: true,
    },
    SettingDoc {
        flag: "page-size",
        kind: Kind::Count,
        default: "500",
        meaning: "Objects per page.",
        live: false,
    },
];

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

    fn documentation() -> &'static [SettingDoc] {
        TABLE
    }

    fn settings(layers: &RawSettings, problems: &mut Problems) -> Option<SampleSettings> {
        let at_least_one = |number: &u32| *number >= 1;
        let syncs =
            layers.checked("concurrent-node-syncs", "must be at least 1", problems, at_least_one);
        let period = layers.checked(
            "node-status-update-frequency",
            "must be at least 1s",
            problems,
            |period| *period >= Duration::from_secs(1),
        );
        let page_size = layers.checked("page-size", "must be at least 1", problems, at_least_one);
        Some(SampleSettings { syncs: syncs?, period: period?, page_size: page_size? })
    }

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
    load(&invocation)
}
