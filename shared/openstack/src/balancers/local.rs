//! Health monitors that the provider adds to Services with `externalTrafficPolicy: Local`. Pure.
//!
//! Only nodes with a pod of such a Service serve clients, and Octavia needs checks to find them.
//! New load balancers get monitors, and load balancers whose Service changes. By default, other
//! load balancers do not: if the checks do not reach the nodes, Octavia would stop the traffic.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind, FrontEnd, Note, Protocol, Traffic, Waiting};
use ccm_openstack_client::lbaas::{BalancerRow, ListenerRow, MonitorRow, PoolRow};
use jiff::Timestamp;
use serde_json::json;

use super::{
    annotations::{PREFIX, Settings, remark},
    current::{Seen, since, time},
    features::Features,
    job::Job,
    names,
    spec::{HTTP, Unasked, key},
    steps::{Act, Step},
    view,
};

/// A pool that is at least this old when it gets a monitor has served clients before.
const SERVED: Duration = Duration::from_mins(10);
/// The age limit of a new monitor. A restarted process does not know what its monitors have found.
const NEW: Duration = Duration::from_mins(10);
/// The provider does not wait for first results that take longer than this.
const LONGEST: Duration = Duration::from_mins(5);
/// The maximum delay before the controller checks a load balancer with pending results again. Until
/// then, the controller changes neither its members nor its configuration.
const LOOK: Duration = Duration::from_secs(10);
/// The maximum time until Octavia shows the result of a check.
const SHOWN: Duration = Duration::from_secs(15);

/// Decides about the monitors of a load balancer that exists.
pub fn decide(seen: &Seen, job: &Job<'_>) -> Unasked {
    let wanted = job.wanted.front_end.digest;
    if names::taken_back(&seen.row.tags) == Some(wanted) {
        return Unasked::TakenBack;
    }
    let changes = wanted.differs_from(names::digest(&seen.row.tags));
    // This completes the monitors that this process or an earlier one has begun to add.
    let is_begun = || checked(seen, &job.wanted.front_end).next().is_some();
    if changes || job.adds_monitors || is_begun() { Unasked::Added } else { Unasked::Kept }
}

fn is_wanted(listener: &ListenerRow, front_end: &FrontEnd) -> bool {
    front_end.ports.iter().any(|port| (port.protocol, port.port) == key(listener))
}

/// Returns the pools of the Service's ports that have HTTP monitors.
fn checked<'a>(
    seen: &'a Seen,
    front_end: &'a FrontEnd,
) -> impl Iterator<Item = (&'a ListenerRow, &'a PoolRow, &'a MonitorRow)> {
    let own = seen.listeners.iter().filter(|listener| is_wanted(listener, front_end));
    own.filter_map(|listener| {
        let pool = seen.pool_of(listener)?;
        let monitor = seen.monitor_of(pool).filter(|monitor| monitor.kind == HTTP)?;
        Some((listener, pool, monitor))
    })
}

/// Returns true if a port lacks the monitor that `local-monitor: all` adds.
pub fn lacks_monitors(seen: &Seen, job: &Job<'_>) -> bool {
    decide(seen, job) == Unasked::Kept && is_unchecked(seen, job)
}

/// Returns true if a port has no monitor and the provider could add one.
pub fn is_unchecked(seen: &Seen, job: &Job<'_>) -> bool {
    let Job { wanted, settings, features, .. } = job;
    let unchecked = || unchecked(Some(seen), &wanted.front_end, *features, true);
    settings.local_checks.is_some() && !unchecked().is_empty()
}

/// Returns the ports without a monitor. `can` selects the ports that can or cannot have one.
fn unchecked(
    seen: Option<&Seen>,
    front_end: &FrontEnd,
    features: Features,
    can: bool,
) -> Vec<String> {
    let is_checked = |of: (Protocol, u16)| {
        let Some(seen) = seen else { return false };
        let own = seen.listeners.iter().find(|one| key(one) == of);
        let pool = own.and_then(|listener| seen.pool_of(listener));
        pool.is_some_and(|pool| seen.monitor_of(pool).is_some())
    };
    let ports = front_end.ports.iter().filter(|port| {
        features.http_checks(port.protocol) == can && !is_checked((port.protocol, port.port))
    });
    ports.map(|port| format!("{}/{}", port.port, port.protocol)).collect()
}

/// Returns the remarks for the user of such a Service. `seen` is `None` for a new load balancer.
pub fn remarks(
    seen: Option<&Seen>,
    front_end: &FrontEnd,
    settings: &Settings,
    features: Features,
    unasked: Unasked,
) -> Vec<Note> {
    const FIELD: &str = "spec.externalTrafficPolicy is Local";
    const LOST: &str =
        "are not checked, so nodes without a pod of the Service drop their share of the traffic";
    let (Some(unasked_for), Traffic::Local { health_check_port }) =
        (&settings.local_checks, front_end.traffic)
    else {
        return Vec::new();
    };
    let key = format!("annotation {PREFIX}enable-health-monitor");
    let mut notes = Vec::new();
    let cannot = unchecked(seen, front_end, features, false);
    if !cannot.is_empty() {
        let (why, right) = match features.ovn {
            true => (
                "the driver ovn has no HTTP health monitors",
                "set it to true for checks of TCP ports by a connection",
            ),
            false => (
                "before version 2.16 Octavia checks members of UDP and SCTP ports at no other port",
                "set spec.externalTrafficPolicy to Cluster",
            ),
        };
        let what = format!(
            "{key}: {FIELD}, and members of {} {LOST}: {why}; {right}, or to false to do without",
            cannot.join(", ")
        );
        notes.push(remark("LoadBalancerHealthMonitorIgnored", what));
    }
    let missing = unchecked(seen, front_end, features, true);
    match unasked {
        Unasked::Kept if !missing.is_empty() => {
            let right = match unasked_for.for_all {
                true => "the monitors follow in their turn, as [LoadBalancer] local-monitor says",
                false => {
                    "set it to true, or to false to do without, or [LoadBalancer] local-monitor \
                     to all for all Services"
                }
            };
            let what =
                format!("{key}: {FIELD}, and members of {} {LOST}: {right}", missing.join(", "));
            notes.push(remark("LoadBalancerHealthMonitorMissing", what));
        }
        Unasked::TakenBack => {
            let what = format!(
                "{key}: {FIELD}, but the health monitor failed all members of a pool that had \
                 served, so there is none: let the load balancer reach port {health_check_port} of \
                 the nodes, then set it to true, or to false to do without"
            );
            notes.push(remark("LoadBalancerHealthMonitorTakenBack", what));
        }
        _ => {}
    }
    notes
}

