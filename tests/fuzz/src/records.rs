//! Records of programs in objects, as others may have changed them: annotations of a Lease,
//! a Service, a Node. One object a line, after its kind.

use std::{collections::BTreeMap, hint::black_box, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind, LoadBalancerTraits};
use ccm_controller::brake::{
    Brake, Budget, Limit, Window,
    approval::{self, KEYS, SetApproval},
};
use ccm_kube::{
    store::{Rule, Stored},
    wire::{Kind, Received},
};
use ccm_objects::{Node, NodeLease, Service, ServiceReading, instance_gone, whose_node};
use ccm_runtime::leadership::{HANDOVER, LeaseAnnotations};
use route_ccm::ipam::HeldBlocks;
use serde_json::Value;
use service_ccm::plan::{
    self,
    losses::{self, Losses},
    marks::{Marks, mark},
    members::{Departures, Membership},
    orphans::Orphans,
};

/// The time of all inputs: 2026.
const NOW: At = At(Duration::from_secs(1_790_000_000));
const HOUR: Duration = Duration::from_hours(1);

/// Reads lines of a kind and an object.
pub(crate) fn read(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for (kind, object) in text.split('\n').filter_map(|line| line.split_once(' ')) {
        match kind {
            "lease" => lease(object),
            "service" => service(object),
            "node" => node(object),
            "kubelet" => drop(stored::<NodeLease>(object, &Rule::default())),
            _ => {}
        }
    }
}

fn stored<K: Kind + Stored<Wire = Received<K>, Kept = <K as Kind>::Kept>>(
    text: &str,
    rule: &Rule<<K as Kind>::Kept>,
) -> Option<K> {
    let wire: Received<K> = serde_json::from_str(text).ok()?;
    K::read(wire, rule).ok()
}

/// Reads the annotations of a Lease. What is handed over may be an object or, as in a real Lease, a
/// text.
fn lease(text: &str) {
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return };
    let texts = object.iter().map(|(key, value)| {
        (key.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    let texts: BTreeMap<&str, String> = texts.collect();
    let annotations = LeaseAnnotations::with(texts.clone());
    match SetApproval::read(KEYS, |key| annotations.get(key)) {
        Ok(Some(approval)) => {
            drop(approval.to_string());
            approval.covers(&BTreeMap::new());
            drop(approval.unless_over(NOW));
        }
        Ok(None) => {}
        Err(error) => drop(error.to_string()),
    }
    drop(annotations.handed_over());
    if let Some(left) = texts.get(HANDOVER) {
        handover(left);
    }
}

/// Reads the record that one leader leaves to the next one, in any program.
fn handover(text: &str) {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    for part in
        std::iter::once(&value).chain(value.as_object().into_iter().flat_map(|all| all.values()))
    {
        let part = part.to_string();
        if let Ok(window) = serde_json::from_str::<Window>(&part) {
            budget(window);
        }
        if let Ok(left) = serde_json::from_str::<Departures>(&part) {
            departures(left);
        }
        if let Ok(mut marks) = serde_json::from_str::<Marks>(&part) {
            marks.add_earlier(marks.clone());
            drop(marks.of_gone(|_| false, NOW - HOUR));
            marks.expire(NOW);
            shorten(|| marks.shorten());
        }
        drop(serde_json::from_str::<Vec<HeldBlocks>>(&part));
    }
}

fn budget(mut window: Window) {
    let budget = Budget { limit: Limit::Count(5), window: HOUR };
    let mut brake = Brake::<()>::resume(NOW, window.clone());
    brake.usage(NOW, 100, budget);
    black_box(brake.request(NOW, "uid", 100, budget)).ok();
    drop(Losses::resume(NOW, window.clone()).window(NOW - HOUR));
    drop(Orphans::resume(NOW, window.clone()).window(NOW - HOUR));
    shorten(|| window.sum_up());
}

fn departures(mut left: Departures) {
    let membership = Membership::resume(NOW, &left);
    membership.has_departures(NOW - HOUR);
    membership.add_departures(NOW - HOUR, &mut left);
    shorten(|| left.sum_up());
    left.retain(NOW - HOUR);
}

/// Checks that shortening ends.
fn shorten(mut step: impl FnMut() -> bool) {
    let steps = (0..100_000).take_while(|_| step()).count();
    assert!(steps < 100_000, "it can be shortened without end");
}

fn service(text: &str) {
    let kept = ServiceReading {
        classless: true,
        annotations: vec![String::new()],
        json: true,
        ..ServiceReading::default()
    };
    let Some(service) = stored::<Service>(text, &Rule { number: 1, kept: Some(kept) }) else {
        return;
    };
    let traits = LoadBalancerTraits {
        id_annotation: Some("loadbalancer.openstack.org/load-balancer-id".into()),
        ..LoadBalancerTraits::default()
    };
    black_box(plan::named(&service, &traits));
    black_box(plan::replaced(&service, None, "lb-1"));
    losses::is_shown(&service);
    black_box(losses::recorded(&service));
    let error = CloudError::new(ErrorKind::Conflict, "load balancer lb-1 is another's");
    drop(plan::of_name(&service, &traits, None, error.clone()));
    drop(plan::of_adoption(&service, error));
    for key in [plan::APPROVED, plan::RELEASE_APPROVED, plan::REPLACEMENT_APPROVED] {
        approval::is_marked_at(service.annotation(key), None, NOW);
    }
}

fn node(text: &str) {
    let Some(node) = stored::<Node>(text, &Rule::default()) else { return };
    black_box(mark(&node, &["ToBeDeletedByClusterAutoscaler".to_owned()], NOW));
    if let Some(proof) = node.annotation(instance_gone::KEY) {
        instance_gone::counts(proof, NOW);
    }
    let schemes = ["openstack".to_owned()];
    let id = node.provider_id.as_deref();
    black_box(whose_node(id, &schemes));
}
