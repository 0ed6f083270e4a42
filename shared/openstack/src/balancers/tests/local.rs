//! Tests `externalTrafficPolicy: Local`: load balancers to which the provider adds health monitors.

use std::time::Duration;

use ccm_cloud::{LoadBalancer, Note, Progress, Traffic, Wanted};
use ccm_openstack_client::scripted::uuid;
use serde_json::{Value, json};

use super::rig::{Rig, annotated, changed, wanted};

const MISSING: &str = "LoadBalancerHealthMonitorMissing";

fn local(name: &str) -> Wanted {
    changed(&wanted(name), |it| it.traffic = Traffic::Local { health_check_port: 31_999 })
}

/// Makes a load balancer without monitors, as an earlier version did, with the digest of its Service.
async fn standing(rig: &Rig, name: &str) -> Wanted {
    let web = local(name);
    rig.settle(&annotated(&web, "enable-health-monitor", "false")).await;
    let mut world = rig.cloud.world.lock();
    let digest = super::names::tag(super::names::DIGEST, web.front_end.digest);
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
    // Octavia also checks nodes that join.
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

/// A load balancer of another controller also gets the remark, even while a change is pending.
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
    let more = changed(&web, |it| it.affinity = Some(Duration::from_secs(60)));
    let done = rig.settle(&more).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![json!("HTTP"); 2], vec![json!(31_999)]));
    assert_eq!((done.notes, done.digest), (vec![], Some(more.front_end.digest)));
    // The Service changes to Local.
    let rig = Rig::new();
    rig.settle(&wanted("web")).await;
    rig.settle(&local("web")).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![json!("HTTP"); 2], vec![json!(31_999)]));
    let back = changed(&local("web"), |it| it.traffic = Traffic::Cluster);
    rig.settle(&back).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![], vec![Value::Null]));
}

/// A monitor of another kind stays. If some ports have HTTP monitors, all ports get one.
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
        options.load_balancer.provider = "ovn".to_owned();
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
    // Octavia checks UDP members by HTTP since version 2.16.
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.minor = 15;
    let both = changed(&local("web"), |it| {
        it.ports = vec![super::port(53, ccm_cloud::Protocol::Udp), it.ports[0].clone()];
    });
    let done = rig.settle(&both).await;
    assert_eq!(kinds(&rig), [json!("HTTP")]);
    assert!(done.notes[0].message.contains("members of 53/UDP are"), "{:?}", done.notes);
}

const TAKEN_BACK: &str = "LoadBalancerHealthMonitorTakenBack";

/// Sets the age of the monitors. Their pools are an hour older.
fn aged(rig: &Rig, seconds: i64) {
    let ago = |seconds: i64| {
        let time = ccm_base::clock::wall() - jiff::SignedDuration::from_secs(seconds);
        json!(time.strftime("%Y-%m-%dT%H:%M:%S").to_string())
    };
    let mut world = rig.cloud.world.lock();
    for row in &mut world.octavia.pools {
        row["created_at"] = ago(seconds + 3_600);
    }
    for row in &mut world.octavia.monitors {
        row["created_at"] = ago(seconds);
    }
}

fn fails(rig: &Rig, members: &[u8]) {
    let addresses = members.iter().map(|number| format!("\"10.8.1.{number}\""));
    rig.cloud.world.lock().octavia.unreachable = addresses.collect();
}

/// The time of three checks every five seconds, plus the time until Octavia shows their results.
const TAKES: Duration = Duration::from_secs(3 * 5 + 3 + 15);

/// Calls ensure until it waits for the first results of the monitors.
async fn tried(rig: &Rig, web: &Wanted) {
    for _ in 0..60 {
        let Progress::InProgress(waiting) = rig.ensure(web).await.unwrap() else {
            panic!("no result was waited for");
        };
        aged(rig, 0);
        if waiting.what.contains("first results") {
            // Changes and the deletion of the load balancer wait at most this long.
            assert!(waiting.check_after <= Duration::from_secs(10), "{waiting:?}");
            return;
        }
    }
    panic!("60 calls were not enough");
}

