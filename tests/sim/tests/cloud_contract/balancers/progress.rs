//! How a load balancer reaches its wanted state.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Cure, Depth, Digest, ErrorKind, IpFamily, Phase, Progress, Protocol, Title};
use ccm_sim::{
    cloud::balancers::{SimBalancer, WriteKind},
    faults::Trouble,
};

use super::world::{changed, ip, owner, port, wanted, with};
use crate::rig::{Rig, Way};

pub async fn finds_before_it_creates(way: Way) {
    let rig = Rig::new(way).await;
    // Names prove nothing: neither a person's load balancer nor another cluster's is taken.
    let name = "kubernetes_default_web";
    for id in ["by hand", "elsewhere"] {
        let mut other = SimBalancer::foreign(id, "10.9.9.9".parse().unwrap(), 80);
        other.name = name.to_owned();
        if id == "elsewhere" {
            other.owners = vec![super::world::namesake("web")];
        }
        rig.sim.balancers().add(other);
    }
    let fault = rig.trouble(&["web"], Trouble::LoseAnswer);
    for _ in 0..3 {
        assert!(rig.ensure(&wanted("web")).await.unwrap_err().maybe_done);
    }
    assert!(rig.sim.faults().remove(fault));
    let balancer = rig.settle(&wanted("web")).await;
    let made = rig.only("web");
    assert_eq!(
        (&balancer.id, &balancer.name, balancer.name.as_str()),
        (&made.id, &made.name, name)
    );
    assert_eq!((balancer.owner, balancer.title), (Some(owner("web")), Title::Ours));
    assert_eq!((balancer.phase, balancer.ingress), (Phase::Ready, ip(made.addresses[0])));
    assert_eq!(balancer.digest, Some(Digest { version: 1, hash: 1 }));
    assert_eq!((rig.written().len(), rig.sim.balancers().all().len()), (1, 3));
    for untouched in ["by hand", "elsewhere"] {
        assert_eq!(rig.sim.balancers().get(untouched).unwrap().version, 1);
    }
}

/// Each answer is lost, as if the process had ended, and the next call has only the cloud.
pub async fn any_process_continues_after_any_step(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.balancers().configure(|settings| settings.nested = false);
    let one = with(&wanted("web"), "sim/floating", "true");
    let two = changed(&one, |front_end| {
        front_end.ports = vec![port(80), port(8080)];
        front_end.affinity = Some(Duration::from_secs(60));
    });
    for (wanted, most) in [(one, 5), (two, 3)] {
        let fault = rig.trouble(&[], Trouble::LoseAnswer);
        let mut steps = 0;
        while rig.preview(&wanted).await.unwrap() != [""; 0] {
            assert!(rig.ensure(&wanted).await.unwrap_err().maybe_done);
            steps += 1;
            assert!(steps <= most, "{:?}", rig.written());
        }
        assert_eq!(rig.written().len(), most);
        assert!(rig.sim.faults().remove(fault));
        let Ok(Progress::Done(balancer)) = rig.ensure(&wanted).await else { panic!("not done") };
        assert_eq!(balancer.digest, Some(wanted.front_end.digest));
        assert_eq!(rig.nodes("web"), ["node-1", "node-2", "node-3"]);
        let ports: Vec<_> = wanted.front_end.ports.clone();
        let listeners = rig.only("web").configuration.listeners;
        assert_eq!(listeners.into_values().collect::<Vec<_>>(), ports);
        assert_eq!(rig.written(), []);
    }
}

pub async fn makes_one_change_per_call(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.balancers().configure(|settings| settings.nested = false);
    let floating = with(&wanted("web"), "sim/floating", "true");
    let more = changed(&floating, |front_end| front_end.ports = vec![port(1), port(2), port(3)]);
    for wanted in [floating, more] {
        for call in 0.. {
            let answer = rig.ensure(&wanted).await.unwrap();
            let written = rig.written().len();
            match answer {
                Progress::InProgress(waiting) => {
                    assert_eq!(written, 1, "call {call}");
                    assert_eq!(waiting.id, Some(rig.only("web").id));
                    assert_ne!(waiting.what, "");
                    assert!(waiting.request_id.is_some());
                }
                Progress::Done(_) => {
                    assert!(written <= 1 && call > 2, "call {call}");
                    break;
                }
                other => panic!("neither done nor in progress: {other:?}"),
            }
        }
    }
    // Where one write creates all of it, one call does.
    rig.sim.balancers().configure(|settings| settings.nested = true);
    assert!(matches!(rig.ensure(&wanted("api")).await, Ok(Progress::Done(_))));
    assert_eq!(rig.written().len(), 1);
}

