//! The metrics of service-ccm. Upstream's four keep their names and bounds.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::clock;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_controller::machine::Door;
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Every, Family, Gauge, Histogram, computed, label, level, metrics};
use ccm_objects::Service;
use ccm_runtime::metrics::Metrics;
use strum::VariantArray;

use crate::{
    machine::{
        Machine, Numbers,
        effect::{Count, Ended},
    },
    plan::CallKind,
};

/// Bounds of upstream's histograms, in seconds.
const DOUBLING: [f64; 15] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
    16384.0,
];
/// Bounds of the time from the creation of a Service to its address, in seconds.
const PROVISIONING: [f64; 10] = [1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0];

label!(Ended);
label! {
    /// The purpose of a call to the cloud.
    struct Operation { "ensure", "set_members", "delete" }
}
label! {
    /// The kind of a write.
    struct Written { "protect", "status", "release" }
}

computed! {
    static STATES: usize { state } = {
        /// Services of type LoadBalancer by state, on the leader
        [ALPHA] Gauge ccm_service_load_balancers = |count| *count as f64;
    }
}

computed! {
    static NUMBERS: Numbers = {
        /// Members of load balancers that are held: their nodes are gone or changed, too many at once, on the leader
        [ALPHA] Gauge ccm_service_members_held = |all| all.members_held as f64;
        /// Load balancers that stay until a user approves their deletion, because the settings exclude the class of their Service, on the leader
        [ALPHA] Gauge ccm_service_releases_held = |all| all.releases_held as f64;
        /// Load balancers that are gone or have failed and are not replaced before that is proved or a user approves, on the leader
        [ALPHA] Gauge ccm_service_replacements_held = |all| all.replacements_held as f64;
        /// Services that wait because their namespace has as many load balancers as it may have, on the leader
        [ALPHA] Gauge ccm_service_limit_waiting = |all| all.waiting as f64;
        /// Services that are not of type LoadBalancer, have kept the finalizer for 5 minutes, and show no responsible controller, on the leader
        [ALPHA] Gauge ccm_service_unclaimed_finalizers = |all| all.unclaimed_finalizers as f64;
    }
}

computed! {
    static REFUSED: usize { part } = {
        /// Services with a refused address, host name or annotation of the provider, also if the Service still shows it, on the leader
        [ALPHA] Gauge ccm_service_refused_parts = |count| *count as f64;
    }
}

computed! {
    static NOT_SERVED: usize { class } = {
        /// Services of type LoadBalancer of a class that this program does not serve: of ten classes by name, the rest as other
        [ALPHA] Gauge ccm_service_not_served = |count| *count as f64;
    }
}

/// Computes the numbers of load balancers on each scrape. Without a machine all are zero: for the metrics
/// reference.
pub(crate) fn collect(metrics: &Metrics, door: Option<&Door<Machine>>) {
    let numbers = door.cloned();
    metrics.collect(NUMBERS.collector(move || {
        let numbers = numbers.as_ref().map(|door| door.read(Machine::numbers));
        vec![(Vec::new(), numbers.unwrap_or_default())]
    }));
    let states = door.cloned();
    metrics.collect(STATES.collector(move || {
        let states = states.as_ref().map(|door| door.read(|machine, _| machine.states()));
        series(&states.unwrap_or_default())
    }));
    let refused = door.cloned();
    metrics.collect(REFUSED.collector(move || {
        let counts = refused.as_ref().map(|door| door.read(|machine, _| machine.refused()));
        series(&counts.unwrap_or_default())
    }));
}

