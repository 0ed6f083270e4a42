//! `externalTrafficPolicy: Local`: which load balancers get health monitors without being asked to.

use ccm_cloud::{LoadBalancer, Note, Progress, Traffic, Wanted};
use serde_json::{Value, json};

use super::rig::{Rig, annotated, changed, wanted};
use crate::openstack::scripted::uuid;

const MISSING: &str = "LoadBalancerHealthMonitorMissing";

fn local(name: &str) -> Wanted {
    changed(&wanted(name), |it| it.traffic = Traffic::Local { health_check_port: 31_999 })
}

/// A load balancer of this Service that stands without a monitor, as it was made before there were
/// any: with the digest of the Service as it is.
async fn standing(rig: &Rig, name: &str) -> Wanted {
    let web = local(name);
    rig.settle(&annotated(&web, "enable-health-monitor", "false")).await;
    let mut world = rig.cloud.world.lock();
    let digest = super::names::digest_tag(web.front_end.digest);
    for row in &mut world.octavia.balancers {
        let tags = row["tags"].as_array_mut().unwrap();
        for tag in tags.iter_mut().filter(|tag| tag.as_str().unwrap().starts_with("quartet-config"))
        {
            *tag = json!(digest);
        }
    }
    drop(world);
    rig.writes();
    web
}

fn reasons(done: &LoadBalancer) -> Vec<&str> {
    done.notes.iter().map(|note| note.reason.as_str()).collect()
}

fn kinds(rig: &Rig) -> Vec<Value> {
    rig.rows("monitors").iter().map(|row| row["type"].clone()).collect()
}

fn ports(rig: &Rig) -> Vec<Value> {
    let mut all: Vec<_> =
        rig.rows("members").iter().map(|row| row["monitor_port"].clone()).collect();
    all.dedup();
    all
}

#[tokio::test]
async fn a_new_load_balancer_has_monitors_unless_its_service_says_otherwise() {
    let rig = Rig::new();
    let done = rig.settle(&local("web")).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![json!("HTTP"); 2], vec![json!(31_999)]));
    assert_eq!(rig.rows("monitors")[0]["url_path"], "/healthz");
    assert_eq!(done.notes, []);
    rig.writes();
    let other = rig.restarted();
    let done = other.settle(&local("web")).await;
    assert_eq!((other.writes(), done.notes), (vec![], vec![]), "another process keeps them");
    // Nodes that join are checked as well.
    rig.members_with(&local("web"), &done.id, super::members(&[4], &[])).await;
    assert_eq!(ports(&rig), [json!(31_999)]);
    for (web, count) in [
        (annotated(&local("api"), "enable-health-monitor", "false"), 0),
        (annotated(&local("api"), "enable-health-monitor", "true"), 2),
        (annotated(&local("api"), "health-monitor-delay", "9"), 2),
        (wanted("api"), 0),
    ] {
        let rig = Rig::new();
        let done = rig.settle(&web).await;
        assert_eq!((rig.rows("monitors").len(), done.notes), (count, vec![]), "{web:?}");
        if web.front_end.settings.keys().any(|key| key.ends_with("-delay")) {
            assert_eq!(rig.rows("monitors")[0]["delay"], 9);
        }
    }
}

