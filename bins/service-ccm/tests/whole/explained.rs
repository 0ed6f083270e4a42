//! The page `/explain`: the first three lines name the cause and the fix of a Service's problem.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_objects::service_keys::SOURCE_RANGES;
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect, Trouble},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    adoption::Maker,
    cases::{FINALIZER, SOON, on},
    world::{NODES, Variant, World},
};

impl World {
    /// Checks that the first three lines about a Service begin like this.
    fn is_explained(&self, name: &str, lines: [&str; 3]) {
        let name = format!("default/{name}");
        let page = self.running().explain("Service", &name);
        let head = format!("Service {name}, service-ccm: {}", lines[0]);
        let found: Vec<&str> = page.lines().take(3).collect();
        let [first, cause, fix] = found[..] else { panic!("{page}") };
        let (titled, [_, why, what]) =
            ([cause.starts_with("cause:"), fix.starts_with("fix:")], lines);
        let is_right = first == head && cause.contains(why) && fix.contains(what);
        assert!(is_right && titled == [true; 2], "{lines:#?} is not in\n{page}");
    }

    fn fails(&self, operation: Operation, number: usize, error: CloudError) {
        self.cloud.faults().add(on(operation, number, Trouble::Fail(error)));
    }

    fn note(&self, number: usize, note: &str) {
        self.patch(number, json!({"metadata": {"annotations": {"sim/note": note}}}));
    }
}

fn error(kind: ErrorKind, text: &str, request: &str) -> CloudError {
    CloudError { request_id: Some(request.to_owned()), ..CloudError::new(kind, text) }
}

fn service(name: &str, spec: Value) -> Value {
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30090}]);
    let mut service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    service["spec"]["ports"] = ports;
    service
}

#[tokio::test(start_paused = true)]
async fn of_services_that_nobody_changes() {
    let world = World::with_services(0..1).await;
    world.is_explained(
        "web-0",
        ["fine", "Serving: clients reach it at 10.240.0.", "nothing has to be done"],
    );
    world.is_explained(
        "web-9",
        [
            "unknown",
            "the API server does not show a Service \"default/web-9\"",
            "check namespace and name",
        ],
    );
    let page = world.running().explain("Service", "web-0");
    assert!(page.contains("fix:     a Service is NAMESPACE/NAME"), "{page}");
    world.api.create(service("inner", json!({"type": "ClusterIP"}))).unwrap();
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/nobody"});
    world.api.create(service("unserved", spec)).unwrap();
    sleep(SOON).await;
    world.is_explained(
        "inner",
        ["not responsible", "its type is not LoadBalancer", "set spec.type to LoadBalancer"],
    );
    world.is_explained(
        "unserved",
        [
            "not responsible",
            "load balancer class example.com/nobody is not served here",
            "or add example.com/nobody to --load-balancer-classes",
        ],
    );
    world.patch(0, json!({"metadata": {"annotations": {SOURCE_RANGES: "nonsense"}}}));
    sleep(SOON).await;
    world.is_explained(
        "web-0",
        ["blocked", SOURCE_RANGES, "correct the problem in the cause in the Service"],
    );
}

/// A standby knows the writes of the leader, and does not ask the cloud.
#[tokio::test(start_paused = true)]
async fn by_a_standby() {
    let world = World::with_services(0..1).await;
    world.fails(
        Operation::EnsureLoadBalancers,
        1,
        error(ErrorKind::Forbidden, "no right", "req-5"),
    );
    world.create(1);
    world
        .api
        .create(service(
            "unserved",
            json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/nobody"}),
        ))
        .unwrap();
    let (standby, _program) = world.stand_by().await;
    sleep(SOON).await;
    let has = |name: &str, texts: [&str; 3]| {
        let page = standby.explain("Service", &format!("default/{name}"));
        let lines: Vec<&str> = page.lines().collect();
        let is_right = lines.iter().zip(texts).all(|(line, text)| line.contains(text));
        assert!(is_right && lines.len() > 3, "{page}");
    };
    has("web-0", ["fine", "Serving: clients reach it at", "nothing has to be done"]);
    has(
        "web-1",
        ["blocked", "CloudAccessDenied: forbidden: no right (request req-5)", "permission"],
    );
    has("unserved", ["not responsible", "is not served here", "--load-balancer-classes"]);
}

