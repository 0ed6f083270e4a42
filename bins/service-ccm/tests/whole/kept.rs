//! The kept fields of Services, and what happens when they change.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, OURS, Served, Variant, World},
};

impl World {
    async fn that_serves(served: Served) -> Self {
        let mut world = Self::start(Variant::default()).await;
        world.classes = Some(served);
        world.restart().await;
        world
    }

    fn create_large(&self, number: usize, class: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": format!("web-{number}"), "namespace": "default",
                "annotations": {"sim/floating": "true", "other.dev/large": "x".repeat(200_000)},
            },
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [
                {"port": 80, "protocol": "TCP", "nodePort": 30080 + number}]},
        });
        self.api.create(service).unwrap();
    }

    fn shown(&self, number: usize) -> (Value, Value) {
        let service = self.service(number).unwrap();
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |one: &&Value| one["type"] == "LoadBalancerProvisioning";
        let condition = conditions.iter().find(is).cloned().unwrap_or_default();
        (condition["reason"].clone(), condition["message"].clone())
    }
}

/// Little is known about a Service that is not served, and that is not used.
#[tokio::test(start_paused = true)]
async fn a_service_that_becomes_served_is_read_again_first() {
    let world = World::that_serves(Served { ours: false, classless: false }).await;
    world.create_large(0, OURS);
    world.create_large(1, OURS);
    sleep(SOON).await;
    assert!(world.ours().is_empty());
    world.reload(|settings| settings.load_balancer_classes = vec![OURS.to_owned()]);
    sleep(SOON).await;
    for number in 0..2 {
        assert!(world.has_address(number));
        assert_eq!(world.members(number), NODES);
    }
    for balancer in world.ours() {
        assert_eq!(
            balancer.configuration.settings,
            [("sim/floating".to_owned(), "true".to_owned())].into()
        );
    }
    assert_eq!(world.events("SyncLoadBalancerFailed"), [""; 0], "it is not taken for a wrong one");
    // Back again, the load balancers are held, with everything that is known about them.
    world.reload(|settings| settings.load_balancer_classes = Vec::new());
    world.add_node(NODES);
    sleep(SOON * 2).await;
    assert_eq!(world.events("LoadBalancerReleaseHeld").len(), 2);
    (0..2).for_each(|number| assert_eq!(world.members(number), NODES + 1));
}

/// A provider in its own process may be replaced by a later version.
#[tokio::test(start_paused = true)]
async fn annotations_that_a_provider_begins_to_read_are_read_again() {
    let world = World::new().await;
    world.create_with(0, json!({"example.com/size": "large"}));
    sleep(SOON).await;
    assert_eq!(world.ours()[0].configuration.settings.len(), 0);
    world.cloud.balancers().configure(|settings| {
        settings.traits.annotations.push("example.com/".to_owned());
    });
    world.patch(0, json!({"metadata": {"annotations": {"quartet.dev/look": "1"}}}));
    sleep(SOON).await;
    assert_eq!(world.ours()[0].configuration.settings.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_too_large_is_left_as_it_is_and_says_so() {
    let world = World::with_services(0..1).await;
    let large = |text: Value| json!({"metadata": {"annotations": {"sim/floating": text}}});
    world.patch(0, large(json!("x".repeat(100_000))));
    world.create_with(1, json!({"sim/floating": "x".repeat(100_000)}));
    world.add_node(NODES);
    sleep(SOON).await;
    let what = "annotation sim/floating: has 100014 bytes: service-ccm reads at most 65536 of one Service. Until it is smaller, load balancer and members do not change";
    for number in 0..2 {
        let (reason, message) = world.shown(number);
        assert_eq!((reason, message), (json!("InvalidConfiguration"), json!(what)), "{number}");
    }
    assert_eq!(world.ours().len(), 1);
    assert_eq!(world.members(0), NODES, "which nodes may be members an annotation may say");
    let failed = world.events("SyncLoadBalancerFailed");
    assert!(failed.iter().all(|message| message.contains("sim/floating")) && failed.len() == 2);
    world.patch(0, large(json!("true")));
    world.patch(1, large(Value::Null));
    sleep(SOON).await;
    (0..2).for_each(|number| assert_eq!(world.members(number), NODES + 1));
    assert_eq!(world.ours()[0].configuration.settings.len(), 1);
    // Fields that were not read are not judged.
    let port = |number: u16| json!({"name": format!("{number:060}"), "port": number, "nodePort": number + 30_000});
    let ports = json!({"spec": {"ports": (1000..2000).map(port).collect::<Vec<_>>()}});
    world.patch(1, ports);
    sleep(SOON).await;
    let (_, message) = world.shown(1);
    assert!(message.as_str().unwrap().starts_with("spec: has "), "{message}");
    assert_eq!(world.members(1), NODES + 1);
    // Nothing delays a deletion, but an annotation may say that the address stays.
    world.patch(0, json!({"metadata": {"annotations": {"sim/note": "x".repeat(100_000)}}}));
    world.delete(0);
    sleep(SOON).await;
    assert_eq!((world.ours().len(), world.cloud.balancers().floating().len()), (1, 1));
}
