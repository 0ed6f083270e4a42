//! Tests the owners of floating IPs. The provider does not take a floating IP of another owner, and
//! does not delete one that a Service has asked for or keeps.

use ccm_cloud::{ErrorKind, FrontEnd, Owner, Unwanted, Wanted};
use ccm_openstack_client::scripted::uuid;
use serde_json::{Value, json};

use super::rig::{Rig, addresses, annotated, changed, owner, wanted, with};
use crate::balancers::names;

const ADDRESS: &str = "172.24.9.9";
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Returns a free floating IP, and a Service that asks for it.
fn asking(description: &str, tags: &[String]) -> (Rig, Wanted) {
    let rig = Rig::new();
    rig.floating_ip(ADDRESS, description);
    rig.cloud.world.lock().floating.ips[0]["tags"] = json!(tags);
    (rig, asks("web"))
}

fn asks(name: &str) -> Wanted {
    changed(&wanted(name), |it| it.address = ADDRESS.parse().ok())
}

/// Returns an earlier Service with this name.
fn earlier(name: &str) -> Owner {
    Owner { uid: format!("uid-of-earlier-{name}"), ..owner(name) }
}

fn ip(rig: &Rig) -> Value {
    let world = rig.cloud.world.lock();
    let ip = world.floating.ips.iter().find(|ip| ip["floating_ip_address"] == ADDRESS);
    ip.cloned().unwrap_or_default()
}

/// Returns true if the floating IP outlives the deletion and is not attached.
async fn outlives(rig: &Rig, unwanted: &Unwanted) -> bool {
    rig.deleted(unwanted).await;
    ip(rig)["port_id"] == Value::Null && ip(rig)["id"].is_string()
}

#[tokio::test]
async fn one_of_another_owner_is_not_taken() {
    let mut elsewhere = owner("web");
    elsewhere.cluster.uid = "c-2".to_owned();
    let mut namesake = owner("web");
    namesake.cluster.name = "staging".to_owned();
    let mut neighbour = owner("web");
    neighbour.namespace = "other".to_owned();
    let tags = |owner: &Owner| names::owner_tags(owner).to_vec();
    let cluster = |owner: &Owner| vec![names::owner_tags(owner)[0].clone()];
    for (description, tags, whose) in [
        (names::floating(&owner("bank")), tags(&owner("bank")), "Service default/bank"),
        // A person has changed the description.
        ("mine".to_owned(), tags(&owner("bank")), "the Service with UID uid-bank"),
        // Another cluster with the same names, and the same cluster before it was rebuilt.
        (names::floating(&elsewhere), tags(&elsewhere), "the cluster with UID c-2"),
        ("mine".to_owned(), cluster(&elsewhere), "the cluster with UID c-2"),
        // openstack-cloud-controller-manager sets no tags.
        (names::floating(&owner("bank")), vec![], "Service default/bank of cluster prod"),
        (names::floating(&neighbour), vec![], "Service other/web of cluster prod"),
        (names::floating(&namesake), vec![], "Service default/web of cluster staging"),
        (names::floating(&neighbour), cluster(&neighbour), "Service other/web"),
    ] {
        let (rig, asked) = asking(&description, &tags);
        let before = ip(&rig);
        for _ in 0..2 {
            let error = rig.ensure(&asked).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
            for words in ["spec.loadBalancerIP", ADDRESS, whose, "choose another address"] {
                assert!(error.message.contains(words), "{words}: {error}");
            }
            assert_eq!(rig.preview(&asked).await.unwrap_err(), error);
        }
        assert_eq!((rig.writes().len(), rig.rows("balancers").len()), (0, 0), "by halves: {whose}");
        // A Service that already has an address keeps it.
        let shown = addresses(&rig.settle(&wanted("web")).await);
        rig.writes();
        assert_eq!(rig.ensure(&asked).await.unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!((rig.writes(), ip(&rig)), (vec![], before.clone()));
        assert_eq!(addresses(&rig.settle(&wanted("web")).await), shown);
        rig.deleted(&rig.unwanted(&asked)).await;
        assert_eq!(ip(&rig), before, "{whose}");
    }
}

/// Another owner's floating IP is attached: the provider neither records an owner nor deletes it.
#[tokio::test]
async fn one_of_another_owner_that_is_attached_stays_as_it_is() {
    for tags in [names::owner_tags(&owner("bank")).to_vec(), vec![]] {
        let (rig, asked) = asking(&names::floating(&owner("bank")), &tags);
        rig.cloud.world.lock().floating.ips.clear();
        let made = rig.settle(&wanted("web")).await;
        {
            let mut world = rig.cloud.world.lock();
            let port = world.octavia.balancers[0]["vip_port_id"].clone();
            world.floating.ips.clear();
            drop(world);
            rig.floating_ip(ADDRESS, &names::floating(&owner("bank")));
            let mut world = rig.cloud.world.lock();
            (world.floating.ips[0]["port_id"], world.floating.ips[0]["tags"]) = (port, json!(tags));
        }
        let rig = rig.restarted();
        rig.writes();
        let same = Wanted { known: Some(made.id), ..wanted("web") };
        assert_eq!(addresses(&rig.settle(&same).await), [ADDRESS]);
        assert_eq!((rig.writes(), ip(&rig)["tags"].clone()), (vec![], json!(tags)));
        assert!(outlives(&rig, &rig.unwanted(&asked)).await);
        assert_eq!(ip(&rig)["tags"], json!(tags));
    }
}

/// The provider replaces the load balancer of one Service; another Service asks for its address.
#[tokio::test(start_paused = true)]
async fn an_address_that_is_free_for_a_moment_goes_to_nobody_else() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    rig.cloud.world.lock().octavia.break_down(&id);
    let known = Wanted { known: Some(id.clone()), ..web.clone() };
    rig.rested(&known).await;
    rig.ensure(&known).await.unwrap();
    rig.cloud.world.lock().let_go(&id);
    let evil = changed(&wanted("evil"), |it| it.address = "172.24.0.2".parse().ok());
    let error = rig.ensure(&evil).await.unwrap_err();
    assert!(error.message.contains("Service default/web"), "{error}");
    assert_eq!(addresses(&rig.settle(&known).await), ["172.24.0.2"]);
    let error = rig.ensure(&evil).await.unwrap_err();
    assert!(error.message.contains("Service default/web"), "{error}");
}

