//! Lists.

use ccm_cloud::{Depth, ErrorKind, Member, Progress, Scope, Title, are_shown_as};
use ccm_sim::{
    cloud::{Operation, balancers::SimBalancer},
    faults::{Effect, Fault, Trouble},
};

use super::world::{changed, cluster, names, namesake, owner, unwanted, wanted};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

pub async fn lists_by_scope_and_depth(way: Way) {
    let rig = Rig::new(way).await;
    let web = rig.settle(&wanted("web")).await;
    let api = rig.settle(&wanted("api")).await;
    let add = |id: &str, owners| {
        let mut balancer = SimBalancer::foreign(id, [10, 0, 0, 1].into(), 80);
        balancer.owners = owners;
        rig.sim.balancers().add(balancer);
    };
    add("shared", vec![namesake("a"), owner("b"), namesake("c")]);
    add("shared by names", vec![names("a"), names("b")]);
    add("theirs", vec![namesake("a")]);
    add("theirs too", vec![namesake("a"), namesake("b")]);
    add("zero", Vec::new());
    let of = |names: &[&str]| Scope::Ids(names.iter().map(|&name| name.to_owned()).collect());
    let (one, two) = (web.id.as_str(), api.id.as_str());
    for (scope, expect) in [
        (Scope::All, vec![one, two, "shared", "shared by names", "theirs", "theirs too", "zero"]),
        (Scope::Cluster, vec![one, two, "shared"]),
        (of(&["zero", "none", two]), vec![two, "zero"]),
        (of(&[]), vec![]),
    ] {
        for depth in [Depth::Summary, Depth::Members] {
            let list = rig.list(scope.clone(), depth).await;
            assert_eq!(list.malformed, [""; 0]);
            let ids: Vec<_> = list.load_balancers.iter().map(|it| it.id.as_str()).collect();
            assert_eq!(ids, expect, "{scope:?}");
            for balancer in &list.load_balancers {
                assert_eq!(balancer.members.is_some(), depth == Depth::Members);
            }
        }
    }
    let shared = rig.shown("shared", Depth::Summary).await;
    assert_eq!((shared.title, shared.owner), (Title::Shared { others: 2 }, Some(owner("b"))));
    let shared = rig.shown("shared by names", Depth::Summary).await;
    assert_eq!((shared.title, shared.owner), (Title::Shared { others: 1 }, Some(names("a"))));
    for id in ["theirs too", "zero"] {
        assert_eq!(rig.shown(id, Depth::Summary).await.title, Title::Foreign);
    }
    let shown = rig.shown(one, Depth::Members).await;
    let members = shown.members.as_ref().expect("a deep look shows members");
    for (asked, shown) in wanted("web").members.present.iter().zip(&**members) {
        assert!(asked.node == shown.node && asked.is_shown_as(shown), "{shown:?}");
    }
    assert_eq!(members.len(), 3);
    let age = shown.age.expect("it has an age");
    assert!(shown.cost.is_some() && age < std::time::Duration::from_secs(60));
    assert!(shown.annotations.values().all(|value| value.as_deref() == Some(one)));
    assert_eq!(shown.annotations.len(), 2);
    let mut as_done = web.clone();
    as_done.age = shown.age;
    // Members that are as wanted may be those of the request.
    let done = std::mem::replace(&mut as_done.members, shown.members.clone());
    assert!(are_shown_as(&done.expect("an answer shows members"), members.iter()));
    assert_eq!(shown, as_done, "an ensured load balancer is shown as a list shows it");
}

