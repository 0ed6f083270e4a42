//! Nova's side.

use ccm_contract::MachineSide;
use ccm_openstack_client::scripted::{port, server, uuid};
use serde_json::json;

use crate::stage::{REGION, Side};

impl MachineSide for Side {
    fn build(&self, number: usize) {
        let mut world = self.0.world.lock();
        world.servers.push(server(number));
        let port = port(number);
        if world.ports.iter().all(|row| row["id"] != port["id"]) {
            world.ports.push(port);
        }
    }

    fn id(&self, number: usize) -> String {
        format!("openstack:///{}", uuid(number))
    }

    fn other_id(&self, number: usize) -> String {
        format!("openstack://{REGION}/{}", uuid(number))
    }

    fn uuid(&self, number: usize) -> String {
        uuid(number)
    }

    fn rename(&self, number: usize, name: &str) {
        self.0.change(number, "name", json!(name));
    }

    fn hide(&self, hidden: bool) {
        let mut world = self.0.world.lock();
        let all: Vec<_> =
            world.servers.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
        world.unlisted = all.into_iter().filter(|_| hidden).collect();
    }

    fn spoil(&self, number: usize) {
        self.0.change(number, "name", json!(7));
    }
}