/// An earlier Service of this name has kept it, or the other controller made it for this name.
#[tokio::test]
async fn the_next_service_of_a_name_may_ask_for_what_was_kept() {
    let mut renamed = earlier("web");
    renamed.cluster.name = "old".to_owned();
    for (made_for, tags) in [
        (earlier("web"), names::owner_tags(&earlier("web")).to_vec()),
        (renamed.clone(), names::owner_tags(&renamed).to_vec()),
        (owner("web"), vec![]),
    ] {
        let (rig, asked) = asking(&names::floating(&made_for), &tags);
        assert_eq!(addresses(&rig.settle(&asked).await), [ADDRESS]);
        let recorded = ip(&rig)["tags"].clone();
        let own = names::owner_tags(&owner("web"));
        assert_eq!(recorded, json!([own[0], own[1], names::ASKED_FOR]));
        rig.writes();
        assert!(matches!(rig.ensure(&asked).await, Ok(ccm_cloud::Progress::Done(_))));
        assert_eq!(rig.writes(), [""; 0]);
        // Without the wish, the floating IP stays attached, and the provider does not delete it.
        let any = changed(&asked, |it| it.address = None);
        assert_eq!(addresses(&rig.settle(&any).await), [ADDRESS]);
        assert!(outlives(&rig.restarted(), &rig.unwanted(&any)).await, "{made_for:?}");
    }
}

/// The project may choose addresses, and the provider has created the requested one.
#[tokio::test]
async fn what_was_asked_for_is_not_deleted() {
    for is_of_earlier_version in [false, true] {
        let rig = Rig::new();
        rig.cloud.world.lock().floating.may_choose = true;
        let asked = asks("web");
        assert_eq!(addresses(&rig.settle(&asked).await), [ADDRESS]);
        if is_of_earlier_version {
            let own = names::owner_tags(&owner("web"));
            rig.cloud.world.lock().floating.ips[0]["tags"] = json!(own);
        }
        let rig = rig.restarted();
        rig.writes();
        rig.settle(&asked).await;
        assert_eq!(rig.writes(), [""; 0], "an upgrade writes nothing");
        if !is_of_earlier_version {
            // The Service asks for another address and back, then becomes internal and external
            // again.
            let any = rig.floating_ip("172.24.8.8", "mine");
            let other = changed(&asked, |it| it.address = "172.24.8.8".parse().ok());
            assert_eq!(addresses(&rig.settle(&other).await), ["172.24.8.8"]);
            assert_eq!((ip(&rig)["port_id"].clone(), any), (Value::Null, uuid(7_000_001)));
            assert_eq!(addresses(&rig.settle(&asked).await), [ADDRESS]);
            rig.settle(&with(&asked, INTERNAL, "true")).await;
            assert_eq!(ip(&rig)["port_id"], Value::Null);
            assert_eq!(addresses(&rig.settle(&asked).await), [ADDRESS]);
        }
        assert!(outlives(&rig, &rig.unwanted(&asked)).await, "{is_of_earlier_version}");
    }
}

