//! Members: nothing is removed by a mistake.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Depth, ErrorKind, Member, Members, Progress, Wanted};
use ccm_sim::cloud::balancers::WriteKind;

use super::world::{changed, member, members, wanted, with, without_time};
use crate::rig::{Rig, Way};

pub async fn a_thin_view_removes_no_member(way: Way) {
    let rig = Rig::new(way).await;
    let mut all = wanted("web");
    all.members = members(&[1, 2, 3, 4, 5], &[]);
    let id = rig.settle(&all).await.id;
    let five = rig.nodes("web");
    assert_eq!(five.len(), 5);
    rig.written();
    for thin in [members(&[], &[]), members(&[2], &[]), members(&[4, 5], &[9])] {
        rig.members_set("web", &id, thin.clone()).await;
        let Ok(Progress::Done(_)) = rig.ensure(&Wanted { members: thin, ..all.clone() }).await
        else {
            panic!("not done")
        };
        assert_eq!((rig.nodes("web"), rig.written()), (five.clone(), Vec::new()));
    }
    // What is named leaves, and what is in both lists stays.
    rig.set_members("web", &id, members(&[1, 6], &[1, 2, 3])).await.unwrap();
    assert_eq!(rig.nodes("web"), ["node-1", "node-4", "node-5", "node-6"]);
    assert_eq!(rig.written().len(), 1, "one write for all of it");
}

pub async fn the_last_member_stays(way: Way) {
    let rig = Rig::new(way).await;
    let mut web = wanted("web");
    let id = rig.settle(&web).await.id;
    let none = members(&[], &[1, 2, 3]);
    rig.members_set("web", &id, none.clone()).await;
    let last = rig.nodes("web");
    assert_eq!(last.len(), 1);
    rig.written();
    web.members = none.clone();
    rig.members_set("web", &id, none).await;
    assert!(matches!(rig.ensure(&web).await, Ok(Progress::Done(_))));
    assert_eq!((rig.nodes("web"), rig.written()), (last, Vec::new()));
    // It leaves when another one comes. A member that cannot be added does not count.
    let mut homeless = member(7);
    homeless.addresses.clear();
    let unusable = Members { present: [homeless].into(), ..members(&[], &[1, 2, 3]) };
    rig.set_members("web", &id, unusable).await.unwrap();
    assert_eq!(rig.nodes("web").len(), 1);
    rig.set_members("web", &id, members(&[8], &[1, 2, 3])).await.unwrap();
    assert_eq!(rig.nodes("web"), ["node-8"]);
    // By a call about everything as well.
    web.members = members(&[], &[8]);
    rig.settle(&web).await;
    assert_eq!(rig.nodes("web"), ["node-8"]);
}

pub async fn members_follow_while_the_configuration_is_wrong(way: Way) {
    let rig = Rig::new(way).await;
    let id = rig.settle(&wanted("web")).await.id;
    let before = rig.only("web");
    rig.written();
    let wrong = with(&wanted("web"), "sim/floating", "maybe");
    assert_eq!(rig.ensure(&wrong).await.unwrap_err().kind, ErrorKind::Invalid);
    rig.members_set("web", &id, members(&[4], &[1])).await;
    let written = rig.written();
    assert_eq!((written.len(), written[0].kind), (1, WriteKind::Members));
    assert_eq!(rig.nodes("web"), ["node-2", "node-3", "node-4"]);
    let mut after = without_time(rig.only("web"));
    after.members.clone_from(&before.members);
    assert_eq!(after, without_time(before), "nothing else is changed, the digest neither");
    // A configuration that waits to be applied is not applied with the members.
    rig.sim.balancers().update(&id, |balancer| balancer.configuration.source_ranges.clear());
    let held = changed(&wanted("web"), |front_end| front_end.ports.truncate(1));
    rig.set_members("web", &id, held.members).await.unwrap();
    assert_eq!(rig.only("web").configuration.listeners.len(), 2);
}

pub async fn a_bad_member_affects_no_others(way: Way) {
    let rig = Rig::new(way).await;
    let id = rig.settle(&wanted("web")).await.id;
    let before = rig.only("web").members;
    let mut bad = [member(1), member(4)];
    for member in &mut bad {
        member.addresses.clear();
    }
    let [known, new] = bad;
    let moved = Member { addresses: member(33).addresses, ..member(3) };
    let present: Arc<[Member]> = [known, member(2), moved.clone(), new, member(5)].into();
    let change = Members { present, ..Members::default() };
    rig.members_set("web", &id, change).await;
    assert_eq!(rig.nodes("web"), ["node-1", "node-2", "node-3", "node-5"]);
    let after = rig.only("web").members;
    assert_eq!(after[..2], before[..2], "one without an address stays as it was");
    let third = after.iter().find(|member| member.node == "node-3").unwrap();
    assert!(moved.is_shown_as(third), "one with another address is replaced");
}

/// The audit compares versions: it must know the version of our own write.
pub async fn a_change_of_members_answers_with_its_version(way: Way) {
    let rig = Rig::new(way).await;
    let created = rig.settle(&wanted("web")).await;
    let id = created.id.as_str();
    let version = rig.members_set("web", id, members(&[4], &[1])).await;
    let shown = async || rig.shown(id, Depth::Summary).await.version;
    assert!(version.is_some() && version != created.version, "{version:?}");
    assert_eq!(shown().await, version);
    let again = rig.members_set("web", id, members(&[4], &[1])).await;
    assert_eq!((again, rig.written().len()), (version.clone(), 2), "nothing had to change");
    // Another client's write changes it: it is not the version that we know.
    rig.sim.balancers().update(id, |balancer| balancer.members.clear());
    assert_ne!(shown().await, version);
    // While the cloud works there is no version yet; the next call has it.
    rig.sim.balancers().configure(|settings| settings.times.members = Duration::from_millis(1));
    let answer = rig.set_members("web", id, members(&[5], &[])).await.unwrap();
    assert!(matches!(answer, Progress::InProgress(_)), "{answer:?}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let version = rig.members_set("web", id, members(&[5], &[])).await;
    assert_eq!(version, shown().await);
}
