//! Reads Octavia's answers, and Neutron's answers about the networks of load balancers.

use std::sync::Arc;

use ccm_cloud::{
    AddressKind, ClusterId, Depth, Digest, FrontEnd, FrontEndPort, IpFamily, LoadBalancer,
    LoadBalancerList, LoadBalancers as _, Member, MemberChange, Members, NodeAddress, Owner,
    Progress, Protocol, Scope, Traffic, Unwanted, Wanted,
};
use ccm_openstack_client::api::Api;
use ccm_testing::{check_line, checked};
use futures::StreamExt as _;

use super::played::{Played, Settings, call, paused};
use crate::balancers::OctaviaBalancers;

/// Reads Octavia's answers while a load balancer is made, changed and deleted.
pub fn octavia(data: &[u8]) {
    let (settings, cloud) = Played::split(data);
    paused(live(&settings, cloud));
}

fn cluster() -> ClusterId {
    ClusterId { name: "prod".to_owned(), uid: "c-1".to_owned() }
}

fn member(number: u8) -> Member {
    let address = NodeAddress::new(AddressKind::InternalIp, format!("10.8.1.{number}"));
    Member {
        node: format!("node-{number:05}"),
        provider_id: None,
        addresses: vec![address],
        labels: Arc::default(),
    }
}

fn members(numbers: &[u8]) -> Members {
    Members { present: numbers.iter().copied().map(member).collect(), absent: [].into() }
}

fn wanted(settings: &Settings) -> Wanted {
    let port = |number: u16, protocol| FrontEndPort {
        name: format!("port-{number}"),
        protocol,
        port: number,
        member_port: Some(30_000 + number),
        app_protocol: None,
    };
    let mut ports = vec![port(80, Protocol::Tcp), port(443, Protocol::Tcp)];
    ports.extend(settings.udp.then(|| port(53, Protocol::Udp)));
    let front_end = FrontEnd {
        owner: Owner {
            cluster: cluster(),
            uid: "uid-web".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        },
        digest: Digest { version: 1, hash: 1 },
        families: vec![IpFamily::V4],
        requires_families: false,
        ports,
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: match settings.local {
            true => Traffic::Local { health_check_port: 32_000 },
            false => Traffic::Cluster,
        },
        class: None,
        settings: settings.annotations.clone(),
        service: None,
    };
    Wanted {
        front_end: Arc::new(front_end),
        members: members(&[1, 2, 3]),
        known: None,
        adopt: None,
        shown: Vec::new(),
        may_replace: true,
    }
}

/// The provider, and what it has answered so far.
struct Play {
    balancers: OctaviaBalancers,
    known: Option<String>,
}

impl Play {
    async fn list(&self, scope: Scope, depth: Depth) {
        let listed = self.balancers.list(&cluster(), scope, depth, call()).await;
        let LoadBalancerList { load_balancers, malformed, .. } =
            checked(listed).unwrap_or_default();
        for line in &malformed {
            check_line(line);
        }
        load_balancers.iter().for_each(check);
    }

    async fn ensure(&mut self, wanted: &Wanted) {
        let wanted = Wanted { known: self.known.clone(), ..wanted.clone() };
        let one = std::slice::from_ref(&wanted);
        let answers: Vec<_> = self.balancers.ensure(one, call()).collect().await;
        assert_eq!(answers.len(), 1, "one answer");
        for answer in answers.into_iter().filter_map(|(_, answer)| checked(answer)) {
            match answer {
                Progress::Done(balancer) => {
                    check(&balancer);
                    self.known = Some(balancer.id);
                }
                Progress::Elsewhere(why) | Progress::NotSeen(why) => check_line(&why),
                Progress::Lost(loss) => check_line(&loss.why),
                Progress::InProgress(waiting) => self.known = waiting.id.or(self.known.take()),
            }
        }
        // A load balancer that was left alone after a failure is tried again.
        tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    }

    async fn preview(&self, wanted: &Wanted) {
        let one = std::slice::from_ref(wanted);
        for answer in self.balancers.preview(one, call()).collect::<Vec<_>>().await {
            checked(answer.1).unwrap_or_default().iter().for_each(|line| check_line(line));
        }
    }

    async fn set_members(&self, wanted: &Wanted, numbers: &[u8]) {
        let Some(id) = self.known.clone() else { return };
        let change = MemberChange {
            owner: wanted.front_end.owner.clone(),
            id,
            members: members(numbers),
            front_end: None,
            settings: wanted.front_end.settings.clone(),
        };
        let change = std::slice::from_ref(&change);
        for answer in self.balancers.set_members(change, call()).collect::<Vec<_>>().await {
            checked(answer.1);
        }
    }

    async fn delete(&self, wanted: &Wanted) {
        let unwanted = Unwanted {
            owner: wanted.front_end.owner.clone(),
            known: self.known.clone(),
            duplicate: false,
            settings: Some(wanted.front_end.settings.clone()),
            address: None,
            service: None,
        };
        let one = std::slice::from_ref(&unwanted);
        for answer in self.balancers.delete(one, call()).collect::<Vec<_>>().await {
            checked(answer.1);
        }
    }
}

fn check(balancer: &LoadBalancer) {
    assert!(!balancer.id.is_empty(), "a load balancer without an ID");
    balancer.notes.iter().for_each(|note| check_line(&note.message));
}

pub async fn live(settings: &Settings, api: Arc<dyn Api>) {
    let Some(config) = settings.config() else { return };
    let balancers = OctaviaBalancers::new(&api, config.clone());
    checked(balancers.learn(call()).await);
    let mut play = Play { balancers, known: None };
    let mut wanted = wanted(settings);
    for _ in 0..3 {
        play.ensure(&wanted).await;
    }
    play.list(Scope::Cluster, Depth::Summary).await;
    play.list(Scope::Ids(play.known.clone().into_iter().collect()), Depth::Members).await;
    play.set_members(&wanted, &[1, 2, 4]).await;
    let front_end = Arc::make_mut(&mut wanted.front_end);
    front_end.digest.hash += 1;
    front_end.ports.remove(0);
    play.preview(&wanted).await;
    for _ in 0..2 {
        play.ensure(&wanted).await;
    }
    for _ in 0..3 {
        play.delete(&wanted).await;
    }
}