fn with_affinity(web: &Wanted) -> Wanted {
    changed(web, |it| it.affinity = Some(Duration::from_secs(60)))
}

/// A change of the Service adds monitors to pools that serve clients. If the checks reach no node,
/// Octavia would stop the traffic.
#[tokio::test(start_paused = true)]
async fn monitors_that_fail_all_members_are_taken_back_once() {
    let rig = Rig::new();
    let web = standing(&rig, "web").await;
    let more = with_affinity(&web);
    fails(&rig, &[1, 2, 3]);
    tried(&rig, &more).await;
    assert_eq!(kinds(&rig), [json!("HTTP"), json!("HTTP")]);
    tokio::time::advance(TAKES.saturating_sub(Duration::from_secs(1))).await;
    tried(&rig, &more).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    rig.ensure(&more).await.unwrap();
    let lines = rig.preview(&more).await.unwrap();
    let deletion = |line: &&String| line.starts_with("delete the health monitor");
    assert_eq!(lines.iter().take_while(deletion).count(), 2, "they go first: {lines:?}");
    let done = rig.settle(&more).await;
    assert_eq!((kinds(&rig), ports(&rig)), (vec![], vec![Value::Null]));
    assert_eq!((reasons(&done), done.digest), (vec![TAKEN_BACK], Some(more.front_end.digest)));
    let Note { message, warning, .. } = &done.notes[0];
    assert!(warning & message.contains("31999") & message.contains("enable-health-monitor"));
    // No process adds monitors again until the Service changes.
    rig.writes();
    let other = rig.restarted();
    let again = other.settle(&more).await;
    assert_eq!((other.writes(), again.notes), (vec![], done.notes));
    other.members_with(&more, &again.id, super::members(&[4], &[])).await;
    // The load balancer that replaces this one does not get a monitor either.
    rig.cloud.world.lock().octavia.balancers[0]["provisioning_status"] = json!("ERROR");
    let is_new = || rig.rows("balancers").iter().any(|row| row["id"] != again.id);
    for _ in 0..10 {
        if !is_new() {
            other.rested(&more).await;
        }
    }
    assert!(is_new());
    assert_eq!(kinds(&rig), [json!(null); 0], "it is created without");
    let replaced = other.settle(&more).await;
    assert_ne!(replaced.id, again.id);
    assert_eq!((kinds(&rig), reasons(&replaced)), (vec![], vec![TAKEN_BACK]));
    fails(&rig, &[]);
    aged(&rig, 0);
    let third = changed(&more, |it| it.affinity = None);
    tried(&other, &third).await;
    tokio::time::advance(TAKES).await;
    let done = other.settle(&third).await;
    assert_eq!((kinds(&rig), done.notes), (vec![json!("HTTP"), json!("HTTP")], vec![]));
    let tags = rig.rows("balancers")[0]["tags"].to_string();
    assert!(!tags.contains("taken-back"), "{tags}");
}

/// The Service has no pods for a moment while it changes again.
#[tokio::test(start_paused = true)]
async fn monitors_that_have_let_members_through_are_not_tried_again() {
    use ccm_cloud::{Depth, Scope};
    let rig = Rig::new();
    let web = with_affinity(&standing(&rig, "web").await);
    tried(&rig, &web).await;
    tokio::time::advance(TAKES).await;
    rig.settle(&web).await;
    rig.list(Scope::Cluster, Depth::Members).await;
    fails(&rig, &[1, 2, 3]);
    let next = changed(&web, |it| it.affinity = None);
    let done = rig.settle(&next).await;
    assert_eq!((kinds(&rig).len(), done.notes), (2, vec![]));
    // The provider does try later monitors.
    rig.settle(&annotated(&next, "enable-health-monitor", "false")).await;
    assert_eq!(kinds(&rig).len(), 0);
    tried(&rig, &changed(&next, |it| it.digest.hash += 7)).await;
}