/// The results of new monitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialResult {
    /// The load balancer has no new monitors, or they do not fail all members of a pool.
    Nothing,
    /// The results are not known yet. Contains the remaining time.
    Later(Duration),
    /// All members of the pool of this listener fail, and the pool had served clients before.
    AllFail(String),
}

/// Returns the new monitors of pools that had served clients without them.
pub fn on_trial<'a>(
    seen: &'a Seen,
    job: &'a Job<'_>,
    now: Timestamp,
) -> Vec<(&'a ListenerRow, &'a PoolRow, &'a MonitorRow)> {
    if job.settings.local_checks.is_none() || decide(seen, job) == Unasked::TakenBack {
        return Vec::new();
    }
    let is_tried = |(_, pool, monitor): &(_, &PoolRow, &MonitorRow)| {
        let age = |monitor: &MonitorRow| since(monitor.created_at.as_deref(), now);
        let (Some(added), Some(age)) = (time(monitor.created_at.as_deref()), age(monitor)) else {
            return false;
        };
        // Octavia's clock gives the creation times of both.
        let is_new = age < NEW && takes(monitor) <= LONGEST;
        is_new && since(pool.created_at.as_deref(), added).is_some_and(|it| it >= SERVED)
    };
    checked(seen, &job.wanted.front_end).filter(is_tried).collect()
}

/// Returns how long a monitor needs for its first results.
fn takes(monitor: &MonitorRow) -> Duration {
    let MonitorRow { delay, timeout, max_retries_down, .. } = monitor;
    let seconds = delay.saturating_mul(max_retries_down.unwrap_or(3)).saturating_add(*timeout);
    Duration::from_secs(seconds.into()).saturating_add(SHOWN)
}

/// Returns the results of monitors that this process first saw `elapsed` ago.
pub fn found(
    seen: &Seen,
    tried: &[(&ListenerRow, &PoolRow, &MonitorRow)],
    elapsed: Duration,
) -> TrialResult {
    let Some(takes) = tried.iter().map(|(_, _, monitor)| takes(monitor)).max() else {
        return TrialResult::Nothing;
    };
    if elapsed < takes {
        return TrialResult::Later(takes.saturating_sub(elapsed));
    }
    match tried.iter().find(|(_, pool, _)| seen.failing.contains(&pool.id)) {
        Some((listener, _, _)) => {
            TrialResult::AllFail(format!("{}/{}", listener.protocol_port, listener.protocol))
        }
        None => TrialResult::Nothing,
    }
}

/// Returns the wait for the first results of new health monitors.
pub fn trying(row: &BalancerRow, left: Duration) -> Waiting {
    let what = "the first results of the health monitors follow".to_owned();
    view::waiting_for(row, what, left.min(LOOK))
}

/// Returns true if the cloud refuses monitors for good. Other changes then do not wait for them.
pub fn is_refusal(error: &CloudError) -> bool {
    let kinds = [
        ErrorKind::QuotaExceeded,
        ErrorKind::Forbidden,
        ErrorKind::Unsupported,
        ErrorKind::Invalid,
    ];
    !error.maybe_done && kinds.contains(&error.kind)
}

/// Returns true if the cloud may refuse a creation because of its monitors. A quota error must name one.
pub fn may_be_refusal(error: &CloudError) -> bool {
    let is_named = || error.message.to_lowercase().contains("health monitor");
    is_refusal(error) && (error.kind != ErrorKind::QuotaExceeded || is_named())
}

/// Returns the remark that the cloud refuses the health monitors.
pub fn refused(why: &str) -> Note {
    let what = format!(
        "annotation {PREFIX}enable-health-monitor: spec.externalTrafficPolicy is Local, and the cloud \
         refuses the health monitors, so members are not checked: {why}; set it to true when the \
         cloud lets them be made, or to false to do without"
    );
    remark("LoadBalancerHealthMonitorIgnored", what)
}

/// Marks the monitors as withdrawn. The next comparison deletes them.
pub fn taking_back(seen: &Seen, job: &Job<'_>, listener: &str) -> Step {
    let mut tags: Vec<String> =
        seen.row.tags.iter().filter(|tag| !tag.starts_with(names::TAKEN_BACK)).cloned().collect();
    tags.push(names::tag(names::TAKEN_BACK, job.wanted.front_end.digest));
    let line = format!(
        "record with load balancer {} that its health monitors are withdrawn: all members of \
         listener {listener} fail",
        seen.row.id
    );
    Step::new(line, Act::TakeBack(json!({ "tags": tags })))
}
