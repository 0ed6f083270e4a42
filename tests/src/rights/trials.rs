//! The tests of a program's rights.
//!
//! The roles are always compared with the rights that the code declares. The rest runs only with
//! `QUARTET_CLUSTER=real`: it removes one right at a time, and the program must fail without it.
//! With all of its rights each program runs every scenario on the real API server
//! ([`crate::lanes`]).

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use ccm_runtime::{program::Identity, programs};
use libtest_mimic::Trial;

use super::{
    account::Account,
    confined,
    manifest::{Grant, Manifest},
    policy, removal,
};
use crate::{
    cluster::{Kind, repository},
    printed,
    suite::Work,
    trials::Trials,
};

/// The API group of the rights that the policy of `manifests/guard` asks for.
const GUARD: &str = "quartet.dev";

/// Returns the tests of this program, which needs each of its rights for this work.
pub fn trials(trials: &Trials, program: Identity, work: Work) -> Result<Vec<Trial>> {
    let binary = program.binary;
    let mut all = vec![trials.alone("rights::roles_grant_what_the_code_needs", async move || {
        roles_grant_what_the_code_needs(binary)
    })];
    if trials.kind == Kind::Real {
        all.extend(on_real_api_server(trials, binary, work)?);
    } else {
        eprintln!("{binary} with one right less: skipped; `make test-rights` runs it");
    }
    Ok(all)
}

fn roles_grant_what_the_code_needs(program: &'static str) -> Result<()> {
    let (granted, needed) = (Manifest::source(program)?.grants()?, printed::rights(program)?);
    let only =
        |these: Vec<&Grant>| these.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let more = only(granted.difference(&needed).collect());
    ensure!(more.is_empty(), "the manifests grant what the code does not ask for: {more}");
    let less = only(needed.difference(&granted).collect());
    ensure!(less.is_empty(), "the manifests lack what the code asks for: {less}");
    let page = std::fs::read_to_string(repository().join("docs/reference/rights.md"))?;
    let is_explained = |grant: &Grant| {
        page.contains(&format!("`{}`", grant.to_string().replace(program, "<program>")))
    };
    let missing = only(granted.iter().filter(|grant| !is_explained(grant)).collect());
    ensure!(missing.is_empty(), "docs/reference/rights.md does not say why: {missing}");
    Ok(())
}

fn on_real_api_server(trials: &Trials, program: &'static str, work: Work) -> Result<Vec<Trial>> {
    let mut all = vec![trials.trial("rights::may_do_nothing_else", async move |lane| {
        may_do_nothing_else(lane.account(program)?).await
    })];
    all.push(trials.trial("rights::the_policy_confines_the_account", async move |lane| {
        let admin = lane.cluster().client().await?;
        confined::by_its_policy(&admin, lane.account(program)?).await
    }));
    let grants = Manifest::source(program)?.grants()?;
    for grant in grants.iter().filter(|grant| !grant.is_optional()) {
        let (name, grant) = (format!("rights::without::{grant}"), grant.clone());
        all.push(trials.trial(name, async move |lane| {
            let account = lane.account(program)?;
            let outcome = removal::is_needed(&lane.env().await?, account, &work, &grant).await;
            account.restore().await.and(outcome)
        }));
    }
    let writes = |grant: &Grant| {
        grant.is_of_work() && !["get", "list", "watch"].contains(&grant.verb.as_str())
    };
    // A program that does not write anything notices it only by its own review.
    if let Some(write) = grants.iter().rfind(|grant| writes(grant)).cloned() {
        all.extend(of_policies(trials, program, work, (&grants, &write)));
        all.push(trials.trial("rights::goes_on_once_granted", async move |lane| {
            let account = lane.account(program)?;
            let outcome = removal::is_noticed(&lane.env().await?, account, &work, &write).await;
            account.restore().await.and(outcome)
        }));
    }
    Ok(all)
}

/// Returns the tests with an admission policy that belongs to another version, is missing, or
/// cannot be seen.
fn of_policies(
    trials: &Trials,
    program: &'static str,
    work: Work,
    (grants, write): (&BTreeSet<Grant>, &Grant),
) -> Vec<Trial> {
    let older = write.clone();
    let older = trials.trial("rights::an_older_policy_is_named", async move |lane| {
        let account = lane.account(program)?;
        let outcome =
            policy::an_older_one_is_named(&lane.env().await?, account, &work, &older).await;
        account.restore().await.and(outcome)
    });
    let none = write.clone();
    let none = trials.trial("rights::works_without_a_policy_and_says_so", async move |lane| {
        let account = lane.account(program)?;
        let outcome = policy::none_is_said(&lane.env().await?, account, &work, &none).await;
        account.restore().await.and(outcome)
    });
    let optional = grants.iter().filter(|grant| grant.is_optional()).map(|grant| {
        let (name, both) = (format!("rights::without::{grant}"), (grant.clone(), write.clone()));
        trials.trial(name, async move |lane| {
            let (account, env) = (lane.account(program)?, lane.env().await?);
            let both = (&both.0, &both.1);
            let outcome = policy::a_missing_right_is_said(&env, account, &work, both).await;
            account.restore().await.and(outcome)
        })
    });
    [older, none].into_iter().chain(optional).collect()
}

/// kustomize makes the roles that their source describes, and the account may not do anything that
/// would make it worth stealing.
async fn may_do_nothing_else(account: &Account) -> Result<()> {
    let program = account.program();
    let granted = account.manifest().grants()?;
    ensure!(
        granted == Manifest::source(program)?.grants()?,
        "the roles that kustomize makes have other rights than their source"
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
        grant("update", leases, "leases", "kube-node-lease", "node-1"),
        grant("delete", leases, "leases", "kube-system", program),
    ];
    if !granted.contains(&grant("create", "", "events", "", "")) {
        forbidden.push(grant("create", "", "events", "kube-public", ""));
        forbidden.push(grant("patch", "", "events", "kube-system", ""));
    }
    for other in programs::shipped().map(|other| other.binary).filter(|other| *other != program) {
        forbidden.push(grant("update", leases, "leases", "kube-system", other));
        forbidden.push(grant("mark", GUARD, "leases", "kube-system", other));
    }
    for resource in ["nodes", "services"] {
        if !granted.contains(&grant("mark", GUARD, resource, "", "")) {
            forbidden.push(grant("mark", GUARD, resource, "default", "web"));
        }
        forbidden.push(grant("mark-own", GUARD, resource, "", "node-1"));
    }
    if !granted.contains(&grant("delete", "", "nodes", "", "")) {
        forbidden.push(grant("delete", "", "nodes", "", "node-1"));
    }
    for grant in forbidden {
        ensure!(!account.may(&grant).await?, "{program} may {grant}");
    }
    Ok(())
}
