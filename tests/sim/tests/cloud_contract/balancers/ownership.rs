//! Only what is the owner's is changed, and what is gone is proven.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{
    CloudError, ClusterId, Depth, ErrorKind, Owner, Phase, Progress, ProofMethod, Scope, Title,
    Unwanted, Wanted,
};
use ccm_sim::{
    cloud::{
        Operation,
        balancers::{SimBalancer, WriteKind},
    },
    faults::{Effect, Fault},
};

use super::world::{
    Terms, changed, members, names, namesake, owner, port, unwanted, wanted, with, without_time,
};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

/// A person's, one of an older controller, one of another cluster of this name, one of another
/// owner, and one that is shared.
fn add_strangers(rig: &Rig) -> [&'static str; 5] {
    let ids = ["person's", "older", "rebuilt", "neighbour's", "shared"];
    for (id, number) in ids.into_iter().zip(1..) {
        let mut balancer = SimBalancer::foreign(id, [10, 0, 0, number].into(), 80);
        match id {
            "older" => balancer.made_for = Some(names("web")),
            "rebuilt" => balancer.owners = vec![namesake("web")],
            "neighbour's" => balancer.owners = vec![owner("api")],
            "shared" => balancer.owners = vec![owner("web"), owner("api")],
            _ => {}
        }
        rig.sim.balancers().add(balancer);
    }
    ids
}

pub async fn changes_only_what_is_its_owners(way: Way) {
    let rig = Rig::new(way).await;
    let ids = add_strangers(&rig);
    let before = rig.sim.balancers().all();
    for id in ids {
        let known = Wanted { known: Some(id.to_owned()), ..wanted("web") };
        let mut errors = vec![
            rig.ensure(&known).await.unwrap_err(),
            rig.preview(&known).await.unwrap_err(),
            rig.delete(&unwanted("web", Some(id))).await.unwrap_err(),
            rig.delete(&Unwanted { duplicate: true, ..unwanted("web", Some(id)) })
                .await
                .unwrap_err(),
        ];
        if id != "shared" {
            errors.push(rig.set_members("web", id, members(&[9], &[])).await.unwrap_err());
        }
        for error in errors {
            assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
            assert!(error.subject.as_deref().is_some_and(|it| it.contains(id)), "{error}");
        }
    }
    assert_eq!(rig.sim.balancers().all(), before);
    assert_eq!(rig.written(), []);
    // Without the hint they do not matter, except the one that is its own.
    rig.sim.balancers().remove("shared");
    let own = rig.settle(&wanted("web")).await;
    let done = rig.delete(&unwanted("web", None)).await.unwrap();
    assert!(matches!(done, Progress::Done(_)), "{done:?}");
    assert_eq!(rig.sim.balancers().get(&own.id), None);
    assert_eq!(rig.sim.balancers().all(), before[..4]);
}

pub async fn a_proof_says_that_nothing_is_left(way: Way) {
    let rig = Rig::new(way).await;
    let floating = with(&wanted("web"), "sim/floating", "true");
    for (known, method) in [(true, ProofMethod::ById), (false, ProofMethod::ByOwner)] {
        for by_hand in [false, true] {
            let id = rig.settle(&floating).await.id;
            rig.settle(&wanted("other")).await;
            if by_hand {
                rig.sim.balancers().remove(&id);
            }
            rig.written();
            let unwanted = unwanted("web", known.then_some(&id));
            let mut steps = 0;
            let proof = loop {
                steps += 1;
                assert!(steps <= 3, "it ends");
                let answer = rig.delete(&unwanted).await.unwrap();
                assert_eq!(rig.written().len(), 1, "one step per call");
                match answer {
                    Progress::Done(proof) => break proof,
                    Progress::InProgress(_) => {
                        assert!(!rig.sim.balancers().of(&owner("web")).is_empty());
                    }
                    other => panic!("neither done nor in progress: {other:?}"),
                }
            };
            assert_eq!(proof.method, method);
            let names = if known { &id } else { "default/web" };
            assert!(proof.evidence.contains(names), "{proof:?}");
            assert!(proof.request_id.is_some());
            assert_eq!(rig.sim.balancers().of(&owner("web")), []);
            assert_eq!(rig.sim.balancers().floating().len(), 0);
            rig.only("other");
            let again = rig.delete(&unwanted).await.unwrap();
            assert!(matches!(again, Progress::Done(_)) && rig.written().is_empty());
        }
    }
}

