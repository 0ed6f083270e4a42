//! The tests of the programs' rights.
//!
//! The roles are always compared with the rights that the code declares. The rest runs with
//! `QUARTET_CLUSTER=real` only: it removes one right at a time, and the program must fail
//! without it. With all of its rights each program runs every scenario on the real API server
//! ([`crate::lanes`]).

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::programs;
use libtest_mimic::{Failed, Trial};

use super::{
    Story,
    account::Account,
    manifest::{Grant, Manifest},
    removal,
};
use crate::{
    cluster::{Kind, repository},
    printed,
    trials::{self, Trials},
};

/// The whole `main` of a test program: the rights of the programs of these stories.
pub fn main(stories: &[Story]) -> Result<ExitCode> {
    let kind = trials::kind()?;
    let trials = Trials::new(kind)?;
    let mut all: Vec<_> =
        stories.iter().map(|story| roles_are_what_the_code_needs(story.program.binary)).collect();
    if kind == Kind::Real {
        for story in stories {
            all.extend(on_real_api_server(&trials, *story)?);
        }
    } else {
        eprintln!("programs with a right less: skipped; `make test-rights` runs them");
    }
    trials.run(all)
}

fn roles_are_what_the_code_needs(program: &'static str) -> Trial {
    Trial::test(format!("{program}::roles_are_what_the_code_needs"), move || {
        let compare = || {
            let (granted, needed) =
                (Manifest::source(program)?.grants()?, printed::rights(program)?);
            let only = |these: Vec<&Grant>| {
                these.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let more = only(granted.difference(&needed).collect());
            ensure!(more.is_empty(), "the manifests grant what the code does not ask for: {more}");
            let less = only(needed.difference(&granted).collect());
            ensure!(less.is_empty(), "the manifests lack what the code asks for: {less}");
            let page = std::fs::read_to_string(repository().join("docs/security.md"))?;
            let told = |grant: &Grant| {
                page.contains(&format!("`{}`", grant.to_string().replace(program, "<program>")))
            };
            let untold = only(granted.iter().filter(|grant| !told(grant)).collect());
            ensure!(untold.is_empty(), "docs/security.md does not say why: {untold}");
            Ok(())
        };
        compare().map_err(|error| Failed::from(format!("{error:?}")))
    })
}

fn on_real_api_server(trials: &Trials, story: Story) -> Result<Vec<Trial>> {
    let program = story.program.binary;
    let mut all = vec![trials.trial(format!("{program}::may_nothing_else"), async |lane| {
        may_nothing_else(lane.account(program)?).await
    })];
    let grants = Manifest::source(program)?.grants()?;
    for grant in &grants {
        let (name, grant) = (format!("{program}::without::{grant}"), grant.clone());
        all.push(trials.trial(name, async move |lane| {
            let account = lane.account(program)?;
            let outcome = removal::is_needed(&lane.env().await?, account, &story, &grant).await;
            account.restore().await.and(outcome)
        }));
    }
    let written = |grant: &Grant| grant.resource == "nodes" && grant.verb == "patch";
    let noticed = grants.into_iter().rfind(written).context("a program that patches no node")?;
    all.push(trials.trial(format!("{program}::goes_on_once_granted"), async move |lane| {
        let account = lane.account(program)?;
        let outcome = removal::is_noticed(&lane.env().await?, account, &story, &noticed).await;
        account.restore().await.and(outcome)
    }));
    Ok(all)
}

/// kustomize makes of the roles what their source says, and the account may not do what
/// would make it worth stealing.
async fn may_nothing_else(account: &Account) -> Result<()> {
    let program = account.program();
    ensure!(
        account.manifest().grants()? == Manifest::source(program)?.grants()?,
        "kustomize makes other rights of the roles than their source has"
    );
    let grant = |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| Grant {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let leases = "coordination.k8s.io";
    let mut forbidden = vec![
        grant("get", "", "secrets", "kube-system", "cloud-config"),
        grant("list", "", "secrets", "", ""),
        grant("get", "", "configmaps", "kube-system", ""),
        grant("list", "", "pods", "", ""),
        grant("create", "", "serviceaccounts", "kube-system", ""),
        grant("patch", "rbac.authorization.k8s.io", "clusterroles", "", program),
        grant("create", "", "nodes", "", ""),
        grant("update", "", "nodes", "", "node-1"),
        grant("get", leases, "leases", "kube-system", "kube-controller-manager"),
        grant("patch", leases, "leases", "kube-node-lease", "node-1"),
        grant("delete", leases, "leases", "kube-system", program),
        grant("create", "", "events", "kube-public", ""),
        grant("patch", "", "events", "kube-system", ""),
    ];
    for other in programs::shipped().map(|other| other.binary).filter(|other| *other != program) {
        forbidden.push(grant("patch", leases, "leases", "kube-system", other));
    }
    if program == "node-ccm" {
        forbidden.push(grant("delete", "", "nodes", "", "node-1"));
    }
    for grant in forbidden {
        ensure!(!account.may(&grant).await?, "{program} may {grant}");
    }
    Ok(())
}
