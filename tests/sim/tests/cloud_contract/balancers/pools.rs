//! Members by port, and whether a call has changed them.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Depth, MembersSet, Pool, Progress, Protocol};
use ccm_sim::cloud::balancers::{State, WriteKind};

use super::world::{changed, member, members, port, wanted};
use crate::rig::{Rig, Way};

/// Returns the pools of TCP ports, each with this many members.
fn pools(ports: &[u16], members: usize) -> Vec<Pool> {
    let pool = |port: &u16| Pool { protocol: Protocol::Tcp, port: *port, members, why_empty: None };
    ports.iter().map(pool).collect()
}

pub async fn members_are_shown_by_port(way: Way) {
    let rig = Rig::new(way).await;
    let both = Some(pools(&[80, 443], 3));
    let done = rig.settle(&wanted("web")).await;
    assert_eq!(done.pools, both, "after its creation");
    let id = done.id.as_str();
    let shown = async |depth| rig.shown(id, depth).await.pools;
    assert_eq!((shown(Depth::Members).await, shown(Depth::Summary).await), (both, None));
    let Ok(Progress::Done(set)) = rig.set_members("web", id, members(&[4, 5], &[1])).await else {
        panic!("not done")
    };
    let four = Some(pools(&[80, 443], 4));
    assert_eq!((&set.pools, shown(Depth::Members).await), (&four, four.clone()));
    // A port without a node port has no members, and therefore no pool.
    let more = changed(&wanted("web"), |front_end| {
        let mut bare = port(9000);
        (bare.protocol, bare.member_port) = (Protocol::Udp, None);
        front_end.ports = vec![port(80), bare, port(8080)];
    });
    rig.sim.balancers().configure(|settings| settings.traits.protocols.push(Protocol::Udp));
    let expect = Some(pools(&[80, 8080], 5));
    assert_eq!(rig.settle(&more).await.pools, expect);
    // The pools do not have members that another client has removed.
    rig.sim.balancers().update(id, |balancer| balancer.members.clear());
    assert_eq!(shown(Depth::Members).await, Some(pools(&[80, 8080], 0)));
}

/// The Service is older than the first node.
pub async fn an_empty_pool_is_filled(way: Way) {
    for shows_empty in [true, false] {
        let rig = Rig::new(way).await;
        rig.sim.balancers().configure(|settings| settings.shows_empty = shows_empty);
        let mut web = wanted("web");
        web.members = members(&[], &[]);
        let none = rig.settle(&web).await;
        assert_eq!(none.pools, Some(pools(&[80, 443], 0)));
        rig.written();
        web.members = members(&[1], &[]);
        let filled = rig.settle(&web).await;
        assert_eq!(filled.pools, Some(pools(&[80, 443], 1)));
        assert_eq!(rig.nodes("web"), ["node-1"]);
        assert_eq!(rig.written().len(), 1);
        // Also fills a pool that another client has emptied.
        rig.sim.balancers().update(&none.id, |balancer| balancer.members.clear());
        assert_eq!(rig.settle(&web).await.pools, filled.pools);
    }
}

/// A call that does not see the port of the members is not done, and changes nothing.
pub async fn what_was_not_seen_is_not_done(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.balancers().configure(|settings| settings.shows_empty = false);
    let mut web = wanted("web");
    web.members = members(&[], &[]);
    let id = rig.settle(&web).await.id;
    rig.written();
    let before = rig.only("web");
    for _ in 0..3 {
        let answer = rig.set_members("web", &id, members(&[1, 2], &[3])).await.unwrap();
        let Progress::NotSeen(why) = answer else { panic!("{answer:?}") };
        assert!(why.contains(&id), "{why}");
    }
    assert_eq!((rig.only("web"), rig.written()), (before, Vec::new()));
    // If the call names no members, no member is missing.
    let answer = rig.set_members("web", &id, members(&[], &[3])).await.unwrap();
    let Progress::Done(MembersSet { changed, pools: seen, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((changed, seen), (false, Some(pools(&[80, 443], 0))));
    // A full comparison finds the ports. Later changes of members see them.
    web.members = members(&[1], &[]);
    rig.settle(&web).await;
    let answer = rig.set_members("web", &id, members(&[1, 2], &[3])).await.unwrap();
    assert!(matches!(answer, Progress::Done(MembersSet { changed: true, .. })), "{answer:?}");
    assert_eq!(rig.nodes("web"), ["node-1", "node-2"]);
}

pub async fn an_answer_says_whether_it_has_changed_something(way: Way) {
    let rig = Rig::new(way).await;
    let id = rig.settle(&wanted("web")).await.id;
    let set = async |present: &[usize]| {
        let answer = rig.set_members("web", &id, members(present, &[])).await.unwrap();
        let Progress::Done(set) = answer else { panic!("{answer:?}") };
        set
    };
    rig.written();
    for (present, changes, count) in
        [(&[1, 2, 3, 4][..], true, 4), (&[1, 2, 3, 4], false, 4), (&[9], true, 5)]
    {
        let done = set(present).await;
        assert_eq!((done.changed, done.pools), (changes, Some(pools(&[80, 443], count))));
        assert_eq!(rig.written().len(), usize::from(changes));
    }
    // First a change by the call itself, then calls that only wait for it.
    let hour = Duration::from_secs(3600);
    rig.sim.balancers().configure(|settings| {
        (settings.times.configure, settings.times.members) = (hour, hour);
    });
    let answer = rig.set_members("web", &id, members(&[6], &[])).await.unwrap();
    let Progress::InProgress(waiting) = answer else { panic!("{answer:?}") };
    assert_eq!((waiting.changed, rig.written()[0].kind), (true, WriteKind::Members));
    let less = changed(&wanted("web"), |front_end| front_end.ports.truncate(1));
    let ends = || rig.sim.balancers().update(&id, |balancer| balancer.state = State::Ready);
    for (changes, then_ends) in [(false, false), (false, true), (true, false), (false, true)] {
        let answer = rig.ensure(&less).await.unwrap();
        let Progress::InProgress(waiting) = answer else { panic!("{answer:?}") };
        assert_eq!((waiting.changed, rig.written().len()), (changes, usize::from(changes)));
        assert!(!then_ends || ends());
    }
    let Ok(Progress::Done(done)) = rig.ensure(&less).await else { panic!("not done") };
    assert_eq!(done.pools, Some(pools(&[80], 6)));
}

/// The provider's own rules may exclude all members that the call names.
pub async fn why_there_is_no_member_is_said(way: Way) {
    let rig = Rig::new(way).await;
    let mut homeless = [member(1), member(2)];
    for member in &mut homeless {
        member.addresses.clear();
    }
    let mut web = wanted("web");
    web.members.present = Arc::new(homeless);
    let why = "none of 2 nodes has an IPv4 address";
    let expect = |pools: Option<Vec<Pool>>| {
        let pools = pools.unwrap();
        assert_eq!(pools.len(), 2);
        for pool in pools {
            assert_eq!((pool.members, pool.why_empty.as_deref()), (0, Some(why)));
        }
    };
    let done = rig.settle(&web).await;
    expect(done.pools);
    let answer = rig.set_members("web", &done.id, web.members.clone()).await.unwrap();
    let Progress::Done(set) = answer else { panic!("{answer:?}") };
    assert!(!set.changed);
    expect(set.pools);
    // A node that can be a member becomes one.
    web.members = members(&[3], &[]);
    assert_eq!(rig.settle(&web).await.pools, Some(pools(&[80, 443], 1)));
}
