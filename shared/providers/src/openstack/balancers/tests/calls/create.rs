//! Load balancers that come into being, and change.

use super::*;

const INTERNAL: (&str, &str) =
    ("service.beta.kubernetes.io/openstack-internal-load-balancer", "true");

fn external() -> String {
    format!("floating-network-id = {}", uuid(PUBLIC))
}

#[tokio::test]
async fn a_service_costs_a_lookup_a_creation_and_a_floating_ip_with_its_tags() {
    let rig = Rig::new(&external()).await;
    let web = wanted("web", &[80, 443, 8080], &[]);
    assert!(what(&rig.ensure(&web).await.unwrap()).starts_with("PENDING_CREATE"));
    let expect = [
        "floating_ip_create",
        "floating_ip_tags_update",
        "loadbalancer_create",
        "loadbalancer_list",
    ];
    assert_eq!(rig.requests(), expect);
    let (row, ip) = (rig.row(), rig.floating_ip());
    let name = "kube_service_prod_default_web";
    assert_eq!(text(&row, "name"), name);
    let tags = ["kubernetes-cluster-id=c-1", "kubernetes-service-uid=uid-web"];
    let own: Vec<&str> =
        row["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    assert!(own.contains(&name) && tags.iter().all(|tag| own.contains(tag)), "{own:?}");
    assert_eq!(
        names::digest(&own.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>()),
        Some(web.front_end.digest)
    );
    assert_eq!((&ip["port_id"], &ip["tags"]), (&row["vip_port_id"], &json!(tags)));
    let description = "Floating IP for Kubernetes external service default/web from cluster prod";
    assert_eq!(text(&ip, "description"), description);
    // Octavia works on it: a look, and nothing else.
    let known = Wanted { known: Some(text(&row, "id")), ..web };
    assert!(what(&rig.ensure(&known).await.unwrap()).starts_with("PENDING_CREATE"));
    assert_eq!(rig.requests(), ["loadbalancer_list"]);
    rig.settle();
    let done = rig.ensured(&known).await;
    assert!(
        !rig.requests().iter().any(|operation| is_write(operation)),
        "nothing is to be changed"
    );
    let shown = &done.ingress[0].address;
    assert_eq!(
        *shown,
        ccm_cloud::IngressAddress::Ip(text(&ip, "floating_ip_address").parse().unwrap())
    );
    assert_eq!(done.members.unwrap().len(), 2);
}

#[tokio::test]
async fn every_change_is_one_write_per_call_and_ends_as_if_created_so() {
    let rig = Rig::new(&external()).await;
    let prefix = |key: &str| format!("loadbalancer.openstack.org/{key}");
    let (limit, monitor, hops) =
        (prefix("connection-limit"), prefix("enable-health-monitor"), prefix("x-forwarded-for"));
    let mut known = None;
    for (ports, settings) in [
        (&[80, 443][..], &[][..]),
        (&[80, 443, 8080], &[]),
        (&[80, 443, 8080], &[(limit.as_str(), "7")]),
        (&[8080], &[(limit.as_str(), "7"), (monitor.as_str(), "true")]),
        (&[8080, 80], &[(hops.as_str(), "true")]),
        (&[8080, 80], &[]),
        (&[80], &[INTERNAL]),
        (&[80], &[]),
    ] {
        let next = Wanted { known: known.clone(), ..wanted("web", ports, settings) };
        let done = rig.ensured(&next).await;
        known = Some(done.id.clone());
        assert_eq!(done.digest, Some(next.front_end.digest), "{ports:?} {settings:?}");
        rig.requests();
        let again = rig.ensured(&next).await;
        assert_eq!(again.ingress, done.ingress);
        assert!(
            !rig.requests().iter().any(|operation| is_write(operation)),
            "{ports:?} {settings:?}"
        );
        // What a new load balancer of this Service would have.
        let fresh = Rig::new(&external()).await;
        fresh.ensured(&next).await;
        assert_eq!(shape(&rig), shape(&fresh), "{ports:?} {settings:?}");
    }
    assert_eq!(rig.counts(), (1, 1));
}

/// What is below the load balancers of a cloud, without IDs.
fn shape(rig: &Rig) -> Vec<String> {
    let world = rig.cloud.world.lock();
    let octavia = &world.octavia;
    let mut lines: Vec<String> = octavia
        .listeners
        .iter()
        .map(|listener| {
            let pool = octavia.pools.iter().find(|pool| pool["id"] == listener["default_pool_id"]);
            let pool = pool.expect("each listener has a pool");
            let of_pool = |row: &&Value| row["_pool"] == pool["id"];
            let mut members: Vec<String> = octavia
                .members
                .iter()
                .filter(of_pool)
                .map(|row| format!("{} {}", row["address"], row["protocol_port"]))
                .collect();
            members.sort();
            let monitors: Vec<_> =
                octavia.monitors.iter().filter(of_pool).map(|row| &row["type"]).collect();
            format!(
                "{} {} {} {} {} {members:?} {monitors:?}",
                listener["protocol"],
                listener["protocol_port"],
                listener["connection_limit"],
                listener["insert_headers"],
                pool["protocol"],
            )
        })
        .collect();
    assert_eq!(octavia.pools.len(), octavia.listeners.len(), "no pool is left over");
    lines.sort();
    lines.push(format!("{} floating IPs", world.floating.ips.len()));
    lines
}

#[tokio::test]
async fn what_the_cloud_refuses_is_named_and_leaves_nothing_behind() {
    let rig = Rig::new(&external()).await;
    let web = wanted("web", &[80], &[]);
    rig.cloud.world.lock().octavia.quotas.insert("Listener", 0);
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(
        (error.kind, error.subject.as_deref()),
        (ErrorKind::QuotaExceeded, Some("Listener"))
    );
    assert_eq!(rig.counts(), (0, 0));
    rig.cloud.world.lock().octavia.quotas.clear();
    // The load balancer is there, and its floating IP is not to be had for now.
    rig.cloud.world.lock().floating.quota = 0;
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(
        (error.kind, error.subject.as_deref()),
        (ErrorKind::QuotaExceeded, Some("floatingip"))
    );
    rig.settle();
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::QuotaExceeded);
    assert_eq!(rig.counts(), (1, 0), "no second one");
    rig.cloud.world.lock().floating.quota = 5;
    rig.ensured(&web).await;
    assert_eq!(rig.counts(), (1, 1));
}

