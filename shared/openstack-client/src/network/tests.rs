//! Floating IPs, subnets and external networks on a scripted Neutron.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ErrorKind::{Conflict, Forbidden, Invalid, NotFound, QuotaExceeded};
use FloatingIps::{Address, Ports, Tags};
use serde_json::{Value, json};

use super::*;
use crate::{
    api::Deletion,
    scripted::{Scripted, answer, port, subnet, uuid},
};

const PUBLIC: usize = 88;

struct Rig {
    cloud: Arc<Scripted>,
    neutron: Neutron,
}

impl Rig {
    /// Creates two ports, an external network with a subnet that is not shown, and one with a
    /// subnet that is.
    fn new() -> Self {
        let cloud = Arc::new(Scripted::with_servers(0..2));
        {
            let mut world = cloud.world.lock();
            world.networks = vec![
                json!({ "id": uuid(77), "name": "k8s", "router:external": false, "subnets": [uuid(1)] }),
                json!({ "id": uuid(PUBLIC), "name": "public", "router:external": true, "subnets": [uuid(9)] }),
                json!({ "id": uuid(89), "name": "old", "router:external": true, "subnets": [uuid(2)] }),
            ];
            let mut old = subnet(2, "fd00::/64");
            old["network_id"] = json!(uuid(89));
            world.subnets = vec![subnet(1, "10.0.0.0/16"), old];
        }
        Self { neutron: Neutron::new(Arc::clone(&cloud) as Arc<dyn Api>), cloud }
    }

