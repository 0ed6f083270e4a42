//! Each program with exactly the rights that its manifests grant, and with one right less.
//!
//! [`manifest`] reads the roles as the manifests make them, [`account`] makes the service
//! account on a real API server and changes its rights, [`removal`] tells what must go
//! wrong when one is taken away.

pub mod account;
pub mod manifest;
pub mod removal;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use ccm_runtime::{
    program::{Program, load},
    rights::needed,
};
use ccm_settings::Invocation;

use self::manifest::Grant;

/// The programs that have manifests.
pub const PROGRAMS: [&str; 2] = ["node-ccm", "lifecycle-ccm"];

/// What the code of this program says that it needs, with its default settings.
pub fn needed_by(program: &str) -> Result<BTreeSet<Grant>> {
    match program {
        "node-ccm" => of::<node_ccm::NodeCcm>(),
        "lifecycle-ccm" => of::<lifecycle_ccm::LifecycleCcm>(),
        other => anyhow::bail!("{other} is none of {PROGRAMS:?}"),
    }
}

fn of<P: Program>() -> Result<BTreeSet<Grant>> {
    let loaded = load::<P>(&Invocation::with_arguments(["--cloud-provider=external"]))
        .context("the default settings")?;
    Ok(needed(P::rights(), &loaded.common.election).iter().map(Grant::from).collect())
}
