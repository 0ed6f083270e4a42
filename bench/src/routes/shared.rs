//! Measures a router that another cluster and people use as well.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use ccm_cloud::{ClusterId, Owner, RouteTarget};
use ccm_sim::{
    cloud::routes::{RouteWriteKind, SimRoute},
    poll,
};
use ccm_tests::nodes;

use super::{Arena, add_nodes, available, burst, cloud, finish, start};

const NODES: usize = 200;
/// Routes of another cluster, and of people, inside our cluster CIDRs.
const OTHERS: u8 = 100;

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!(
        "\n-- route-ccm on a router with {OTHERS} routes of another cluster and {OTHERS} of people inside of --cluster-cidr"
    );
    for records in [true, false] {
        shared(arena, records).await?;
    }
    Ok(())
}

async fn shared(arena: &Arena, records: bool) -> Result<()> {
    cloud(arena, NODES, |settings| settings.records_owner = records);
    let router = arena.served.cloud().router();
    for number in 0..2 * OTHERS {
        let address = IpAddr::from(Ipv4Addr::new(192, 0, 2, number));
        router.add_port(address);
        let destination = format!("10.127.{number}.0/24").parse()?;
        let id = format!("of-others-{number}");
        let mut route = SimRoute::foreign(id, destination, RouteTarget::Address(address));
        route.owner = (records && number < OTHERS).then(|| Owner {
            cluster: ClusterId { name: "kubernetes".to_owned(), uid: "another".to_owned() },
            uid: number.to_string(),
            namespace: String::new(),
            name: format!("node-{number:05}"),
        });
        router.add(route);
    }
    let others = || {
        let mut all = router.all();
        all.retain(|route| route.id.starts_with("of-others"));
        all
    };
    let before = others();
    router.reset_writes();
    add_nodes(arena, NODES).await?;
    let program = start(arena, &["--route-reconciliation-period=10s"]).await?;
    available(arena, NODES).await?;
    for name in burst::names(10) {
        nodes::delete(&arena.client, &name).await?;
    }
    let counted = "ccm_route_routes{kind=\"foreign\"}";
    poll::until("the routes of ten nodes to go", super::LIMIT, || async {
        let is_done = router.written(RouteWriteKind::Delete) >= 10;
        let is_counted = program.metric(counted).await? >= f64::from(2 * OTHERS);
        Ok((is_done && is_counted).then_some(()))
    })
    .await?;
    println!(
        "owners {}: routes of others {} (wanted: unchanged), {} counted (wanted: {}); ours: {} made, {} deleted",
        if records { "recorded" } else { "not recorded" },
        if others() == before { "as before" } else { "CHANGED" },
        program.metric(counted).await?,
        2 * OTHERS,
        router.written(RouteWriteKind::Create),
        router.written(RouteWriteKind::Delete),
    );
    for number in 0..2 * OTHERS {
        router.remove_port(IpAddr::from(Ipv4Addr::new(192, 0, 2, number)));
    }
    finish(arena, program).await
}