pub async fn pages_are_counted(way: Way) {
    let rig = Rig::new(way).await;
    for number in 0..501 {
        let id = format!("lb {number:04}");
        rig.sim.balancers().add(SimBalancer::foreign(id, [10, 0, 0, 1].into(), 80));
    }
    rig.sim.reset_calls();
    assert_eq!(rig.list(Scope::All, Depth::Summary).await.load_balancers.len(), 501);
    assert_eq!(rig.sim.reset_calls().load_balancers.list, 2);
    assert_eq!(rig.list(Scope::Cluster, Depth::Summary).await.load_balancers, []);
    assert_eq!(rig.sim.reset_calls().load_balancers.list, 1, "an empty page is a call");
    let hole = Fault::new(Effect::Unavailable).on(Operation::ListLoadBalancers).after(1).times(1);
    rig.sim.faults().add(hole);
    let list = rig.balancers().list(&cluster(), Scope::All, Depth::Summary, call()).await;
    assert_eq!(list.unwrap_err().kind, ErrorKind::Unavailable, "a list with a hole is no list");
    // What the contract calls one call is one.
    rig.sim.reset_calls();
    rig.ensure_all(&["a", "b", "c"].map(wanted), call()).await;
    rig.preview(&wanted("a")).await.unwrap();
    let id = rig.only("a").id;
    rig.set_members("a", &id, wanted("a").members).await.unwrap();
    rig.delete(&unwanted("a", None)).await.unwrap();
    let calls = rig.sim.reset_calls();
    let of = calls.load_balancers;
    assert_eq!((of.ensure, of.preview, of.set_members, of.delete, of.list), (1, 1, 1, 1, 0));
    assert_eq!((of.items, calls.total()), (6, 4));
}

pub async fn malformed_entries_affect_no_others(way: Way) {
    let rig = Rig::new(way).await;
    for name in ["a", "b", "c"] {
        rig.settle(&wanted(name)).await;
    }
    let spoilt = rig.only("b").id;
    let fault = rig.trouble(&["b"], Trouble::Malformed);
    let list = rig.list(Scope::Cluster, Depth::Members).await;
    assert_eq!((list.load_balancers.len(), list.malformed.len()), (2, 1));
    assert!(list.malformed[0].contains(&spoilt), "{:?}", list.malformed);
    assert!(rig.sim.faults().remove(fault));
    // A list that lies proves nothing: the load balancers are found nevertheless.
    for (effect, most) in [(Effect::EmptyList, 0), (Effect::TruncatedList(1), 1)] {
        let fault = rig.sim.faults().add(Fault::new(effect));
        assert_eq!(rig.list(Scope::All, Depth::Summary).await.load_balancers.len(), most);
        assert!(matches!(rig.ensure(&wanted("b")).await, Ok(Progress::Done(_))));
        assert!(rig.sim.faults().remove(fault));
    }
    assert_eq!(rig.sim.balancers().all().len(), 3);
}

pub async fn a_provider_without_list_and_digests(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.balancers().configure(|settings| {
        let traits = &mut settings.traits;
        (traits.lists, traits.stores_digest) = (false, false);
        (traits.wants_service, traits.member_ids, traits.max_batch) = (true, true, 1);
    });
    let list = rig.balancers().list(&cluster(), Scope::All, Depth::Summary, call()).await;
    assert_eq!(list.unwrap_err().kind, ErrorKind::Unsupported);
    let with_service = |wanted| changed(&wanted, |it| it.service = Some("{}".into()));
    let mut both = ["web", "api"].map(wanted).map(with_service);
    let unknown = |member: &Member| Member { provider_id: None, ..member.clone() };
    both[0].members.present = both[0].members.present.iter().map(unknown).collect();
    for answer in rig.ensure_all(&both, call()).await {
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Invalid, "two are one too many");
    }
    assert_eq!(rig.ensure(&wanted("web")).await.unwrap_err().kind, ErrorKind::Invalid);
    let done = rig.settle(&both[0]).await;
    assert_eq!((done.digest, done.members), (None, Some([].into())), "no provider IDs");
    let again = changed(&both[0], |_| {});
    rig.written();
    assert!(matches!(rig.ensure(&again).await, Ok(Progress::Done(_))));
    assert_eq!(rig.written(), [], "a digest that is not stored is no difference");
    let error = rig.set_members("web", &done.id, wanted("web").members).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "it needs the Service, too");
}