/// A user pins the address that the cloud has chosen, and names another one later.
#[tokio::test]
async fn an_address_of_the_cloud_that_is_asked_for_later_is_not_deleted() {
    for is_upgrade in [false, true] {
        let rig = Rig::new();
        let chosen = addresses(&rig.settle(&wanted("web")).await).remove(0);
        let pins = |it: &mut FrontEnd| it.address = chosen.parse().ok();
        let pinned = changed(&wanted("web"), pins);
        if is_upgrade {
            let tag = names::tag(names::DIGEST, pinned.front_end.digest);
            let world = &mut rig.cloud.world.lock();
            let tags = world.octavia.balancers[0]["tags"].as_array_mut().unwrap();
            tags.retain(|tag| !tag.as_str().unwrap().starts_with(names::DIGEST));
            tags.push(json!(tag));
        }
        let rig = rig.restarted();
        rig.writes();
        assert_eq!(addresses(&rig.settle(&pinned).await), [chosen.as_str()]);
        let expect: &[&str] =
            if is_upgrade { &[] } else { &["floating_ip_tags_update", "loadbalancer_update"] };
        assert_eq!(rig.writes(), expect);
        rig.settle(&pinned).await;
        assert_eq!(rig.writes(), [""; 0]);
        if !is_upgrade {
            rig.floating_ip(ADDRESS, "mine");
            let other = changed(&pinned, |it| it.address = ADDRESS.parse().ok());
            assert_eq!(addresses(&rig.settle(&other).await), [ADDRESS]);
            let left = rig.cloud.world.lock().floating.ips[0].clone();
            assert_eq!(
                (&left["floating_ip_address"], &left["port_id"]),
                (&json!(chosen), &Value::Null)
            );
        }
    }
}

/// The Service still names the address when it becomes internal.
#[tokio::test]
async fn an_address_that_is_named_outlives_the_change_to_an_internal_one() {
    let rig = Rig::new();
    rig.cloud.world.lock().floating.may_choose = true;
    let asked = asks("web");
    rig.settle(&asked).await;
    // An earlier version did not record that the Service asked for the address.
    let own = names::owner_tags(&owner("web"));
    rig.cloud.world.lock().floating.ips[0]["tags"] = json!(own);
    rig.settle(&with(&asked, INTERNAL, "true")).await;
    assert_eq!((ip(&rig)["port_id"].clone(), ip(&rig)["id"].is_string()), (Value::Null, true));
}

/// The provider does not delete a load balancer in ERROR if the new one could not get its floating IP.
#[tokio::test(start_paused = true)]
async fn what_the_service_names_stays_its_own_while_it_is_replaced() {
    let bank = names::owner_tags(&owner("bank")).to_vec();
    for (tags, is_kept) in [(vec![], false), (bank, true)] {
        let rig = Rig::new();
        rig.cloud.world.lock().floating.may_choose = true;
        let first = rig.settle(&asks("web")).await;
        {
            let ip = &mut rig.cloud.world.lock().floating.ips[0];
            ip["description"] = json!(names::floating(&owner("bank")));
            ip["tags"] = json!(tags);
        }
        rig.cloud.world.lock().octavia.break_down(&first.id);
        let known = Wanted { known: Some(first.id.clone()), ..asks("web") };
        let rig = rig.restarted();
        rig.rested(&known).await;
        if is_kept {
            rig.ensure(&known).await.unwrap_err();
            rig.writes();
            for words in ["is kept", "default/bank"] {
                let error = rig.ensure(&known).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
                assert!(error.message.contains(words), "{error}");
                assert!(rig.preview(&known).await.unwrap_err().message.contains(words));
            }
            assert_eq!(rig.writes(), [""; 0]);
            continue;
        }
        let second = rig.settle(&known).await;
        assert_ne!(second.id, first.id);
        assert_eq!(addresses(&second), [ADDRESS]);
        assert!(ip(&rig)["tags"].as_array().unwrap().contains(&json!(names::ASKED_FOR)));
        let any = changed(&known, |it| it.address = None);
        assert!(outlives(&rig, &rig.unwanted(&any)).await, "it was not made for this Service");
    }
}