/// Returns one series for each value of a label.
fn series<K>(counts: &BTreeMap<K, usize>) -> Vec<(Vec<Cow<'static, str>>, usize)>
where
    K: VariantArray + Ord,
    for<'a> &'static str: From<&'a K>,
{
    let count = |one| counts.get(one).copied().unwrap_or_default();
    K::VARIANTS.iter().map(|one| (vec![<&str>::from(one).into()], count(one))).collect()
}

/// Computes on each scrape the number of Services that this program does not serve, by class.
pub(crate) fn collect_not_served(
    metrics: &Metrics,
    counts: impl Fn() -> BTreeMap<Arc<str>, usize> + Send + Sync + 'static,
) {
    metrics.collect(NOT_SERVED.collector(move || {
        counts().into_iter().map(|(class, count)| (vec![class.to_string().into()], count)).collect()
    }));
}

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct ServiceMetrics {
        /// Changes of the members of load balancers
        [ALPHA] service_controller_loadbalancer_sync => host_updates: Counter;
        /// Changes of the members of load balancers that failed
        [ALPHA] service_controller_nodesync_error => node_sync_errors: Counter;
        /// Time from a change of the set of nodes to the end of a call that passes it on to load balancers
        [ALPHA] service_controller_nodesync_latency_seconds => node_sync: Histogram, bounds DOUBLING;
        /// Duration of a call that changes members
        [ALPHA] service_controller_update_loadbalancer_host_latency_seconds => host_update: Histogram, bounds DOUBLING;
        /// Results of cloud operations, one per load balancer
        [ALPHA] ccm_service_operations { operation, result } => operations:
            Family<Counter, (Operation, Result<Ended, ErrorKind>)>;
        /// Writes to Services, by kind and by result at the API server
        [ALPHA] ccm_service_writes { kind, result } => writes: Family<Counter, (Written, Result<(), ApiReason>)>,
            begin (Every, Ok(()));
        /// Time from the creation of a Service to its address
        [ALPHA] ccm_service_provisioning_seconds => provisioning: Histogram, bounds PROVISIONING;
        /// Services whose address was replaced in their status, all causes together
        [ALPHA] ccm_service_address_changes => address_changes: Counter;
        /// Load balancers whose address a Service shows and that are not in the cloud any more, without an order of this program
        [ALPHA] ccm_service_load_balancers_gone => gone: Counter;
        /// Nodes that can be members of load balancers, on the leader
        [ALPHA] ccm_service_eligible_nodes => eligible: Gauge;
        /// Load balancers of this cluster without a Service, as of the last list
        [ALPHA] ccm_service_orphans => orphans: Gauge;
        /// Load balancers without a Service that are not deleted although the policy says so, on the leader
        [ALPHA] ccm_service_orphans_held => orphans_held: Gauge;
        /// Load balancers without a Service that were deleted
        [ALPHA] ccm_service_orphans_deleted => orphans_deleted: Counter;
        /// Lists of the cluster's load balancers, by result
        [ALPHA] ccm_service_audits { result } => audits: Family<Counter, Result<(), ErrorKind>>, begin [Ok(())];
    }
}

impl ServiceMetrics {
    /// Counts what has happened.
    pub(crate) fn count(&self, count: &Count) {
        let add_one = |counter: &Counter| {
            counter.inc();
        };
        let set = |gauge: &Gauge, count: &usize| {
            gauge.set(level(*count));
        };
        match count {
            Count::Ended(call, ended) => self.ended(*call, ended.as_ref().copied()),
            Count::Provisioned(service) => self.provisioned(service),
            Count::Gone => add_one(&self.gone),
            Count::AddressChanged => add_one(&self.address_changes),
            Count::Eligible(nodes) => set(&self.eligible, nodes),
            Count::Audited(orphans) => {
                if let Ok(orphans) = orphans {
                    set(&self.orphans, orphans);
                }
                let result = orphans.as_ref().map(drop).map_err(|error| error.kind);
                add_one(&self.audits.series(result));
            }
            Count::OrphansHeld(held) => set(&self.orphans_held, held),
            Count::OrphanDeleted => add_one(&self.orphans_deleted),
        }
    }

    /// Records how an operation ended for one load balancer.
    fn ended(&self, call: CallKind, result: Result<Ended, &CloudError>) {
        let result = result.map_err(|error| error.kind);
        if call == CallKind::Members {
            self.host_updates.inc();
            if result.is_err() {
                self.node_sync_errors.inc();
            }
        }
        let operation = match call {
            CallKind::DeleteDuplicate => CallKind::Delete.into(),
            call => call.into(),
        };
        self.operations.series((Operation(operation), result)).inc();
    }

    /// Records the duration of a call that changes members.
    pub(crate) fn members_changed(&self, took: Duration) {
        self.host_update.observe(took.as_secs_f64());
    }

    /// Records the end of a write of this kind.
    pub(crate) fn written(&self, kind: &'static str, result: Result<(), &ApiError>) {
        self.writes.series((Written(kind), result.map_err(ApiReason::from))).inc();
    }

    /// Records the age of a Service that has got its address.
    fn provisioned(&self, service: &Service) {
        let created = service.details.as_ref().and_then(|details| details.created);
        let age = created.map(|created| clock::wall().duration_since(created));
        if let Some(Ok(age)) = age.map(Duration::try_from) {
            self.provisioning.observe(age.as_secs_f64());
        }
    }

    /// Records the time from a change of the set of nodes to the end of a call about it.
    pub(crate) fn nodes_synced(&self, took: Duration) {
        self.node_sync.observe(took.as_secs_f64());
    }
}