pub async fn previews_what_it_then_does(way: Way) {
    for nested in [true, false] {
        let rig = Rig::new(way).await;
        rig.sim.balancers().configure(|settings| settings.nested = nested);
        let first = with(&wanted("web"), "sim/floating", "true");
        let mut second = changed(&wanted("web"), |front_end| {
            front_end.ports = vec![port(80), port(9090)];
            front_end.source_ranges = vec!["192.0.2.0/24".parse().unwrap()];
        });
        second.members = super::world::members(&[2, 3, 4], &[1]);
        let mut seen = 0;
        for wanted in [first, second] {
            let before = rig.sim.balancers().all();
            let lines = rig.preview(&wanted).await.unwrap();
            assert_eq!(rig.preview(&wanted).await.unwrap(), lines);
            assert_eq!(rig.sim.balancers().all(), before, "a preview changes nothing");
            assert_eq!(rig.written(), []);
            rig.settle(&wanted).await;
            let written: Vec<_> = rig.written().into_iter().map(|write| write.line).collect();
            assert_eq!(lines, written);
            assert_eq!(rig.preview(&wanted).await.unwrap(), [""; 0]);
            seen += lines.len();
        }
        assert_eq!(seen, if nested { 7 } else { 10 });
    }
}

pub async fn repairs_what_failed(way: Way) {
    let rig = Rig::new(way).await;
    let fault = rig.trouble(&["web"], Trouble::Break(Cure::Ensure));
    let answer = rig.ensure(&wanted("web")).await.unwrap();
    assert!(matches!(answer, Progress::InProgress(_)), "{answer:?}");
    assert!(rig.sim.faults().remove(fault));
    let broken = rig.only("web");
    let phase = rig.shown(&broken.id, Depth::Summary).await.phase;
    assert!(
        matches!(phase, Phase::Failed { cure: Cure::Ensure, ref why } if why.contains("ERROR"))
    );
    let repaired = rig.settle(&wanted("web")).await;
    assert_eq!((repaired.id, repaired.ingress), (broken.id.clone(), ip(broken.addresses[0])));
    assert_eq!(rig.sim.balancers().written(WriteKind::Create), 2);
    // Some failures need a person, and nothing is tried.
    rig.written();
    let fault = rig.trouble(&["web"], Trouble::Break(Cure::Person));
    let more = changed(&wanted("web"), |front_end| front_end.ports.truncate(1));
    rig.ensure(&more).await.unwrap();
    assert!(rig.sim.faults().remove(fault));
    let phase = rig.shown(&broken.id, Depth::Summary).await.phase;
    assert!(matches!(phase, Phase::Failed { cure: Cure::Person, .. }), "{phase:?}");
    assert_eq!(rig.ensure(&more).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(rig.written().len(), 1);
}

pub async fn another_controllers_are_elsewhere(way: Way) {
    let rig = Rig::new(way).await;
    let elsewhere = with(&wanted("web"), "sim/elsewhere", "type is external");
    let answer = rig.ensure(&elsewhere).await;
    assert_eq!(answer, Ok(Progress::Elsewhere("type is external".to_owned())));
    assert_eq!(rig.preview(&elsewhere).await, Ok(Vec::new()));
    assert_eq!((rig.sim.balancers().all(), rig.written()), (Vec::new(), Vec::new()));
}

pub async fn the_state_decides_and_not_the_digest(way: Way) {
    let rig = Rig::new(way).await;
    let old = wanted("web");
    let id = rig.settle(&old).await.id;
    rig.written();
    // Another version, or a missing one: no write, until something must change.
    let mut new = old.clone();
    Arc::make_mut(&mut new.front_end).digest = Digest { version: 2, hash: 99 };
    for stored in [Some(Digest { version: 1, hash: 1 }), None] {
        if stored.is_none() {
            rig.sim.balancers().update(&id, |balancer| balancer.applied = None);
        }
        let Ok(Progress::Done(balancer)) = rig.ensure(&new).await else { panic!("not done") };
        assert_eq!((balancer.digest, rig.written()), (stored, Vec::new()));
    }
    Arc::make_mut(&mut new.front_end).ports.truncate(1);
    assert_eq!(rig.settle(&new).await.digest, Some(Digest { version: 2, hash: 99 }));
    assert_eq!(rig.written().len(), 1, "the digest comes with the change");
    // The same version shows that something differs that the state does not.
    Arc::make_mut(&mut new.front_end).digest.hash = 100;
    assert_eq!(rig.settle(&new).await.digest, Some(Digest { version: 2, hash: 100 }));
    assert_eq!(rig.written().len(), 1);
    // Members are not part of it.
    new.members = super::world::members(&[1, 2, 3, 4], &[]);
    assert_eq!(rig.settle(&new).await.digest, Some(Digest { version: 2, hash: 100 }));
    assert_eq!(rig.written().len(), 1);
}

pub async fn repairs_foreign_writes(way: Way) {
    let rig = Rig::new(way).await;
    let id = rig.settle(&wanted("web")).await.id;
    let before = rig.shown(&id, Depth::Members).await;
    rig.written();
    rig.sim.balancers().update(&id, |balancer| {
        balancer.configuration.listeners.remove(&(Protocol::Tcp, 443));
        balancer.members.clear();
    });
    let heads = rig.shown(&id, Depth::Summary).await;
    assert_ne!(heads.version, before.version, "a foreign write is seen by the version");
    assert_eq!(heads.digest, before.digest, "and by nothing else in a list");
    let whole = rig.shown(&id, Depth::Members).await;
    assert_eq!((whole.digest, whole.members), (None, Some([].into())));
    rig.settle(&wanted("web")).await;
    let after = rig.shown(&id, Depth::Members).await;
    assert_eq!((after.digest, after.members), (before.digest, before.members));
    assert_ne!(after.version, heads.version, "and so is one of its own");
    assert_eq!(rig.written().len(), 2);
    // Deleted by another client: it is made again.
    rig.sim.balancers().remove(&id);
    assert_ne!(rig.settle(&wanted("web")).await.id, id);
}

pub async fn shows_no_address_before_the_final_one(way: Way) {
    let rig = Rig::new(way).await;
    let floating = with(&wanted("web"), "sim/floating", "true");
    let answer = rig.ensure(&floating).await.unwrap();
    assert!(matches!(answer, Progress::InProgress(_)), "{answer:?}");
    let made = rig.only("web");
    let shown = rig.shown(&made.id, Depth::Members).await;
    assert_eq!((shown.ingress, shown.digest), (Vec::new(), None), "it is made in part");
    let done = rig.settle(&floating).await;
    let addresses: Vec<_> = rig.sim.balancers().floating().into_iter().collect();
    assert_eq!(addresses.len(), 1);
    assert_eq!(addresses[0].1, Some(owner("web")));
    assert_eq!(done.ingress, ip(addresses[0].0));
    let done = rig.settle(&wanted("web")).await;
    assert_eq!(done.ingress, ip(made.addresses[0]));
    assert_eq!(rig.sim.balancers().floating().len(), 0, "it is released");
}

pub async fn keeps_the_address_of_what_was_deleted_by_others(way: Way) {
    let rig = Rig::new(way).await;
    let floating = with(&wanted("web"), "sim/floating", "true");
    let first = rig.settle(&floating).await;
    rig.sim.balancers().remove(&first.id);
    assert_eq!(rig.sim.balancers().floating().len(), 1);
    let second = rig.settle(&floating).await;
    assert_ne!(first.id, second.id);
    assert_eq!(first.ingress, second.ingress);
    assert_eq!(rig.sim.balancers().floating().len(), 1);
}

pub async fn refuses_what_the_cloud_cannot_be(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.balancers().configure(|settings| settings.traits.protocols = vec![Protocol::Tcp]);
    let good = wanted("web");
    let taken = rig.settle(&wanted("other")).await;
    let ccm_cloud::IngressAddress::Ip(taken) = taken.ingress[0].address else { panic!("no IP") };
    rig.written();
    let cases = [
        (changed(&good, |it| it.ports.clear()), ErrorKind::Invalid, "ports"),
        (changed(&good, |it| it.ports.push(port(80))), ErrorKind::Invalid, "80/TCP"),
        (changed(&good, |it| it.ports[0].protocol = Protocol::Udp), ErrorKind::Invalid, "80/UDP"),
        (changed(&good, |it| it.families.push(IpFamily::V6)), ErrorKind::Invalid, "families"),
        (with(&good, "sim/floating", "maybe"), ErrorKind::Invalid, "maybe"),
        (with(&good, "other/x", ""), ErrorKind::Invalid, "other/x"),
        (changed(&good, |it| it.address = "::1".parse().ok()), ErrorKind::Invalid, "::1"),
        (changed(&good, |it| it.address = Some(taken)), ErrorKind::Conflict, "address 10."),
    ];
    for (wanted, kind, subject) in cases {
        let error = rig.ensure(&wanted).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.subject.as_deref().is_some_and(|it| it.contains(subject)), "{error}");
        assert!(!error.maybe_done);
        assert_eq!(rig.preview(&wanted).await, Err(error));
    }
    assert_eq!(rig.written(), []);
    let asked = changed(&good, |front_end| front_end.address = "10.1.2.3".parse().ok());
    assert_eq!(rig.settle(&asked).await.ingress, ip("10.1.2.3".parse().unwrap()));
}