/// The Service is gone: the provider does not know whether to keep the address.
#[tokio::test]
async fn the_address_of_an_orphan_is_kept() {
    for (keeps, is_known) in [(true, true), (true, false), (false, true), (false, false)] {
        let rig = Rig::new();
        let mut web = wanted("web");
        if keeps {
            web = annotated(&web, "keep-floatingip", "true");
        }
        let shown = addresses(&rig.settle(&web).await);
        let mut orphan = Unwanted { settings: None, address: None, ..rig.unwanted(&web) };
        if !is_known {
            // A person deleted the load balancer, and its address is left.
            let id = orphan.known.take().unwrap();
            rig.remove(&id);
        }
        let other = rig.restarted();
        other.deleted(&orphan).await;
        let ips = rig.cloud.world.lock().floating.ips.clone();
        let left: Vec<_> = ips.iter().map(|ip| ip["floating_ip_address"].clone()).collect();
        assert_eq!((left, &ips[0]["port_id"]), (vec![json!(shown[0])], &Value::Null));
        assert_eq!(rig.rows("balancers").len(), 0);
        // The next Service with this name may have the address.
        let mut next = changed(&wanted("web"), |it| it.address = shown[0].parse().ok());
        next = changed(&next, |it| it.owner.uid = "uid-next".to_owned());
        assert_eq!(addresses(&other.settle(&next).await), shown);
    }
}

/// Neutron shows an administrator the floating IPs and ports of all projects.
#[tokio::test]
async fn those_of_other_projects_do_not_count() {
    let (rig, asked) = asking("mine", &[]);
    rig.cloud.world.lock().floating.ips[0]["project_id"] = json!("another");
    let mut error = None;
    for _ in 0..4 {
        error = rig.ensure(&asked).await.err().or(error);
    }
    let error = error.unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.message.contains("the project has no floating IP"), "{error}");
    assert_eq!(ip(&rig)["port_id"], Value::Null);
    // This is a search by tags, which an administrator of another project may copy.
    let (rig, _) = asking("mine", &names::owner_tags(&owner("web")));
    rig.cloud.world.lock().floating.ips[0]["project_id"] = json!("another");
    let known = Wanted { known: Some(uuid(1)), ..wanted("web") };
    assert_ne!(addresses(&rig.settle(&known).await), [ADDRESS]);
    rig.deleted(&rig.unwanted(&known)).await;
    assert_eq!(ip(&rig)["port_id"], Value::Null);
    // The subnet of the nodes is the subnet of the project's own port.
    let rig = Rig::with(|options| options.load_balancer.internal = true);
    for (number, subnet, project) in [(1, 9, "another"), (2, 1, "p1")] {
        let mut port = ccm_openstack_client::scripted::port(number);
        port["fixed_ips"] = json!([{ "subnet_id": uuid(subnet), "ip_address": "10.8.1.1" }]);
        port["project_id"] = json!(project);
        rig.cloud.world.lock().ports.push(port);
    }
    rig.settle(&wanted("web")).await;
    assert_eq!(rig.rows("balancers")[0]["vip_subnet_id"], uuid(1));
}

/// The provider does not put an ID into a path if Octavia cannot have assigned it.
#[tokio::test]
async fn an_id_that_can_be_none_names_nothing() {
    for id in ["../listeners", "..", "?limit=1", "x/status", "", "a b", "%2e%2e", "é"] {
        let rig = Rig::new();
        rig.settle(&wanted("web")).await;
        let named = Unwanted { known: Some(id.to_owned()), ..rig.unwanted(&wanted("web")) };
        rig.cloud.operations();
        rig.deleted(&named).await;
        let world = rig.cloud.world.lock();
        assert_eq!((world.octavia.balancers.len(), world.floating.ips.len()), (0, 0), "{id}");
        let is_odd =
            |(_, path): &&(&str, String)| path.contains("..") || path.contains("listeners");
        assert_eq!(world.calls.iter().find(is_odd), None, "{id}");
        let shown: Vec<_> =
            world.calls.iter().filter(|(name, _)| *name == "loadbalancer_get").collect();
        assert!(shown.is_empty(), "{id}: {shown:?}");
    }
}