/// The provider does not wait for results that take too long.
#[tokio::test(start_paused = true)]
async fn slow_monitors_are_not_waited_for() {
    let rig = Rig::new();
    let web = annotated(&standing(&rig, "web").await, "health-monitor-delay", "2147483647");
    for _ in 0..30 {
        rig.ensure(&web).await.unwrap();
        aged(&rig, 0);
    }
    let done = rig.settle(&web).await;
    assert_eq!((kinds(&rig).len(), done.notes), (2, vec![]));
}

/// A process remembers the load balancer from before its monitors.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_not_as_wanted_before_its_monitors_are_gone() {
    use ccm_cloud::{Depth, Scope};
    let rig = Rig::new();
    let web = with_affinity(&standing(&rig, "web").await);
    fails(&rig, &[1, 2, 3]);
    tried(&rig.restarted(), &web).await;
    tried(&rig, &web).await;
    tokio::time::advance(TAKES).await;
    rig.ensure(&web).await.unwrap();
    rig.list(Scope::Cluster, Depth::Members).await;
    let list = rig.list(Scope::Cluster, Depth::Members).await.load_balancers;
    assert_eq!((kinds(&rig).len(), list[0].digest), (2, None));
    rig.settle(&web).await;
    assert_eq!(kinds(&rig).len(), 0);
}

/// The provider makes the requested changes without the monitors that the cloud refuses.
#[tokio::test]
async fn monitors_that_the_cloud_refuses_block_nothing() {
    let refused = |done: &LoadBalancer| {
        let own = |note: &&Note| note.reason == "LoadBalancerHealthMonitorIgnored";
        let note = done.notes.iter().find(own).unwrap_or_else(|| panic!("{:?}", done.notes));
        assert!(note.warning && note.message.contains("Quota has been met"), "{note:?}");
    };
    let rig = Rig::new();
    let web = with_affinity(&standing(&rig, "web").await);
    rig.cloud.world.lock().octavia.quotas = [("Health Monitor", 0)].into();
    for web in [web, local("new")] {
        let done = rig.settle(&web).await;
        refused(&done);
        assert_eq!((kinds(&rig).len(), done.digest), (0, Some(web.front_end.digest)));
        rig.writes();
        refused(&rig.settle(&web).await);
        assert_eq!(rig.writes(), [""; 0]);
    }
    // Octavia checks members at their own port again.
    let cluster = annotated(&wanted("web"), "enable-health-monitor", "true");
    let cluster = changed(&cluster, |it| it.digest.hash += 9);
    rig.cloud.world.lock().octavia.quotas.clear();
    rig.restarted().settle(&cluster).await;
    let checked: Vec<_> = rig.rows("monitors").iter().map(|row| row["_pool"].clone()).collect();
    let mut members = rig.rows("members");
    members.retain(|row| checked.contains(&row["_pool"]));
    assert_eq!((checked.len(), members.len()), (2, 6));
    assert!(members.iter().all(|row| row["monitor_port"].is_null()), "{members:?}");
    // The provider reports other errors at once.
    rig.writes();
    rig.cloud.world.lock().octavia.quotas = [("Load Balancer", 2)].into();
    assert!(rig.ensure(&local("more")).await.is_err());
    assert_eq!(rig.writes(), ["loadbalancer_create"]);
    // The provider does not omit a monitor that the Service requests.
    rig.cloud.world.lock().octavia.quotas = [("Health Monitor", 0)].into();
    assert!(rig.ensure(&annotated(&local("asks"), "enable-health-monitor", "true")).await.is_err());
    // The quota allows some of the monitors.
    rig.cloud.world.lock().octavia.quotas = [("Health Monitor", 3)].into();
    let next = changed(&local("new"), |it| it.affinity = Some(Duration::from_secs(60)));
    let done = rig.settle(&next).await;
    refused(&done);
    assert_eq!((kinds(&rig).len(), done.digest), (3, Some(next.front_end.digest)));
}

