//! One wrong setting at a time: the load balancers of all Services stay, with most of their members.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::{Launch, Program};
use http::Method;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    openstack::{
        Service,
        admin::Account,
        balancing::{
            BALANCERS, Shown, add_node, delete_all, have_member, id_of, members, provisioned,
            quick, service,
        },
        rig::{OTHER_REGION, Rig, SOON},
    },
    services,
};

const SERVICES: usize = 4;
const NODES: usize = 8;
/// How many members may leave a load balancer: 10 %, and at least 3.
const LOSS: usize = 3;
/// How long each setting is wrong: some lists, and some changes of members.
const WHILE: Duration = Duration::from_secs(40);
/// A taint that all nodes have.
const TAINT: &str = "example.com/everywhere";

/// A wrong setting, and the metric that says that something is held because of it.
struct Wrong {
    what: &'static str,
    argument: Option<&'static str>,
    held: Option<&'static str>,
}

const WRONG: [Wrong; 6] = [
    Wrong { what: PROJECT, argument: None, held: Some("ccm_cloud_identity_changed") },
    Wrong { what: REGION, argument: None, held: Some("ccm_cloud_identity_changed") },
    Wrong { what: SELECTOR, argument: None, held: Some("ccm_service_members_held") },
    Wrong {
        what: "classes",
        argument: Some("--serve-classless-services=false"),
        held: Some("ccm_service_releases_held"),
    },
    Wrong {
        what: "cluster UID",
        argument: Some("--cluster-uid=0f0f0f0f-0000-4000-8000-000000000000"),
        held: None,
    },
    Wrong {
        what: "scale-down taint",
        argument: Some("--scale-down-taints=example.com/everywhere"),
        held: Some("ccm_service_members_held"),
    },
];

const PROJECT: &str = "project";
const REGION: &str = "region";
const SELECTOR: &str = "node-selector";

pub(super) async fn one_wrong_setting_changes_no_load_balancer(rig: &Rig) -> Result<()> {
    rig.cloud.operator.name_region(OTHER_REGION).await?;
    rig.balance().await?;
    let nodes = add_tainted_nodes(rig).await?;
    let names: Vec<String> = (0..SERVICES).map(|number| format!("steady-{number}")).collect();
    let program = rig.start(&quick(rig)).await?;
    let mut balancers = BTreeMap::new();
    for name in &names {
        services::create(&rig.client, &service(name, 1)).await?;
    }
    for name in &names {
        services::address(&rig.client, name, 3 * SOON).await?;
        provisioned(rig, name, 3 * SOON).await?;
        balancers.insert(name.clone(), id_of(rig, name).await?);
    }
    are_whole(rig, &balancers, &nodes, &program).await?;
    drop(program);
    let shown = Shown::watch(rig);
    for wrong in &WRONG {
        let mark = rig.cloud.proxy.log().mark();
        let program = rig.start(&launch(rig, wrong).await?).await?;
        sleep(WHILE).await;
        let why = || format!("{}: {}", wrong.what, program.log());
        let fewest = see(rig, &balancers, mark).await.with_context(why)?;
        ensure!(fewest + LOSS >= NODES, "{}: {fewest} members are left", wrong.what);
        if let Some(held) = wrong.held {
            let held = program.metric(held).await?;
            ensure!(held > 0.5, "nothing is said to be held: {}", why());
        }
        eprintln!(
            "wrong {}: {SERVICES} load balancers stay, each with at least {fewest} of {NODES} members",
            wrong.what
        );
        drop(program);
        rig.log_in_as(&Account::of("k8s"))?;
        rig.balance().await?;
        let program = rig.start(&quick(rig)).await?;
        are_whole(rig, &balancers, &nodes, &program).await.with_context(|| wrong.what)?;
    }
    shown.never_changed()?;
    let program = rig.start(&quick(rig)).await?;
    delete_all(rig, &names, 3 * SOON).await.with_context(|| program.log())?;
    rig.cloud.operator.forget_region(OTHER_REGION).await
}

async fn add_tainted_nodes(rig: &Rig) -> Result<Vec<String>> {
    let api = Api::<k8s_openapi::api::core::v1::Node>::all(rig.client.clone());
    let taints = json!({"spec": {"taints": [{"key": TAINT, "effect": "PreferNoSchedule"}]}});
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        let name = add_node(rig, number).await?;
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&taints)).await?;
        nodes.push(name);
    }
    Ok(nodes)
}

/// Writes the wrong configuration, and returns the program with the wrong argument.
async fn launch(rig: &Rig, wrong: &Wrong) -> Result<Launch> {
    match wrong.what {
        PROJECT => {
            rig.log_in_as(&Account::of("other"))?;
            rig.balance().await?;
        }
        REGION => {
            let auth_url = rig.cloud.proxy.auth_url()?;
            rig.log_in_at(&auth_url, OTHER_REGION, &Account::of("k8s"))?;
            rig.balance().await?;
        }
        SELECTOR => {
            rig.log_in_as(&Account::of("k8s"))?;
            rig.balance_with("node-selector = pool=egde\n").await?;
        }
        _ => {}
    }
    let launch = quick(rig);
    Ok(match wrong.argument {
        Some(argument) => launch.arg(argument),
        None => launch,
    })
}

/// Fails if a load balancer was made, deleted or replaced since the mark. Returns the lowest number of
/// members that a pool has.
async fn see(rig: &Rig, balancers: &BTreeMap<String, String>, mark: usize) -> Result<usize> {
    for request in rig.cloud.proxy.log().since(mark) {
        let is_about =
            request.service == Service::LoadBalancer && request.path.starts_with(BALANCERS);
        let is_change = request.method == Method::POST || request.method == Method::DELETE;
        ensure!(!is_about || !is_change, "{} {}", request.method, request.path);
    }
    let mut fewest = NODES;
    for (name, before) in balancers {
        ensure!(id_of(rig, name).await? == *before, "{name} has another load balancer");
        let pools = members(rig, before).await?;
        ensure!(!pools.is_empty(), "{name} has no pool");
        fewest = pools.iter().map(std::collections::BTreeSet::len).fold(fewest, usize::min);
    }
    Ok(fewest)
}

/// Waits until each load balancer has all nodes as members.
async fn are_whole(
    rig: &Rig,
    balancers: &BTreeMap<String, String>,
    nodes: &[String],
    program: &Program,
) -> Result<()> {
    let ids: Vec<String> = balancers.values().cloned().collect();
    for node in nodes {
        have_member(rig, &ids, node, 4 * SOON).await.with_context(|| program.log())?;
    }
    Ok(())
}
