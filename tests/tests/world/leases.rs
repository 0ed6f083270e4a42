//! Leases beside other Leases and other requests.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use ccm_tests::scenarios::{Env, NODE_AGENT, SOON, with_short_terms};

/// The API server serves each request for a Lease at the priority level `leader-election`, and
/// every other request in the program's own flow.
pub(super) async fn are_served_at_a_level_of_their_own(env: Env) -> Result<()> {
    let before = dispatched(&env).await?;
    let program = env.start(&with_short_terms(env.node_ccm())).await?;
    env.add_node("node-1").await?;
    env.initialised("node-1").await?;
    poll::until("renewals", SOON, || async { Ok((writes(&env).await?.len() > 4).then_some(())) })
        .await?;
    program.terminate().await?;
    let verbs = writes(&env).await?;
    ensure!(verbs.iter().all(|verb| verb == "create" || verb == "update"), "{verbs:?}");

    let leases = env.requests(NODE_AGENT).await?.into_iter().filter(|request| {
        request.resource == "leases" && ["get", "create", "update"].contains(&&*request.verb)
    });
    let leases = leases.count();
    let after = dispatched(&env).await?;
    let served = |flow: &str| {
        let of = |all: &BTreeMap<String, usize>| all.get(flow).copied().unwrap_or_default();
        of(&after) - of(&before)
    };
    let first = served("system-leader-election leader-election");
    ensure!(first == leases, "{first} of {leases} requests were served at leader-election");
    let others =
        (served("node-ccm workload-high"), served("kube-system-service-accounts workload-high"));
    ensure!(
        others.0 > 0 && others.1 == 0,
        "of the other requests by our flow, by the common one: {others:?}"
    );
    eprintln!("{leases} requests for the Lease at leader-election, {} others", others.0);
    Ok(())
}

/// Returns the verbs of the program's writes of its Lease.
async fn writes(env: &Env) -> Result<Vec<String>> {
    let all = env.requests(NODE_AGENT).await?.into_iter();
    let writes = all.filter(|request| request.resource == "leases" && request.is_write());
    Ok(writes.map(|request| request.verb).collect())
}

/// Returns the number of requests that the API server has served, by FlowSchema and priority level.
async fn dispatched(env: &Env) -> Result<BTreeMap<String, usize>> {
    let page = env.client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let lines = page.lines();
    lines
        .filter_map(|line| line.strip_prefix("apiserver_flowcontrol_dispatched_requests_total{"))
        .map(|line| {
            let (labels, count) = line.rsplit_once("} ").with_context(|| line.to_owned())?;
            let label = |name: &str| {
                let value = labels.split_once(&format!("{name}=\""))?.1.split_once('"')?.0;
                Some(value.to_owned())
            };
            let flow = [label("flow_schema"), label("priority_level")];
            let flow: Option<Vec<_>> = flow.into_iter().collect();
            Ok((flow.with_context(|| line.to_owned())?.join(" "), count.parse()?))
        })
        .collect()
}

/// Two programs got the same Lease: the program that cannot do anything is not ready and says why.
pub(super) async fn are_not_shared_by_two_programs(env: Env) -> Result<()> {
    let shared = "--leader-elect-resource-name=shared";
    let leader = env.start(&env.node_ccm().arg(shared)).await?;
    let other = env.start_only(&env.lifecycle_ccm().arg(shared))?;
    let why = "the Lease kube-system/shared is held by another program, node-ccm: ";
    let line = format!("[-]lease failed: {why}");
    poll::until("the page to name the other program", SOON, || async {
        let Ok((status, page)) = other.get("/readyz?verbose").await else { return Ok(None) };
        Ok((status != 200 && page.contains(&line)).then_some(()))
    })
    .await
    .with_context(|| other.log())?;
    ensure!(other.get("/livez").await?.0 == 200, "a restart would not help");
    let metric = "ccm_leader_election_lease_of_other_program{";
    poll::until("the metric to show it", SOON, || async {
        Ok((other.metric(metric).await? > 0.5 && other.log().contains(why)).then_some(()))
    })
    .await?;
    ensure!(leader.metric(metric).await? < 0.5, "the leader's Lease is its own");
    let lines = other.log().matches(why).count();
    ensure!(lines == 1, "{lines} lines:\n{}", other.log());

    leader.terminate().await?;
    other.leading(SOON).await?;
    poll::until("readiness of the new leader", SOON, || async {
        Ok((other.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await
}

/// A program does not lead beside another one of its kind that leads by another Lease, and takes
/// over when that one has ended.
pub(super) async fn of_one_program_have_one_leader(env: Env) -> Result<()> {
    let first = env.start(&with_short_terms(env.node_ccm())).await?;
    let other = || with_short_terms(env.node_ccm().arg("--leader-elect-resource-name=other"));
    let mut second = env.start_only(&other())?;
    second.ready().await?;
    let line = "[!]rivals: waits, and does not compete for its Lease: another node-ccm leads: ";
    poll::until("the page to name the leader", Duration::from_mins(1), || async {
        let (_, page) = second.get("/readyz?verbose").await?;
        Ok((page.contains(line) && page.contains("renews the Lease node-ccm; ")).then_some(()))
    })
    .await
    .with_context(|| second.log())?;
    ensure!(!second.leads().await? && first.leads().await?, "one leads");
    let allowed = other().arg("--allow-other-leaders").arg("--leader-elect-resource-name=third");
    let third = env.start(&allowed).await?;
    ensure!(third.leads().await?, "it may lead beside the other one");
    third.terminate().await?;
    first.terminate().await?;
    second.leading(Duration::from_mins(2)).await
}