/// Nodes without a pod fail, and all nodes fail while the Service has no pod. A monitor then stays if
/// it was there from the beginning, has worked before, or was requested.
#[tokio::test(start_paused = true)]
async fn monitors_that_are_right_stay() {
    let long = Duration::from_mins(5);
    let other = |web: &Wanted| changed(web, |it| it.affinity = Some(long));
    let asked = |web: &Wanted| annotated(web, "enable-health-monitor", "true");
    let two: &[u8] = &[1, 2];
    for (failing, change, age) in [
        (two, &other as &dyn Fn(&Wanted) -> Wanted, 0),
        (&[1, 2, 3], &other, 700),
        (&[1, 2, 3], &asked, 0),
    ] {
        let rig = Rig::new();
        let web = change(&standing(&rig, "web").await);
        fails(&rig, failing);
        for _ in 0..30 {
            rig.ensure(&web).await.unwrap();
            aged(&rig, age);
        }
        tokio::time::advance(long).await;
        let done = rig.settle(&web).await;
        let shown = (kinds(&rig), done.notes);
        assert_eq!(shown, (vec![json!("HTTP"), json!("HTTP")], vec![]), "{failing:?} {age}");
    }
    // A new load balancer has never served clients without monitors.
    let rig = Rig::new();
    fails(&rig, &[1, 2, 3]);
    rig.settle(&local("web")).await;
    aged(&rig, 60);
    let pools: Vec<_> = rig.rows("monitors").iter().map(|row| row["created_at"].clone()).collect();
    for (row, time) in rig.cloud.world.lock().octavia.pools.iter_mut().zip(pools) {
        row["created_at"] = time;
    }
    tokio::time::advance(long).await;
    let done = rig.restarted().settle(&local("web")).await;
    assert_eq!((kinds(&rig).len(), done.notes), (2, vec![]));
}

/// With `local-monitor: all`, three existing load balancers or a tenth of them get monitors in ten
/// minutes, but not in the first ten minutes of a process.
#[tokio::test(start_paused = true)]
async fn a_setting_reaches_those_that_stand_in_their_turn() {
    use ccm_cloud::{Depth, Scope};
    let first = Rig::new();
    let mut all = Vec::new();
    for number in 0..8 {
        all.push(standing(&first, &format!("web{number}")).await);
    }
    let mut options = first.options.clone();
    options.load_balancer.local_monitor = crate::config::LocalMonitor::All;
    let rig = Rig { options, ..first }.restarted();
    // Calls ensure for each load balancer that a list shows without a digest, as the controller
    // does.
    let round = async || {
        let list = rig.list(Scope::Cluster, Depth::Members).await.load_balancers;
        let mut due = 0;
        for web in &all {
            let own = list.iter().find(|it| {
                it.owner.as_ref().is_some_and(|owner| owner.uid == web.front_end.owner.uid)
            });
            if own.unwrap().digest.is_none() {
                due += 1;
                rig.settle(web).await;
            }
        }
        (due, rig.rows("monitors").len() / 2)
    };
    assert_eq!(round().await, (8, 0), "each is compared once");
    let done = rig.settle(&all[0]).await;
    assert_eq!(reasons(&done), [MISSING]);
    assert!(done.notes[0].message.contains("in their turn"), "{:?}", done.notes);
    for (expect, monitored) in [((3, 3), 3), ((3, 6), 6), ((2, 8), 8), ((0, 8), 8)] {
        assert_eq!(round().await.0, 0, "before the time is over");
        tokio::time::advance(super::super::pace::WINDOW).await;
        assert_eq!((round().await, monitored), (expect, expect.1));
    }
    assert_eq!(ports(&rig), [json!(31_999)]);
    for web in &all {
        assert_eq!(rig.settle(web).await.notes, []);
    }
}
