//! Neutron's side: the router.

use ccm_cloud::RouteTarget;
use ccm_contract::RouterSide;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::stage::Side;

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap()
}

impl RouterSide for Side {
    fn table(&self) -> Vec<(IpNet, RouteTarget)> {
        let world = self.0.world.lock();
        let entry = |row: &Value| {
            let target = RouteTarget::Address(text(row, "nexthop").parse().unwrap());
            (text(row, "destination").parse::<IpNet>().unwrap(), target)
        };
        let mut all: Vec<_> = world.router.routes.iter().map(entry).collect();
        all.sort_by_key(|(destination, _)| *destination);
        all
    }

    fn add(&self, destination: IpNet, target: RouteTarget) {
        let router = &mut self.0.world.lock().router;
        let (destination, hop) = (destination.to_string(), target.to_string());
        router.routes.push(json!({ "destination": destination, "nexthop": hop }));
        router.revision += 1;
    }

    fn retarget(&self, destination: IpNet, target: RouteTarget) {
        let router = &mut self.0.world.lock().router;
        let name = destination.to_string();
        for row in router.routes.iter_mut().filter(|row| row["destination"] == *name) {
            row["nexthop"] = json!(target.to_string());
        }
        router.revision += 1;
    }

    fn written(&self) -> usize {
        self.0.operations().into_iter().filter(|name| *name == "router_update").count()
    }

    fn limit(&self, most: usize) {
        self.0.world.lock().router.max_routes = most;
    }

    fn break_new(&self, broken: bool) {
        self.0.world.lock().router.max_pairs = if broken { 0 } else { 10 };
    }

    fn clear_targets(&self) {
        self.0.world.lock().ports.clear();
    }
}
