use std::{sync::Arc, time::Duration};

use ccm_cloud::Cloud as _;
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::{
    cloud::OpenStackCloud,
    config::Networking,
    resolve::{LOOK, SELDOM, WHILE_MISSING, run},
    tests::cloud::{Move, PASSWORD, Rig, config},
};

const NETWORK: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const SUBNET: &str = "aaaaaaaa-0000-4000-8000-000000000002";

fn settings() -> Config {
    let networking = Networking {
        public_networks: vec!["ext".to_owned()],
        internal_networks: vec!["k8s-intern".to_owned(), NETWORK.to_owned()],
        ..Networking::default()
    };
    let networks = LoadBalancerClass {
        subnet_id: Some(SUBNET.to_owned()),
        floating_network_id: Some(NETWORK.to_owned()),
        ..LoadBalancerClass::default()
    };
    let class = LoadBalancerClass {
        network_id: Some("none".to_owned()),
        member_subnet_id: Some(SUBNET.to_owned()),
        floating_subnet_id: Some("none".to_owned()),
        ..LoadBalancerClass::default()
    };
    let classes = [("dmz".to_owned(), class)].into();
    Config { networking, networks, classes, ..config(PASSWORD) }
}

/// Returns Neutron's answers to the requests of one look: a subnet, networks by name, networks by
/// ID.
fn shown(name: &str) -> [Move; 3] {
    let network = |name: &str| json!({ "networks": [{ "id": NETWORK, "name": name }] });
    let subnet = json!({ "subnets": [{ "id": SUBNET, "network_id": NETWORK, "ip_version": 4, "cidr": "10.0.0.0/24" }] });
    [subnet, network(name), network(name)].map(|body| Move::text(200, &body.to_string()))
}

fn cloud(rig: &Rig) -> OpenStackCloud {
    OpenStackCloud::new(rig.clients(), &settings()).unwrap()
}

fn texts(cloud: &OpenStackCloud) -> Vec<String> {
    cloud.shortfalls().into_iter().map(|shortfall| shortfall.text).collect()
}

const PUBLIC: &str = "[Networking] public-network-name = \"ext\": Neutron shows this project no network of this name or ID, so no address counts as ExternalIP by it";
const INTERNAL: &str = "[Networking] internal-network-name = \"k8s-intern\": Neutron shows this project no network of this name or ID, so no address counts as InternalIP by it";

#[tokio::test(start_paused = true)]
async fn a_name_that_the_cloud_does_not_have_is_told_until_it_has() {
    let rig = Rig::new();
    let cloud = cloud(&rig);
    cloud.instances().ok();
    assert_eq!(texts(&cloud), Vec::<String>::new(), "nothing was asked yet");
    let networks = |name: &str| shown(name).into_iter().skip(1);
    rig.cloud.next("neutron", networks("other"));
    assert_eq!(cloud.resolve(Call::routine(LOOK)).await, Ok(false));
    assert_eq!(texts(&cloud), [PUBLIC, INTERNAL]);
    // A failed request proves nothing.
    rig.cloud.next("neutron", [Move::text(403, "no")]);
    assert!(cloud.resolve(Call::routine(LOOK)).await.is_err());
    assert_eq!(texts(&cloud), [PUBLIC, INTERNAL]);
    rig.cloud.next("neutron", networks("ext"));
    assert_eq!(cloud.resolve(Call::routine(LOOK)).await, Ok(false));
    assert_eq!(texts(&cloud), [INTERNAL]);
    let paths = rig.cloud.seen().into_iter().filter(|seen| seen.host == "neutron");
    let paths: Vec<String> = paths.map(|seen| seen.path).collect();
    assert!(paths.iter().all(|path| path.starts_with("/v2.0/networks?")), "{paths:?}");
}

#[tokio::test(start_paused = true)]
async fn only_what_the_process_uses_is_looked_for() {
    let rig = Rig::new();
    let cloud = cloud(&rig);
    cloud.load_balancers().ok();
    rig.cloud.next("neutron", [0, 2].map(|at| shown("ext")[at].clone()));
    assert_eq!(cloud.resolve(Call::routine(LOOK)).await, Ok(false));
    let refused = "so the cloud will refuse new load balancers";
    assert_eq!(
        texts(&cloud),
        [
            format!(
                "[LoadBalancerClass \"dmz\"] network-id = \"none\": Neutron shows this project no network of this ID, {refused}"
            ),
            format!(
                "[LoadBalancerClass \"dmz\"] floating-subnet-id = \"none\": Neutron shows this project no subnet of this ID, {refused} with a floating IP"
            ),
        ]
    );
    let without = OpenStackCloud::new(rig.clients(), &config(PASSWORD)).unwrap();
    without.instances().ok();
    let before = rig.cloud.seen().len();
    assert_eq!(without.resolve(Call::routine(LOOK)).await, Ok(true));
    assert_eq!(rig.cloud.seen().len(), before, "nothing is named, so nothing is asked");
}

/// The task waits for the cloud's answer, and looks again sooner while a name is missing.
#[tokio::test(start_paused = true)]
async fn it_looks_when_the_cloud_has_answered_and_again() {
    let rig = Rig::new();
    let cloud = Arc::new(cloud(&rig));
    cloud.instances().ok();
    let looking = tokio::task::JoinSet::from_iter([run(Arc::downgrade(&cloud))]);
    sleep(SELDOM * 2).await;
    assert_eq!(rig.cloud.count("neutron", "/"), 0);
    rig.cloud.next("neutron", shown("other").into_iter().skip(1));
    cloud.health(Call::routine(LOOK)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(texts(&cloud), [PUBLIC, INTERNAL]);
    rig.cloud.next("neutron", shown("ext").into_iter().skip(1));
    cloud.health(Call::routine(LOOK)).await.unwrap();
    sleep(WHILE_MISSING).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(texts(&cloud), [INTERNAL]);
    drop((looking, cloud));
}