    async fn made(&self, more: Value) -> Result<FloatingIp, CloudError> {
        let mut body = json!({ "floating_network_id": uuid(PUBLIC), "description": "d" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.neutron.create_floating_ip(body, call()).await
    }

    async fn listed(&self, which: FloatingIps<'_>) -> Vec<String> {
        let listed = self.neutron.floating_ips(which, call()).await.unwrap();
        listed.into_iter().map(|ip| ip.id).collect()
    }
}

fn call() -> Call {
    Call::waiting(Duration::from_secs(10))
}

fn id(row: &Value) -> String {
    row["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn floating_ips_are_made_found_moved_and_deleted() {
    let rig = Rig::new();
    let [first, second] = [id(&port(0)), id(&port(1))];
    let one = rig.made(json!({ "port_id": first })).await.unwrap();
    assert_eq!(one.fixed_address, Some("10.0.0.1".parse().unwrap()));
    let two = rig.made(json!({ "description": "other" })).await.unwrap();
    assert_eq!((two.port_id.as_deref(), &*two.description), (None, "other"));
    let tags = ["cluster=1".to_owned(), "service=2".to_owned()];
    rig.neutron.tag_floating_ip(&one.id, &tags, call()).await.unwrap();
    let all = [one.id.clone(), two.id.clone()];
    for (which, expect) in [
        (Ports(&[first.clone(), second.clone()]), &all[..1]),
        (Ports(std::slice::from_ref(&second)), &[]),
        (Ports(&[]), &[]),
        (Address(two.address), &all[1..]),
        (Tags(&["cluster=1", "service=2"]), &all[..1]),
        (Tags(&["cluster=1", "service=3"]), &[]),
    ] {
        assert_eq!(rig.listed(which).await, expect, "{which:?}");
    }
    // The revision is from before its tags.
    let stale = rig.neutron.update_floating_ip(&one, None, call()).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::Busy, "{stale}");
    let one = rig.neutron.floating_ips(Address(one.address), call()).await.unwrap().remove(0);
    assert_eq!(one.tags, tags);
    let free = rig.neutron.update_floating_ip(&one, None, call()).await.unwrap().unwrap();
    assert_eq!((free.port_id.as_deref(), free.fixed_address), (None, None));
    let missing = rig.neutron.update_floating_ip(&free, Some(&uuid(5)), call()).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound, "the port, not the floating IP: {missing}");
    let moved = rig.neutron.update_floating_ip(&free, Some(&second), call()).await.unwrap();
    assert_eq!(moved.unwrap().port_id.as_deref(), Some(&*second));
    let twice = rig.made(json!({ "port_id": second })).await.unwrap_err();
    assert_eq!(twice.kind, ErrorKind::Conflict, "{twice}");
    let outcome = rig.neutron.delete_floating_ip(&one.id, call()).await.unwrap();
    assert_eq!(outcome, Deletion::Accepted);
    let again = rig.neutron.delete_floating_ip(&one.id, call()).await.unwrap();
    assert!(matches!(again, Deletion::Gone { request_id: Some(_) }));
    let gone = rig.neutron.update_floating_ip(&one, None, call()).await.unwrap();
    assert_eq!(gone, None);
    let error = rig.neutron.tag_floating_ip(&one.id, &tags, call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_deletion_is_done_only_by_the_answer_that_neutron_gives() {
    let rig = Rig::new();
    rig.cloud.fail(|_, _| Some(Ok(answer(200, &json!({})))));
    let error = rig.neutron.delete_floating_ip(&uuid(1), call()).await.unwrap_err();
    assert!(error.maybe_done && error.kind == ErrorKind::Malformed, "{error}");
}

#[tokio::test]
async fn a_floating_ip_that_cannot_be_had_says_why() {
    let rig = Rig::new();
    let check = async |more: Value, kind, words: &str| {
        let error = rig.made(more).await.unwrap_err();
        assert!(error.kind == kind && error.message.contains(words), "{words}: {error}");
        assert!(!error.maybe_done, "{error}");
        error
    };
    check(json!({ "floating_network_id": uuid(5) }), NotFound, "Network").await;
    check(json!({ "floating_network_id": uuid(77) }), Invalid, "not a valid external network")
        .await;
    check(json!({ "subnet_id": uuid(5) }), NotFound, "Subnet").await;
    check(json!({ "port_id": uuid(5) }), NotFound, "Port").await;
    check(json!({ "tags": ["a"] }), Invalid, "Attribute 'tags' not allowed").await;
    let wished = json!({ "floating_ip_address": "172.24.9.9" });
    check(wished.clone(), Forbidden, "disallowed by policy").await;
    rig.cloud.world.lock().floating.may_choose = true;
    rig.made(wished.clone()).await.unwrap();
    check(wished, Conflict, "already allocated").await;
    rig.cloud.world.lock().floating.room = 1;
    let full = check(json!({}), QuotaExceeded, "No more IP addresses").await;
    assert_eq!(full.subject, Some(format!("addresses of network {}", uuid(PUBLIC))));
    rig.cloud.world.lock().floating.quota = 1;
    let quota = check(json!({}), QuotaExceeded, "Quota exceeded").await;
    assert_eq!(quota.subject.as_deref(), Some("floatingip"));
}

#[tokio::test]
async fn a_floating_ip_may_be_there_though_its_answer_is_not() {
    let rig = Rig::new();
    rig.cloud.lose_answers(|request| request.operation == "floating_ip_create");
    assert!(rig.made(json!({})).await.unwrap_err().maybe_done);
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
    let rig = Rig::new();
    rig.cloud.fail(|_, _| Some(Ok(answer(201, &json!({ "floatingip": { "id": "x" } })))));
    let error = rig.made(json!({})).await.unwrap_err();
    assert!(error.maybe_done && error.kind == ErrorKind::Malformed, "{error}");
}

/// A skipped row would count as missing, and another object would be created.
#[tokio::test]
async fn a_malformed_row_fails_the_list() {
    let rig = Rig::new();
    rig.made(json!({ "port_id": id(&port(0)) })).await.unwrap();
    {
        let mut world = rig.cloud.world.lock();
        world.floating.ips[0]["floating_ip_address"] = json!("somewhere");
        world.subnets[0]["ip_version"] = json!("four");
        world.ports[0]["fixed_ips"][0]["subnet_id"] = json!(7);
    }
    let addresses = ["10.0.0.1".parse().unwrap()].into();
    for error in [
        rig.neutron
            .floating_ips(FloatingIps::Ports(&[id(&port(0))]), call())
            .await
            .map(drop)
            .unwrap_err(),
        rig.neutron.subnets_of(&uuid(77), call()).await.map(drop).unwrap_err(),
        rig.neutron.subnet(&uuid(1), call()).await.map(drop).unwrap_err(),
        rig.neutron.ports_of_addresses(&addresses, call()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
    }
    assert!(rig.cloud.world.lock().calls.iter().any(|(_, path)| path.contains("floatingips")));
}

#[tokio::test]
async fn places_are_found() {
    let rig = Rig::new();
    let external = rig.neutron.external_networks(call()).await.unwrap();
    let ids: Vec<_> = external.iter().map(|network| &*network.id).collect();
    assert_eq!(ids, [uuid(PUBLIC), uuid(89)]);
    assert_eq!(external[0].subnets, [uuid(9)]);
    let unseen = rig.neutron.subnets_of(&external[0].id, call()).await.unwrap();
    assert_eq!(unseen, [], "the project may not see it");
    let seen = rig.neutron.subnets_of(&external[1].id, call()).await.unwrap();
    assert_eq!((seen[0].ip_version, &*seen[0].cidr), (6, "fd00::/64"));
    let own = rig.neutron.subnet(&uuid(1), call()).await.unwrap().unwrap();
    assert_eq!(own.network_id, uuid(77));
    assert_eq!(rig.neutron.subnet(&uuid(5), call()).await.unwrap(), None);
    let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap()].into();
    let ports = rig.neutron.ports_of_addresses(&addresses, call()).await.unwrap();
    assert_eq!(ports.len(), 1);
    let owner_and_subnet = (&*ports[0].device_owner, &*ports[0].fixed_ips[0].subnet_id);
    assert_eq!(owner_and_subnet, ("compute:zone 1", "s"));
    assert!(rig.neutron.ports_of_addresses(&BTreeSet::new(), call()).await.unwrap().is_empty());
}

#[test]
fn an_object_without_an_id_is_malformed() {
    let ip = |id: &str| {
        let answer = json!({"id": id, "floating_ip_address": "192.0.2.1", "port_id": null, "floating_network_id": "n"});
        serde_json::from_value::<FloatingIp>(answer)
            .map(|ip| ip.id)
            .map_err(|error| error.to_string())
    };
    assert_eq!(ip("5"), Ok("5".to_owned()));
    assert_eq!(ip(""), Err("the ID is empty".to_owned()));
}

/// Answers a request about a collection of Neutron with an entry and a next page, without end.
fn endless(cloud: &Scripted, key: &'static str, entry: Value) {
    let next = AtomicUsize::new(0);
    cloud.fail(move |path, _| {
        let mut entry = entry.clone();
        entry["id"] = json!(uuid(next.fetch_add(1, Ordering::Relaxed)));
        let links = format!("{key}_links");
        let page = json!({ key: [entry], links: [{ "rel": "next" }] });
        path.starts_with(&format!("/{key}")).then(|| Ok(answer(200, &page)))
    });
}

#[tokio::test]
async fn what_is_kept_of_a_list_takes_a_bounded_memory() {
    let ips = vec![json!({}); 300_000];
    for (entry, what) in [
        (json!({ "name": "n".repeat(3 << 20) }), "long"),
        // Each element has three bytes in the text, and dozens in memory.
        (json!({ "fixed_ips": ips }), "many elements"),
    ] {
        let rig = Rig::new();
        endless(&rig.cloud, "ports", entry);
        let servers = [ServerId::parse(&uuid(1)).unwrap()].into();
        let error = rig.neutron.ports_of(&servers, call()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert_eq!(error.message, "port_list: the list takes more than 32 MiB of memory", "{what}");
    }
}