/// An upgrade writes nothing to the cloud.
#[tokio::test]
async fn one_that_stands_gets_a_remark_and_no_change() {
    let first = Rig::new();
    let web = standing(&first, "web").await;
    let rig = first.restarted();
    let done = rig.settle(&web).await;
    assert_eq!((rig.writes(), kinds(&rig)), (vec![], vec![]));
    assert_eq!(done.digest, Some(web.front_end.digest));
    let [Note { reason, message, warning: true }] = &done.notes[..] else {
        panic!("{:?}", done.notes)
    };
    assert_eq!(reason, MISSING);
    for part in ["80/TCP, 443/TCP", "enable-health-monitor", "[LoadBalancer] local-monitor"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(rig.settle(&web).await.notes, done.notes, "a text that stays");
    let silent = rig.settle(&annotated(&web, "enable-health-monitor", "false")).await;
    assert_eq!((silent.notes, kinds(&rig)), (vec![], vec![]));
}

/// So does one that another controller has made, also while a change follows.
#[tokio::test]
async fn one_that_is_adopted_gets_a_remark() {
    let rig = Rig::new();
    let web = standing(&rig, "web").await;
    let name = rig.rows("balancers")[0]["name"].clone();
    rig.cloud.world.lock().octavia.balancers[0]["tags"] = json!([name]);
    let id = rig.rows("balancers")[0]["id"].as_str().unwrap().to_owned();
    let adopting = Wanted { adopt: Some(id), ..web.clone() };
    let done = rig.settle(&adopting).await;
    assert_eq!((reasons(&done), kinds(&rig)), (vec![MISSING], vec![]));
    assert_eq!(rig.writes(), ["loadbalancer_update"]);
}

#[tokio::test]
async fn a_service_that_changes_gets_monitors_and_loses_them() {
    let rig = Rig::new();
    let web = standing(&rig, "web").await;
    let more = changed(&web, |it| it.affinity = Some(std::time::Duration::from_secs(60)));
    let done = rig.settle(&more).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![json!("HTTP"); 2], vec![json!(31_999)]));
    assert_eq!((done.notes, done.digest), (vec![], Some(more.front_end.digest)));
    // It is Local only now.
    let rig = Rig::new();
    rig.settle(&wanted("web")).await;
    rig.settle(&local("web")).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![json!("HTTP"); 2], vec![json!(31_999)]));
    let back = changed(&local("web"), |it| it.traffic = Traffic::Cluster);
    rig.settle(&back).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![], vec![Value::Null]));
}

/// A monitor of another kind does its work. One that is there for some ports is there for all.
#[tokio::test]
async fn monitors_that_are_there_stay() {
    let rig = Rig::new();
    let web = standing(&rig, "web").await;
    rig.settle(&annotated(&wanted("web"), "enable-health-monitor", "true")).await;
    let digest = super::names::digest(
        &serde_json::from_value::<Vec<String>>(rig.rows("balancers")[0]["tags"].clone()).unwrap(),
    );
    assert_eq!(kinds(&rig), [json!("TCP"), json!("TCP")]);
    rig.writes();
    let same = changed(&web, |it| it.digest = digest.unwrap());
    let done = rig.settle(&same).await;
    assert_eq!((rig.writes(), done.notes), (vec![], vec![]));
    let rig = Rig::new();
    rig.settle(&local("web")).await;
    rig.cloud.world.lock().octavia.monitors.pop();
    rig.settle(&local("web")).await;
    assert_eq!(kinds(&rig), [json!("HTTP"), json!("HTTP")], "deleted by hand, and back");
}

#[tokio::test]
async fn where_no_monitor_can_be_a_remark_says_so() {
    let rig = Rig::with(|options| {
        options.networks.subnet_id = Some(uuid(1));
        options.networks.floating_network_id = Some(uuid(50));
        options.balancer.provider = "ovn".to_owned();
    });
    rig.cloud.world.lock().octavia.providers = vec!["ovn", "amphora"];
    let done = rig.settle(&local("web")).await;
    assert_eq!((reasons(&done), kinds(&rig)), (vec!["LoadBalancerHealthMonitorIgnored"], vec![]));
    let Note { message, warning, .. } = &done.notes[0];
    assert!(warning & message.contains("80/TCP, 443/TCP") & message.contains("ovn"), "{message}");
    assert!(message.contains("enable-health-monitor"), "{message}");
    rig.writes();
    assert!(matches!(rig.ensure(&local("web")).await, Ok(Progress::Done(_))));
    assert_eq!(rig.writes(), [""; 0]);
    let silent = rig.settle(&annotated(&local("web"), "enable-health-monitor", "false")).await;
    assert_eq!(silent.notes, []);
    // Octavia checks members of UDP by HTTP only since version 2.16.
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.minor = 15;
    let both = changed(&local("web"), |it| {
        it.ports = vec![super::port(53, ccm_cloud::Protocol::Udp), it.ports[0].clone()];
    });
    let done = rig.settle(&both).await;
    assert_eq!(kinds(&rig), [json!("HTTP")]);
    assert!(done.notes[0].message.contains("members of 53/UDP are"), "{:?}", done.notes);
}
