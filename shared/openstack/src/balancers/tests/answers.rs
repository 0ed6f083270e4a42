//! Answers: members by port, whether the call changed something, and what it could not see.

use ccm_cloud::{
    Depth, LoadBalancers, Members, MembersSet, Pool, Progress, Protocol, Scope, Traffic, Wanted,
};
use serde_json::json;

use super::rig::{Rig, annotated, changed, member, members, port, wanted};

/// Returns each port with the number of its members.
fn counts(pools: Option<&Vec<Pool>>) -> Option<Vec<(Protocol, u16, usize)>> {
    let count = |pool: &Pool| (pool.protocol, pool.port, pool.members);
    pools.map(|pools| pools.iter().map(count).collect())
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with whole answers")]
fn both(members: usize) -> Option<Vec<(Protocol, u16, usize)>> {
    Some(vec![(Protocol::Tcp, 80, members), (Protocol::Tcp, 443, members)])
}

/// Returns why there are no members. All ports must have the same reason.
fn why(pools: Option<Vec<Pool>>) -> String {
    let pools = pools.unwrap();
    assert!(!pools.is_empty() && pools.iter().all(|pool| pool.members == 0), "{pools:?}");
    let mut all: Vec<_> = pools.into_iter().map(|pool| pool.why_empty.unwrap()).collect();
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Creates a load balancer before there is a node.
async fn empty(rig: &Rig) -> (Wanted, String) {
    let mut web = wanted("web");
    web.members = Members::default();
    let id = rig.created(&web).await;
    assert_eq!((rig.rows("pools").len(), rig.rows("members").len()), (2, 0));
    rig.cloud.operations();
    (web, id)
}

impl Rig {
    /// Creates a load balancer and lists until it is ready, as the controller does. Returns its ID.
    async fn created(&self, wanted: &Wanted) -> String {
        let Ok(Progress::InProgress(waiting)) = self.ensure(wanted).await else { panic!("done") };
        assert!(waiting.changed, "it was made");
        let id = waiting.id.unwrap();
        while self.shown(&id, Depth::Summary).await.phase != ccm_cloud::Phase::Ready {}
        id
    }

    /// Changes members until the call is done.
    async fn set(&self, wanted: &Wanted, id: &str, members: Members) -> MembersSet {
        for _ in 0..20 {
            match self.set_members(wanted, id, members.clone()).await.unwrap() {
                Progress::Done(set) => return set,
                Progress::InProgress(_) => {}
                other => panic!("{other:?}"),
            }
        }
        panic!("20 calls were not enough");
    }

    async fn not_seen(&self, wanted: &Wanted, id: &str, members: Members) -> String {
        match self.set_members(wanted, id, members).await.unwrap() {
            Progress::NotSeen(why) => why,
            other => panic!("it was seen: {other:?}"),
        }
    }
}

/// This process can fill the pools that it has created.
#[tokio::test]
async fn pools_without_members_are_filled_when_a_node_comes() {
    let rig = Rig::new();
    let (web, id) = empty(&rig).await;
    let done = rig.set(&web, &id, members(&[1], &[])).await;
    assert_eq!((counts(done.pools.as_ref()), rig.nodes()), (both(1), vec![1]));
    let mut all = rig.cloud.operations();
    all.retain(|name| *name != "loadbalancer_list");
    let put = "loadbalancer_members_update";
    assert_eq!(all, [put, put, "loadbalancer_status_get"]);
    let ports: Vec<_> =
        rig.rows("members").iter().map(|row| row["protocol_port"].clone()).collect();
    assert_eq!(ports, [30_080, 30_443]);
}

/// Another process does not know the ports and says so. A full comparison fills the pools.
#[tokio::test]
async fn a_pool_whose_port_is_not_known_is_not_done() {
    let rig = Rig::new();
    let (mut web, id) = empty(&rig).await;
    let rig = rig.restarted();
    let why = rig.not_seen(&web, &id, members(&[1], &[])).await;
    assert_eq!(why, "pool 1 of 2 has no member that shows its port");
    assert_eq!(rig.writes(), [""; 0]);
    // If the call names no node, nothing is missing.
    let none = rig.set(&web, &id, members(&[], &[7])).await;
    assert_eq!(none, MembersSet { version: none.version.clone(), changed: false, pools: None });
    web.members = members(&[1], &[]);
    let filled = rig.settle(&web).await;
    assert_eq!((counts(filled.pools.as_ref()), rig.nodes()), (both(1), vec![1]));

    // Another client empties one of the pools. The call changes the other pool first.
    let rig = rig.restarted();
    let first = rig.rows("pools")[0]["id"].clone();
    rig.cloud.world.lock().octavia.members.retain(|row| row["_pool"] != first);
    rig.writes();
    let mut answers = Vec::new();
    for _ in 0..6 {
        match rig.set_members(&web, &id, members(&[1, 2], &[])).await.unwrap() {
            Progress::InProgress(waiting) => answers.push(Some(waiting.changed)),
            Progress::NotSeen(_) => {
                answers.push(None);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answers.first(), Some(&Some(true)));
    assert_eq!(answers.last(), Some(&None), "{answers:?}");
    assert_eq!((rig.writes(), rig.rows("members").len()), (vec!["loadbalancer_members_update"], 2));
    web.members = members(&[1, 2], &[]);
    assert_eq!(counts(rig.settle(&web).await.pools.as_ref()), both(2));
}

/// The caller needs no full look at what was just created.
#[tokio::test]
async fn a_summary_shows_what_was_created_until_it_changes() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.created(&web).await;
    let summary = async || rig.shown(&id, Depth::Summary).await.pools;
    assert_eq!(counts(summary().await.as_ref()), both(3));
    rig.set(&web, &id, members(&[1, 2, 3, 4], &[])).await;
    assert_eq!(summary().await, None);
    let rig = Rig::new();
    let id = rig.created(&web).await;
    rig.settle(&web).await;
    assert_eq!(rig.shown(&id, Depth::Summary).await.pools, None, "it was compared since");
}

#[tokio::test]
async fn members_are_shown_by_port() {
    let rig = Rig::new();
    let web = wanted("web");
    let done = rig.settle(&web).await;
    assert_eq!(counts(done.pools.as_ref()), both(3));
    let set = rig.set(&web, &done.id, members(&[1, 2, 3, 4], &[])).await;
    assert_eq!((counts(set.pools.as_ref()), set.changed), (both(4), false), "it was done before");
    let shown = rig.shown(&done.id, Depth::Members).await;
    assert_eq!(counts(shown.pools.as_ref()), both(4));
    assert_eq!(rig.shown(&done.id, Depth::Summary).await.pools, None);
    // A port without a node port has no members, and no member is missing.
    let more = changed(&web, |it| {
        let bare = ccm_cloud::FrontEndPort { member_port: None, ..port(9, Protocol::Tcp) };
        it.ports = vec![port(80, Protocol::Tcp), port(80, Protocol::Udp), bare];
    });
    let expect = Some(vec![(Protocol::Tcp, 80, 4), (Protocol::Udp, 80, 3)]);
    assert_eq!(counts(rig.settle(&more).await.pools.as_ref()), expect);
    let five = members(&[1, 2, 3, 4, 5], &[]);
    let expect = Some(vec![(Protocol::Tcp, 80, 5), (Protocol::Udp, 80, 5)]);
    assert_eq!(counts(rig.set(&more, &done.id, five.clone()).await.pools.as_ref()), expect);
    // A pool that another client has emptied is shown as empty, and then filled.
    let first = rig.rows("pools")[0]["id"].clone();
    rig.cloud.world.lock().octavia.members.retain(|row| row["_pool"] != first);
    let shown = rig.shown(&done.id, Depth::Members).await.pools.unwrap();
    assert_eq!(shown[0], Pool { why_empty: None, members: 0, ..shown[0].clone() });
    assert_eq!(counts(rig.set(&more, &done.id, five).await.pools.as_ref()), expect);
    // Another process needs a full comparison to learn the ports.
    let rig = rig.restarted();
    let of_all = rig.list(Scope::Cluster, Depth::Members).await;
    assert_eq!((&of_all.load_balancers[0].pools, of_all.load_balancers[0].digest), (&None, None));
}

#[tokio::test]
async fn a_selector_that_leaves_out_all_nodes_is_named() {
    let text = "env=production, region=default";
    let says = |count: usize| {
        format!("node-selector \"env=production, region=default\" matches none of {count} nodes")
    };
    let of_conf = Rig::with(|options| {
        options.networks.subnet_id = Some(ccm_openstack_client::scripted::uuid(1));
        options.load_balancer.node_selector = Some("env=production,region=default".to_owned());
    });
    let of_service = annotated(&wanted("web"), "node-selector", text);
    for (rig, web) in [(of_conf, wanted("web")), (Rig::new(), of_service)] {
        let done = rig.settle(&web).await;
        assert_eq!(why(done.pools), says(3));
        assert_eq!(why(rig.shown(&done.id, Depth::Members).await.pools), says(3));
        let set = rig.set(&web, &done.id, members(&[1, 2], &[])).await;
        assert_eq!((why(set.pools), set.changed), (says(2), false));
        assert_eq!(why(rig.shown(&done.id, Depth::Members).await.pools), says(2));
        // Another process needs a full comparison first.
        let other = rig.restarted();
        other.not_seen(&web, &done.id, members(&[1, 2], &[])).await;
        assert_eq!(why(other.settle(&web).await.pools), says(3));
        assert_eq!(rig.rows("members").len(), 0);
        // A node with these labels becomes a member.
        let mut labelled = member(2);
        let labels = [("env", "production"), ("region", "default")];
        labelled.labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
            .into();
        let two = Members { present: [member(1), labelled].into(), ..Members::default() };
        assert_eq!(counts(rig.set(&web, &done.id, two).await.pools.as_ref()), both(1));
        assert_eq!(rig.nodes(), [2]);
        let shown = rig.shown(&done.id, Depth::Members).await.pools.unwrap();
        assert!(shown.iter().all(|pool| pool.why_empty.is_none()), "{shown:?}");
    }
}

#[tokio::test]
async fn nodes_without_an_address_of_the_family_are_named() {
    let rig = Rig::new();
    let mut web = wanted("web");
    let mut bare = member(1);
    bare.addresses = vec![ccm_cloud::NodeAddress::new(
        ccm_cloud::AddressKind::InternalIp,
        "2001:db8::1".to_owned(),
    )];
    web.members.present = [bare].into();
    let done = rig.settle(&web).await;
    assert_eq!(why(done.pools), "none of 1 nodes has an IPv4 address");
    let selected = annotated(&web, "node-selector", "number");
    let expect = "node-selector \"number\" matches 1 of 1 nodes, 0 with an IPv4 address";
    assert_eq!(why(rig.settle(&selected).await.pools), expect);
}

/// A pool that this process knows by its ID is gone or has another name.
#[tokio::test]
async fn a_pool_that_is_missing_is_not_done() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let four = members(&[1, 2, 3, 4], &[]);
    let first = rig.rows("pools")[0]["id"].clone();
    // The pool has another name. It is still the pool of that port.
    {
        let mut world = rig.cloud.world.lock();
        world.octavia.pools[0]["name"] = json!("mine");
    }
    assert_eq!(counts(rig.set(&web, &id, four.clone()).await.pools.as_ref()), both(4));
    // Another process does not recognize renamed pools.
    let other = rig.restarted();
    {
        let mut world = rig.cloud.world.lock();
        world.octavia.pools[1]["name"] = json!("mine as well");
    }
    let why = other.not_seen(&web, &id, members(&[5], &[])).await;
    assert_eq!(why, format!("load balancer {id} has no pool that is named after it"));
    {
        let mut world = rig.cloud.world.lock();
        let octavia = &mut world.octavia;
        octavia.pools.retain(|row| row["id"] != first);
        octavia.members.retain(|row| row["_pool"] != first);
        for row in octavia.listeners.iter_mut().filter(|row| row["default_pool_id"] == first) {
            row["default_pool_id"] = json!(null);
        }
    }
    let why = rig.not_seen(&web, &id, four).await;
    assert_eq!(why, "TCP port 80 has no pool");
    assert_eq!(
        counts(rig.settle(&web).await.pools.as_ref()),
        Some(vec![(Protocol::Tcp, 80, 3), (Protocol::Tcp, 443, 4),])
    );
}

/// An HTTP monitor checks members at another port: new members must name it.
#[tokio::test]
async fn a_filled_pool_is_checked_at_the_health_port() {
    let rig = Rig::new();
    let local = changed(&annotated(&wanted("web"), "enable-health-monitor", "true"), |it| {
        it.traffic = Traffic::Local { health_check_port: 31_999 };
    });
    let local = Wanted { members: Members::default(), ..local };
    let id = rig.created(&local).await;
    rig.set(&local, &id, members(&[1, 2], &[])).await;
    let rows = rig.rows("members");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["monitor_port"] == 31_999), "{rows:?}");
}