#[tokio::test(start_paused = true)]
async fn of_services_that_the_cloud_refuses() {
    let world = World::with_services(0..4).await;
    let ensure = Operation::EnsureLoadBalancers;
    world.fails(
        ensure,
        0,
        error(ErrorKind::QuotaExceeded, "Quota exceeded for resources: ['loadbalancer']", "req-1"),
    );
    world.fails(
        ensure,
        1,
        error(
            ErrorKind::Unauthorized,
            "The request you have made requires authentication",
            "req-2",
        ),
    );
    world.fails(ensure, 2, error(ErrorKind::Unavailable, "503", "req-3"));
    world.fails(
        Operation::DeleteLoadBalancers,
        3,
        error(ErrorKind::Conflict, "its port is used by server s-1", "req-4"),
    );
    (0..3).for_each(|number| world.note(number, "other"));
    world.delete(3);
    sleep(SOON).await;
    world.is_explained(
        "web-0",
        [
            "blocked",
            "the call to create or update it has failed",
            "raise the quota of the cloud project",
        ],
    );
    let page = world.running().explain("Service", "default/web-0");
    for text in [
        "Quota exceeded for resources: ['loadbalancer'] (request req-1)",
        "wanted:  a load balancer with TCP 80 (node port 30080)",
        "there:   load balancer ",
        "decided: ensure: TCP 80",
        "next:    the call is made again at 20",
        ", in ",
    ] {
        assert!(page.contains(text), "{text:?} is not in\n{page}");
    }
    world.is_explained(
        "web-1",
        ["blocked", "(request req-2)", "renew the credentials of the cloud"],
    );
    world.is_explained("web-2", ["work is under way", "(request req-3)", "wait; if it lasts"]);
    world.is_explained(
        "web-3",
        ["blocked", "(request req-4)", "two facts in the cloud contradict each other"],
    );
}

#[tokio::test(start_paused = true)]
async fn of_services_on_which_the_cloud_works() {
    let world = World::new().await;
    world.cloud.balancers().configure(|settings| settings.times.create = Duration::from_mins(3));
    world.create(0);
    sleep(Duration::from_secs(70)).await;
    world.is_explained(
        "web-0",
        ["work is under way", "the cloud works on it: ", "wait: nothing has to be done"],
    );
}