#[tokio::test]
async fn bad_settings_are_named_before_anything_is_made() {
    let nowhere = uuid(999);
    for (key, value, part) in [
        ("floating-network-id", &*nowhere, "floating-network-id"),
        ("subnet-id", &*nowhere, "subnet-id"),
        ("subnet-id", "my-subnet", "subnet-id"),
        ("availability-zone", "nowhere", ""),
    ] {
        let rig = Rig::new(&external()).await;
        let key = format!("loadbalancer.openstack.org/{key}");
        let outcome = rig.ensure(&wanted("web", &[80], &[(&key, value)])).await;
        if part.is_empty() {
            outcome.unwrap();
            continue;
        }
        let error = outcome.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::NotFound), "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[tokio::test]
async fn both_families_have_an_address_also_where_ranges_are_of_the_first_only() {
    for minor in [26, 30] {
        let rig = Rig::new(&external()).await;
        {
            let mut world = rig.cloud.world.lock();
            world.octavia.minor = minor;
        }
        let rig = rig.restarted(&external());
        rig.balancers.learn(call()).await.unwrap();
        let mut web = wanted("web", &[80], &[INTERNAL]);
        Arc::get_mut(&mut web.front_end).unwrap().families = vec![IpFamily::V4, IpFamily::V6];
        let done = rig.ensured(&web).await;
        assert_eq!(done.ingress.len(), 2, "2.{minor}: {done:?}");
        let ranges = rig.cloud.world.lock().octavia.listeners[0]["allowed_cidrs"].clone();
        let expect = if minor == 26 { json!([]) } else { json!(["0.0.0.0/0", "::/0"]) };
        assert_eq!(ranges, expect, "2.{minor}");
    }
}
