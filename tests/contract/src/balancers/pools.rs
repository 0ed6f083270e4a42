//! Members by port, and whether a call has changed them.

use ccm_cloud::{Depth, Members, MembersSet, Pool, Progress, Protocol, Wanted};

use crate::{
    Harm,
    lab::{Place, changed, homeless, members, nodes, port, tcp, wanted},
};

/// Returns the pools of TCP ports, each with this many members.
#[expect(clippy::unnecessary_wraps, reason = "it is compared with whole answers")]
fn pools(ports: &[u16], members: usize) -> Option<Vec<Pool>> {
    let pool = |port: &u16| Pool { protocol: Protocol::Tcp, port: *port, members, why_empty: None };
    Some(ports.iter().map(pool).collect())
}

/// Returns a wish without members, as of a Service that is older than the first node.
fn without_members() -> Wanted {
    Wanted { members: Members::default(), ..wanted("web") }
}

pub(crate) async fn members_are_shown_by_port(place: Place) {
    let lab = place.lab().await;
    let done = lab.settle(&wanted("web")).await;
    assert_eq!(done.pools, pools(&[80, 443], 3), "after its creation");
    let id = done.id.as_str();
    let shown = async || lab.shown(id, Depth::Members).await.pools;
    assert_eq!(shown().await, pools(&[80, 443], 3));
    let set = lab.members_set(&wanted("web"), id, members(&[4, 5], &[1])).await;
    assert_eq!((&set.pools, shown().await), (&pools(&[80, 443], 4), pools(&[80, 443], 4)));
    // A port without a node port has no members, and therefore no pool.
    let all = Wanted { members: members(&[1, 2, 3, 4, 5], &[]), ..wanted("web") };
    let more = changed(&all, |front_end| {
        let mut bare = port(9000, Protocol::Udp);
        bare.member_port = None;
        front_end.ports = vec![tcp(80), bare, tcp(8080)];
    });
    assert_eq!(lab.settle(&more).await.pools, pools(&[80, 8080], 5));
}

pub(crate) async fn an_empty_pool_is_filled(place: Place) {
    let lab = place.lab().await;
    let none = lab.settle(&without_members()).await;
    assert_eq!(none.pools, pools(&[80, 443], 0));
    lab.written();
    let filled = Wanted { members: members(&[1], &[]), ..wanted("web") };
    assert_eq!(lab.settle(&filled).await.pools, pools(&[80, 443], 1));
    assert_eq!(lab.only("web").nodes, nodes(&[1]));
    assert!(lab.written() <= 2, "one write for each pool at most");
    // The call also fills a pool that another client has emptied.
    lab.side().harm(&none.id, Harm::Members);
    assert_eq!(lab.settle(&filled).await.pools, pools(&[80, 443], 1));
}

/// A call that does not see the port of the members is not done, and changes nothing.
pub(crate) async fn what_was_not_seen_is_not_done(place: Place) {
    let lab = place.lab().await;
    let web = without_members();
    let id = lab.settle(&web).await.id;
    lab.restart();
    lab.written();
    let before = lab.only("web");
    for _ in 0..3 {
        let answer = lab.set_members(&web, &id, members(&[1, 2], &[3])).await.unwrap();
        let Progress::NotSeen(why) = answer else { panic!("{answer:?}") };
        assert!(why.contains(&id) || why.contains("member"), "{why}");
    }
    assert_eq!((lab.only("web"), lab.written()), (before, 0));
    // If the call does not name members, no member is missing.
    let answer = lab.set_members(&web, &id, members(&[], &[3])).await.unwrap();
    let Progress::Done(MembersSet { changed: false, .. }) = answer else { panic!("{answer:?}") };
    // A full comparison finds the ports. Later changes of members see them.
    lab.settle(&Wanted { members: members(&[1], &[]), ..web.clone() }).await;
    lab.members_set(&web, &id, members(&[1, 2], &[3])).await;
    assert_eq!(lab.only("web").nodes, nodes(&[1, 2]));
}

pub(crate) async fn an_answer_says_whether_it_has_changed_something(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let id = lab.settle(&web).await.id;
    // This takes several calls, each of which says what it has done itself.
    for (present, changes) in [(&[1, 2, 3, 4][..], true), (&[1, 2, 3, 4], false), (&[9], true)] {
        let mut changed = false;
        lab.written();
        loop {
            let answer = lab.set_members(&web, &id, members(present, &[])).await.unwrap();
            let own = match &answer {
                Progress::InProgress(waiting) => waiting.changed,
                Progress::Done(set) => set.changed,
                other => panic!("{other:?}"),
            };
            assert_eq!(own, lab.written() > 0, "{answer:?}");
            changed |= own;
            if let Progress::Done(set) = answer {
                assert_eq!(set.pools.unwrap()[0].members, lab.only("web").nodes.len());
                break;
            }
        }
        assert_eq!(changed, changes, "{present:?}");
    }
    // A call that only waits for the change of another one changes nothing itself.
    lab.side().hold(true);
    let answer = lab.set_members(&web, &id, members(&[6], &[])).await.unwrap();
    assert!(matches!(&answer, Progress::InProgress(waiting) if waiting.changed), "{answer:?}");
    let less = changed(&web, |front_end| front_end.ports.truncate(1));
    for _ in 0..2 {
        let answer = lab.ensure(&less).await.unwrap();
        assert!(matches!(&answer, Progress::InProgress(it) if !it.changed), "{answer:?}");
    }
    lab.side().hold(false);
    assert_eq!(lab.settle(&less).await.pools.unwrap().len(), 1);
}

/// The provider's own rules may exclude all members that the call names.
pub(crate) async fn why_there_is_no_member_is_said(place: Place) {
    let lab = place.lab().await;
    let none = Members { present: [homeless(1), homeless(2)].into(), ..Members::default() };
    let web = Wanted { members: none.clone(), ..wanted("web") };
    let expect = |pools: Option<Vec<Pool>>| {
        let pools = pools.unwrap();
        assert_eq!(pools.len(), 2);
        for pool in pools {
            let why = "none of 2 nodes has an IPv4 address";
            assert_eq!((pool.members, pool.why_empty.as_deref()), (0, Some(why)));
        }
    };
    let done = lab.settle(&web).await;
    expect(done.pools);
    let set = lab.members_set(&web, &done.id, none).await;
    assert!(!set.changed);
    expect(set.pools);
    // A node that can be a member becomes a member.
    let filled = Wanted { members: members(&[3], &[]), ..web };
    assert_eq!(lab.settle(&filled).await.pools, pools(&[80, 443], 1));
}