#[tokio::test(start_paused = true)]
async fn of_services_that_a_brake_holds() {
    let world = World::with_services(0..1).await;
    for number in 0..8 {
        world.api.delete("nodes", &World::node_name(number)).unwrap();
    }
    sleep(SOON).await;
    let approval = "kubectl -n default annotate service web-0 --overwrite \"quartet.dev/member-loss-approved=$(date";
    world.is_explained("web-0", ["held", "MembersHeld: 5 of 9 members are held", approval]);
    world.reload(|settings| settings.serve_classless_services = false);
    sleep(SOON).await;
    world.is_explained(
        "web-0",
        [
            "held",
            "the settings of this service-ccm exclude Services without a class: load balancer lb-",
            "kubectl -n default annotate service web-0 --overwrite \"quartet.dev/release-approved=$(date",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn of_services_whose_load_balancers_another_controller_made() {
    let mut world = World::of(Maker::Older, 1, Variant::default()).await;
    world.restart().await;
    sleep(SOON).await;
    world.is_explained(
        "web-0",
        [
            "blocked",
            "was made by another controller",
            "kubectl -n default annotate service web-0 --overwrite quartet.dev/adopt-load-balancer=",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn of_load_balancers() {
    let world = World::with_services(0..2).await;
    let mut all = world.ours();
    all.sort_by_key(|one| one.owners[0].name.clone());
    let (mine, left) = (all[0].id.clone(), all[1].id.clone());
    let explain = |id: &str| world.running().explain("LoadBalancer", id);
    assert!(explain(&mine).contains("cause:   it is the load balancer of Service default/web-0"));
    let uid = &all[1].owners[0].uid;
    world.patch(1, json!({"metadata": {"finalizers": null}, "spec": {"type": "ClusterIP"}}));
    sleep(Duration::from_mins(20)).await;
    let page = explain(&left);
    let lines: Vec<&str> = page.lines().collect();
    assert!(
        lines[1].contains(&format!("its owner is Service default/web-1 with UID {uid}")),
        "{page}"
    );
    assert!(lines[2].contains("--orphaned-load-balancers=delete"), "{page}");
    assert!(page.contains("decided: delete"), "{page}");
    assert!(explain("lb-none").starts_with("LoadBalancer lb-none, service-ccm: unknown"));
}

/// Failures of calls that the Service does not need any more do not count.
#[tokio::test(start_paused = true)]
async fn of_a_service_that_is_deleted_after_its_creation_has_failed() {
    let world = World::with_services(0..1).await;
    let quota = error(ErrorKind::QuotaExceeded, "no more listeners", "req-6");
    world.fails(Operation::EnsureLoadBalancers, 0, quota);
    world.note(0, "other");
    sleep(SOON).await;
    world.is_explained("web-0", ["blocked", "no more listeners", "raise the quota"]);
    world.cloud.balancers().configure(|settings| settings.times.delete = Duration::from_mins(3));
    world.delete(0);
    sleep(SOON).await;
    world.is_explained("web-0", ["work is under way", "the cloud works on it: ", "wait"]);
}

#[tokio::test(start_paused = true)]
async fn of_services_whose_writes_are_refused() {
    let world = World::with_services(0..1).await;
    world.refuse_writes(403, Duration::from_hours(1));
    world.create(1);
    sleep(SOON).await;
    world.is_explained(
        "web-1",
        [
            "blocked",
            "the API server does not accept the write protect: forbidden",
            "give the account of this program the right",
        ],
    );
    world.is_explained("web-0", ["fine", "Serving", "nothing has to be done"]);
    sleep(Duration::from_mins(70)).await;
    world.is_explained("web-1", ["fine", "Serving", "nothing has to be done"]);
}

#[tokio::test(start_paused = true)]
async fn of_a_service_whose_last_member_is_gone() {
    let world = World::with_services(0..1).await;
    world.patch(
        0,
        json!({"metadata": {"annotations": {"quartet.dev/member-loss-approved": "yes"}}}),
    );
    for number in 0..NODES {
        world.api.delete("nodes", &World::node_name(number)).unwrap();
    }
    sleep(Duration::from_mins(2)).await;
    world.is_explained(
        "web-0",
        ["held", "MembersHeld: 1 of 1 members", "make another node a member"],
    );
}

#[tokio::test(start_paused = true)]
async fn of_a_release_that_fails() {
    let world = World::with_services(0..1).await;
    let used = error(ErrorKind::Conflict, "its port is used", "req-7");
    world.fails(Operation::DeleteLoadBalancers, 0, used);
    world.reload(|settings| settings.serve_classless_services = false);
    world.patch(0, json!({"metadata": {"annotations": {"quartet.dev/release-approved": "yes"}}}));
    sleep(SOON).await;
    world.is_explained("web-0", ["blocked", "its port is used (request req-7)", "contradict"]);
}

#[tokio::test(start_paused = true)]
async fn of_finalizers_that_belong_to_others() {
    let world = World::new().await;
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/nobody"});
    let mut others = service("others", spec);
    others["metadata"]["finalizers"] = json!([FINALIZER]);
    let mut bare = service("bare", json!({"type": "ClusterIP"}));
    bare["metadata"]["finalizers"] = json!([FINALIZER]);
    for one in [others, bare] {
        world.api.create(one).unwrap();
    }
    world.api.delete("services", "default/others").unwrap();
    sleep(SOON).await;
    world.is_explained(
        "others",
        [
            "not responsible",
            "the finalizer belongs to the controller of the class example.com/nobody",
            "the controller that has set the finalizer should remove it",
        ],
    );
    let page = world.running().explain("Service", "default/bare");
    assert!(!page.contains("work is under way"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn of_load_balancers_that_cannot_be_listed() {
    let mut world = World::with_services(0..1).await;
    world.stop();
    let refused = error(ErrorKind::Unauthorized, "the token is over", "req-8");
    world
        .cloud
        .faults()
        .add(Fault::new(FaultEffect::Error(refused)).on(Operation::ListLoadBalancers));
    world.restart().await;
    sleep(SOON).await;
    world.is_explained("web-0", [
        "blocked",
        "the load balancers cannot be listed: unauthorized: the token is over (request req-8); the Service shows Serving",
        "renew the credentials",
    ]);
}