/// The address stays if the setting asks for it, the Service is unknown, or the Service names it.
pub async fn a_kept_address_outlives_its_load_balancer(way: Way) {
    for case in ["setting", "unknown", "address", "asked for"] {
        let rig = Rig::new(way).await;
        let mut floating = with(&wanted("web"), "sim/floating", "true");
        if case == "asked for" {
            Arc::make_mut(&mut floating.front_end).address = "100.64.7.7".parse().ok();
        }
        let shown = rig.settle(&floating).await.ingress;
        let address = *rig.sim.balancers().floating().first_key_value().unwrap().0;
        assert_eq!(shown, super::world::ip(address));
        let mut keeping = unwanted("web", None);
        match case {
            "setting" => {
                let keep = [("sim/keep-address".to_owned(), "true".to_owned())];
                keeping.settings = Some(keep.into());
            }
            "unknown" => keeping.settings = None,
            "address" => keeping.address = Some(address),
            // The floating address records that the Service asked for it.
            _ => {}
        }
        rig.deleted(&keeping).await;
        let kept: Vec<_> = rig.sim.balancers().floating().into_iter().collect();
        assert_eq!(kept, [(address, None)], "{case}");
        let again = rig.delete(&keeping).await.unwrap();
        assert!(matches!(again, Progress::Done(_)), "nothing is left to be done: {case}");
        // Another Service must not get the address; the next Service of the same name may.
        let asks = |owner: Owner| {
            changed(&with(&wanted("web"), "sim/floating", "true"), |front_end| {
                (front_end.owner, front_end.address) = (owner.clone(), Some(address));
            })
        };
        let other = asks(owner("api"));
        let error = rig.ensure(&other).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{case}: {error}");
        assert_eq!(rig.preview(&other).await, Err(error));
        let next = asks(Owner { uid: "next".to_owned(), ..owner("web") });
        assert_eq!(rig.settle(&next).await.ingress, super::world::ip(address), "{case}");
        assert_eq!(rig.ensure(&other).await.unwrap_err().kind, ErrorKind::Conflict);
        // This Service has asked for the address, so the address stays again.
        let gone = Unwanted { owner: next.front_end.owner.clone(), ..unwanted("web", None) };
        rig.deleted(&gone).await;
        assert_eq!(rig.sim.balancers().floating().len(), 1, "{case}");
    }
}

/// Two processes look, find nothing, and create.
async fn race(rig: &Rig) -> usize {
    let web = with(&wanted("web"), "sim/floating", "true");
    let slow = Fault::new(Effect::Latency(Duration::from_millis(200)));
    let slow = rig.sim.faults().add(slow.on(Operation::EnsureLoadBalancers));
    let both = tokio::join!(rig.ensure(&web), rig.ensure(&web));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    assert!(rig.sim.faults().remove(slow));
    rig.sim.balancers().of(&owner("web")).len()
}

