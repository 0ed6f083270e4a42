//! With `--mode=observe` the program decides like a leader, but writes nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::RouteTarget;
use ccm_sim::cloud::routes::SimRoute;
use ccm_tests::{
    nodes,
    scenarios::{
        Env,
        observe::{decided, nothing_written, observe},
    },
};
use serde_json::{Value, json};

use crate::common::{
    add, add_nodes, address, cidr, delete_nodes, name, net, node, quick, reachable, routed, routes,
    shows,
};

/// Returns the due steps of a page: `Kind/name` and the steps' names.
fn steps(page: &Value) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    for plan in page["plans"].as_array().context("the page lists plans")? {
        let object = format!(
            "{}/{}",
            plan["kind"].as_str().unwrap_or_default(),
            plan["name"].as_str().unwrap_or_default()
        );
        let steps = plan["steps"].as_array().context("a plan has steps")?;
        let names: Vec<String> = steps
            .iter()
            .filter(|step| step["held"].is_null())
            .map(|step| step["step"].as_str().unwrap_or_default().to_owned())
            .collect();
        if !names.is_empty() {
            all.insert(object, names);
        }
    }
    Ok(all)
}

pub(crate) async fn an_observer_shows_what_a_leader_does(mut env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| {
        settings.records_owner = true;
        settings.traits.replaces = true;
    });
    // Two nodes have their routes, one of them at a former address. A third node is gone.
    add_nodes(&env, 0..3).await?;
    let leader = env.start(&quick(&env)).await?;
    reachable(&env, 0..3).await?;
    ensure!(leader.terminate().await?.success(), "it ends in order");
    delete_nodes(&env, [2]).await?;
    env.cloud().router().update(net(&cidr(1))?, |route| {
        route.target = Some(RouteTarget::Address(address(&name(2))));
    });
    // Two more nodes have no pod CIDRs, and a foreign node does not concern the program.
    add_nodes(&env, 3..5).await?;
    let port = "10.9.9.9".parse()?;
    env.cloud().router().add_port(port);
    let foreign = RouteTarget::Address(port);
    env.cloud().router().add(SimRoute::foreign("other", net("10.244.200.0/24")?, foreign));
    // One node has its route but no condition, another one never gets a route.
    let target = RouteTarget::Address(address(&name(5)));
    env.cloud().router().add(SimRoute::foreign("there", net(&cidr(5))?, target));
    add_nodes(&env, [5]).await?;
    add(&env, &node("outside", &["192.168.7.0/24"])).await?;
    let before = routes(&env);
    env.cloud().router().reset_writes();
    env.forget_requests().await?;

    let observer = observe(&env, quick(&env)).await?;
    let due = json!({"create": 2, "replace": 1, "delete": 1, "condition": 2});
    let page = decided(&observer, due, json!({})).await?;
    let (create, condition) = (|| vec!["create".to_owned()], || vec!["condition".to_owned()]);
    let expected: BTreeMap<_, _> = [
        (format!("Route/{}", cidr(1)), vec!["replace".to_owned()]),
        (format!("Route/{}", cidr(2)), vec!["delete".to_owned()]),
        (format!("Route/{}", cidr(3)), create()),
        (format!("Route/{}", cidr(4)), create()),
        (format!("NodeCondition/{}", name(5)), condition()),
        ("NodeCondition/outside".to_owned(), condition()),
    ]
    .into();
    let found = steps(&page)?;
    ensure!(found == expected, "{found:#?}");
    nothing_written(&env, &[&observer]).await?;
    ensure!(env.cloud().router().writes().is_empty(), "the cloud was written to");
    ensure!(routes(&env) == before, "{:?}", routes(&env));
    let told = nodes::events(&env.client, &name(3)).await?;
    ensure!(told.is_empty(), "an observer writes no events: {told:?}");

    let _leader = env.start(&quick(&env)).await?;
    reachable(&env, [0, 1, 3, 4, 5]).await?;
    shows(&env, "outside", "True", "NoRouteCreated").await?;
    env.cloud().router().remove(net("10.244.200.0/24")?);
    routed(&env, [0, 1, 3, 4, 5]).await?;
    ensure!(env.cloud().router().writes().len() == 4, "{:?}", env.cloud().router().writes());
    // It lists the table each period, and then sees that everything is done.
    decided(&observer, json!({}), json!({})).await?;
    nothing_written(&env, &[&observer]).await
}