/// The controller learns which labels decide, and each change of one reaches Octavia.
#[tokio::test]
async fn a_node_joins_and_leaves_by_its_label() {
    let labelled = |edges: &[u8]| {
        let mut all = members(&[1, 2, 3], &[]);
        let mut present = all.present.to_vec();
        for (one, number) in present.iter_mut().zip(1..) {
            let pool = if edges.contains(&number) { "edge" } else { "core" };
            one.labels = std::sync::Arc::new([("pool".to_owned(), pool.to_owned())].into());
        }
        all.present = present.into();
        all
    };
    for of_service in [false, true] {
        let rig = Rig::with(|options| {
            options.networks.subnet_id = Some(ccm_openstack_client::scripted::uuid(1));
            options.load_balancer.node_selector =
                Some(if of_service { "pool=core" } else { "pool=edge" }.to_owned());
        });
        let web = wanted("web");
        let mut web = if of_service { annotated(&web, "node-selector", "pool=edge") } else { web };
        web.members = labelled(&[1]);
        let id = rig.settle(&web).await.id;
        assert_eq!(rig.nodes(), [1]);
        let selector = LoadBalancers::selector(&rig.balancers, &web.front_end.settings);
        assert_eq!(selector.terms().collect::<Vec<_>>(), [("pool", Some("edge"))]);
        for edges in [&[1, 2][..], &[2], &[2, 3]] {
            rig.set(&web, &id, labelled(edges)).await;
            assert_eq!(rig.nodes(), edges);
        }
        // Held although its label is gone: the controller names it with the label.
        let mut held = labelled(&[2]);
        let mut present = held.present.to_vec();
        present[2].labels = std::sync::Arc::new(selector.fulfilled(&present[2].labels));
        held.present = present.into();
        rig.set(&web, &id, held).await;
        assert_eq!(rig.nodes(), [2, 3]);
    }
}