pub async fn two_of_one_owner_are_listed_and_one_is_deleted(way: Way) {
    let rig = Rig::new(way).await;
    assert_eq!(race(&rig).await, 2);
    let list = rig.list(Scope::Cluster, Depth::Summary).await.load_balancers;
    let [older, younger] = &list[..] else { panic!("{list:#?}") };
    for balancer in [older, younger] {
        assert_eq!((&balancer.title, &balancer.owner), (&Title::Ours, &Some(owner("web"))));
    }
    // The one named in the Service is brought up to date, else the oldest. The other is left.
    let web = with(&wanted("web"), "sim/floating", "true");
    let named = Wanted { known: Some(younger.id.clone()), ..web.clone() };
    assert_eq!(rig.settle(&named).await.id, younger.id);
    assert_eq!(rig.settle(&web).await.id, older.id);
    let floating = rig.sim.balancers().floating();
    assert_eq!(floating.len(), 2);
    // Only the duplicate is deleted, with its own address.
    let kept = without_time(rig.sim.balancers().get(&younger.id).unwrap());
    let address = rig.settle(&named).await.ingress;
    let duplicate = Unwanted { duplicate: true, ..unwanted("web", Some(&older.id)) };
    let proof = rig.deleted(&duplicate).await;
    assert_eq!(proof.method, ProofMethod::ById);
    assert!(proof.evidence.contains(&older.id), "{proof:?}");
    assert_eq!(without_time(rig.only("web")), kept);
    assert_eq!(rig.settle(&web).await.ingress, address);
    assert_eq!(rig.sim.balancers().floating().len(), 1);
    // The last one is not a duplicate.
    let only = Unwanted { duplicate: true, ..unwanted("web", Some(&younger.id)) };
    assert_eq!(rig.delete(&only).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(without_time(rig.only("web")), kept);
    // A cloud that can refuse the second one does.
    let rig = Rig::new(way).await;
    rig.sim.balancers().configure(|settings| settings.fences = true);
    assert_eq!(race(&rig).await, 1);
}

pub async fn a_former_leader_is_refused(way: Way) {
    for fences in [true, false] {
        let gate = Arc::new(Terms::default());
        let rig = Rig::behind(way, Arc::clone(&gate) as _).await;
        rig.sim.balancers().configure(|settings| settings.fences = fences);
        gate.set(2);
        let id = rig.settle(&wanted("web")).await.id;
        assert_eq!(rig.written()[0].term, Some(2));
        gate.set(1);
        let errors = [
            rig.ensure(&wanted("api")).await.err(),
            rig.set_members("web", &id, members(&[9], &[])).await.err(),
            rig.delete(&unwanted("web", None)).await.err(),
        ];
        for error in &errors {
            assert_eq!(error.as_ref().map(|error| error.kind), fences.then_some(ErrorKind::Stale));
        }
        if fences {
            let subjects = errors.iter().flatten().map(|error| error.subject.as_deref());
            assert_eq!(subjects.collect::<Vec<_>>(), [Some("term"); 3]);
            let mut classes = errors.iter().flatten().map(CloudError::class);
            assert!(classes.all(|class| class == RetryClass::Permanent), "another one leads");
        }
        assert_eq!(rig.written().len(), if fences { 0 } else { 3 });
        // It may look, and the next leader may write.
        rig.list(Scope::All, Depth::Members).await;
        gate.set(3);
        rig.settle(&wanted("web")).await;
        rig.settle(&wanted("api")).await;
        // A Lease belongs to one cluster.
        gate.set(1);
        let mut other = wanted("web");
        Arc::make_mut(&mut other.front_end).owner = namesake("web");
        rig.settle(&other).await;
    }
}

pub async fn adoption_changes_only_the_record(way: Way) {
    for other_uid in [false, true] {
        let rig = Rig::new(way).await;
        let made = rig.settle(&wanted("web")).await;
        rig.sim.balancers().update(&made.id, |balancer| {
            balancer.owners.clear();
            match other_uid {
                true => balancer.owners.push(namesake("web")),
                false => balancer.made_for = Some(names("web")),
            }
            balancer.applied = None;
            balancer.members.iter_mut().for_each(|member| member.node.clear());
        });
        let before = rig.sim.balancers().get(&made.id).unwrap();
        rig.written();
        let shown = rig.shown(&made.id, Depth::Summary).await;
        assert!(matches!(shown.title, Title::Adoptable { .. }), "{shown:?}");
        // It says for which Service it was made, with UIDs or without.
        let made_for = if other_uid { namesake("web") } else { names("web") };
        assert_eq!(shown.owner, Some(made_for));
        assert_eq!(rig.list(Scope::Cluster, Depth::Summary).await.load_balancers, []);
        let elsewhere = ClusterId { name: "other".to_owned(), uid: "other".to_owned() };
        let list = rig.balancers().list(&elsewhere, Scope::All, Depth::Summary, call()).await;
        assert_eq!(list.unwrap().load_balancers[0].title, Title::Foreign);

        let adopting = Wanted { adopt: Some(made.id.clone()), ..wanted("web") };
        assert_eq!(rig.preview(&adopting).await.unwrap().len(), 1);
        let Ok(Progress::Done(adopted)) = rig.ensure(&adopting).await else { panic!("not done") };
        assert_eq!((adopted.title, adopted.owner), (Title::Ours, Some(owner("web"))));
        let expect = SimBalancer { owners: vec![owner("web")], made_for: None, ..before };
        assert_eq!(without_time(rig.only("web")), without_time(expect));
        // Again, and as an ordinary load balancer.
        assert!(matches!(rig.ensure(&adopting).await, Ok(Progress::Done(_))));
        assert!(matches!(rig.ensure(&wanted("web")).await, Ok(Progress::Done(_))));
        assert_eq!(rig.written().len(), 1);
    }
    let rig = Rig::new(way).await;
    for id in add_strangers(&rig) {
        let adopting = Wanted { adopt: Some(id.to_owned()), ..wanted("db") };
        let may = ["older", "rebuilt"].contains(&id);
        assert_eq!(rig.preview(&adopting).await.is_ok(), may, "{id}");
        if !may {
            assert_eq!(rig.ensure(&adopting).await.unwrap_err().kind, ErrorKind::Conflict);
        }
    }
    assert_eq!(rig.written(), []);
    // With other changes to follow, the first call records the owner and nothing else.
    let older = rig.sim.balancers().get("older").unwrap();
    let adopting = Wanted { adopt: Some("older".to_owned()), ..wanted("db") };
    assert!(matches!(rig.ensure(&adopting).await, Ok(Progress::InProgress(_))));
    assert_eq!(rig.written().len(), 1);
    let expect = SimBalancer { owners: vec![owner("db")], made_for: None, ..older };
    assert_eq!(without_time(rig.only("db")), without_time(expect));
    // An owner has one load balancer, not a second one by adoption.
    let second = Wanted { adopt: Some("rebuilt".to_owned()), ..wanted("db") };
    assert_eq!(rig.ensure(&second).await.unwrap_err().kind, ErrorKind::Conflict);
    let none = Wanted { adopt: Some("none".to_owned()), ..wanted("new") };
    assert_eq!(rig.ensure(&none).await.unwrap_err().kind, ErrorKind::NotFound);
}

/// While the cloud works, nothing else is written.
pub async fn nothing_is_changed_while_the_cloud_works(way: Way) {
    let rig = Rig::new(way).await;
    let hour = Duration::from_hours(1);
    rig.sim.balancers().configure(|settings| settings.times.create = hour);
    let Ok(Progress::InProgress(waiting)) = rig.ensure(&wanted("web")).await else {
        panic!("not in progress")
    };
    assert!(waiting.what.contains("PENDING_CREATE"), "{waiting:?}");
    assert_eq!(waiting.check_after, Duration::from_secs(1));
    let id = waiting.id.unwrap();
    let made = rig.only("web");
    rig.written();
    let phase = rig.shown(&id, Depth::Summary).await.phase;
    assert!(matches!(phase, Phase::Pending(_)), "{phase:?}");
    let more = changed(&wanted("web"), |front_end| front_end.ports.push(port(8080)));
    let busy = rig.set_members("web", &id, members(&[9], &[])).await.unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Busy, "{busy}");
    assert!(matches!(rig.ensure(&more).await, Ok(Progress::InProgress(_))));
    let deleting = unwanted("web", Some(&id));
    assert!(matches!(rig.delete(&deleting).await, Ok(Progress::InProgress(_))));
    assert_eq!((rig.written(), rig.only("web")), (Vec::new(), made));
    // It ends, and each of them goes through.
    rig.sim.balancers().configure(|settings| settings.times.delete = hour);
    rig.sim.balancers().update(&id, |it| it.state = ccm_sim::cloud::balancers::State::Ready);
    rig.set_members("web", &id, members(&[9], &[])).await.unwrap();
    rig.settle(&more).await;
    assert!(matches!(rig.delete(&deleting).await, Ok(Progress::InProgress(_))));
    assert_eq!(rig.sim.balancers().written(WriteKind::Delete), 1);
    let again = rig.ensure(&more).await;
    assert!(matches!(again, Ok(Progress::InProgress(_))), "no second one while it is deleted");
    assert_eq!(rig.sim.balancers().written(WriteKind::Create), 0);
}
